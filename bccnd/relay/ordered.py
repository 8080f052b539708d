"""Byte strings in their order, to find those that begin alike without a look at the others.

Rules
- The keys lie in blocks of at most BLOCK, so that a change moves few of them however many there are.
- Nothing here is an iterator: ``first`` finds the next key from a place on, whatever has changed since the last.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

# Keys side by side: a change moves half a block, and one entry of the list of blocks for every so many keys.
BLOCK = 512


class OrderedKeys:
    """A sorted set. A key holds no NUL byte."""

    def __init__(self) -> None:
        self._blocks: list[list[bytes]] = []
        self._firsts: list[bytes] = []  # the first key of each block

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def add(self, key: bytes) -> None:
        """Take a key that is not there yet."""
        if not self._blocks:
            self._blocks, self._firsts = [[key]], [key]
            return
        at = max(bisect_right(self._firsts, key) - 1, 0)
        block = self._blocks[at]
        insort(block, key)
        if len(block) > BLOCK:
            self._blocks.insert(at + 1, block[BLOCK // 2 :])
            self._firsts.insert(at + 1, block[BLOCK // 2])
            del block[BLOCK // 2 :]
        self._firsts[at] = block[0]

    def remove(self, key: bytes) -> None:
        """Drop a key that is there."""
        at = bisect_right(self._firsts, key) - 1
        block = self._blocks[at]
        del block[bisect_left(block, key)]
        if at and len(self._blocks[at - 1]) + len(block) <= BLOCK // 2:
            self._blocks[at - 1] += block
            block.clear()
        if block:
            self._firsts[at] = block[0]
        else:
            del self._blocks[at], self._firsts[at]

    def first(self, start: bytes) -> bytes | None:
        """The first key that is not below ``start``."""
        at = bisect_right(self._firsts, start)
        if at:
            block = self._blocks[at - 1]
            within = bisect_left(block, start)
            if within < len(block):
                return block[within]
        return self._firsts[at] if at < len(self._firsts) else None

    def beginning(self, prefix: bytes) -> Iterator[bytes]:
        """The keys that begin so, each found when it is asked for: what comes and goes meanwhile is seen or not."""
        key = self.first(prefix)
        while key is not None and key.startswith(prefix):
            yield key
            key = self.first(key + b"\0")
