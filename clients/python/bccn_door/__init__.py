"""The way of ``bccn`` through a door (``clients/BPMUX.md``, "Sessions"): a transport in place of the daemon's socket.

``carrier`` is the transport and its thread, ``address`` makes the connection that they use. ``bccn.transport``
imports this package for the address of a door alone: most programs need neither it, nor ``bpmux``, nor threads.
"""
