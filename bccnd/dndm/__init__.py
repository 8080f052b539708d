"""The gateway between DNDM, the bus of robots, and this bus (``bccnd/dndm/README.md``)."""
