"""DNDM, the bus of robots: frames, messages, routes and addresses of peers (``bccnd/wire/DNDM.md``)."""
