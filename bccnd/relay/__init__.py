"""Decisions without I/O and without a clock: who gets which message. A test holds this."""
