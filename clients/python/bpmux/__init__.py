"""bpmux/rel: channels and requests over one connection, each under its reader's credit (``clients/BPMUX.md``).

``endpoint`` is one side of a connection, whatever carries it: bytes in, events out. Both sides are the same class.
Below it ``connection`` has all that there is, ``actions`` is what this side does to it, ``incoming`` judges what
comes and ``arrivals`` does that. ``chunks`` is the bytes, ``outgoing`` what waits to become some.
"""
