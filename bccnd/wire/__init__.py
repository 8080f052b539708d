"""Sans-I/O codecs, one module per protocol. No socket, clock, loop or log (a test holds this)."""
