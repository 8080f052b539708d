"""The uplink: carries chosen channels of this segment to others, and theirs to this one.

``core`` decides, without I/O; what carries its link datagrams is a ``carrier``.
"""
