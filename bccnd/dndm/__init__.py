"""The gateway between DNDM, the bus of robots, and this bus; so far its decisions (``bccnd/dndm/README.md``)."""
