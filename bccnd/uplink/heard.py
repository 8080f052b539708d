"""Remembers which messages came by the carrier lately, so that none goes back to it.

It remembers messages, not sources: when one way around a ring fails, what comes the other way is still carried.
"""

# Messages of one generation, some 150 bytes each; two are kept. A message comes back within a second, by another
# uplink of the segment or around a ring.
GENERATION = 1 << 16


class Heard:
    """``add`` and ``in`` take ``<src>:<seq>``. The last GENERATION are remembered, and twice as many at most."""

    def __init__(self) -> None:
        self._new: set[bytes] = set()
        self._old: set[bytes] = set()

    def add(self, message: bytes) -> None:
        self._new.add(message)
        if len(self._new) >= GENERATION:
            self._old, self._new = self._new, set()

    def __contains__(self, message: bytes) -> bool:
        return message in self._new or message in self._old
