"""The uplink: carries chosen channels of this segment to others, and theirs to this one.

``core`` decides, without I/O; a ``carrier`` transports its link datagrams.
"""
