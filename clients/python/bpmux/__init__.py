"""bpmux/rel: channels and requests over one connection, each under its reader's credit (``clients/BPMUX.md``).

``chunks`` is the bytes, ``endpoint`` one side of a connection, whatever carries it: bytes in, events out. Both sides
are the same class.
"""
