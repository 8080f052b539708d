"""Sans-I/O codecs, one module or package per protocol. No socket, clock, loop or log (a test holds this)."""
