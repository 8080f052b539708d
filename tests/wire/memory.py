"""Packets as they lie in the memory of a batch."""

import mmap
from collections.abc import Sequence


def laid_out(packets: Sequence[bytes], *, room: int = 0) -> tuple[mmap.mmap, list[int], list[int]]:
    """The packets in a memory, with what was there before around them, and ``room`` bytes at its end."""
    memory = mmap.mmap(-1, sum(map(len, packets)) + 16 * (len(packets) + 1) + room)
    memory[:] = b"MSG " * (len(memory) // 4) + b"MSG "[: len(memory) % 4]
    starts, ends, at = [], [], 16
    for packet in packets:
        memory[at : at + len(packet)] = packet
        starts.append(at)
        ends.append(at + len(packet))
        at += len(packet) + 16
    return memory, starts, ends
