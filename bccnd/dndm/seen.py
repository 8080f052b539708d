"""Remembers which messages went through lately, so that none goes in circles between gateways.

Gateways keep the timestamp of a message. So a message that comes by another link is recognized by route, timestamp
and data. By the same link it may come again: robots with coarse clocks send equal messages within one tick.

A message counts against the link that it came by: each has room for SEEN_LIMIT, the oldest go first.
"""

from collections import deque

# Messages of each link: a second of them, at 1000 a second.
SEEN_LIMIT = 1024


class Seen:
    """``link``: the number of a link, or the one that stands for the bus."""

    def __init__(self) -> None:
        self._from: dict[int, int] = {}
        self._of: dict[int, deque[int]] = {}

    def __len__(self) -> int:
        return len(self._from)

    def again(self, link: int, route_id: str, timestamp: int, data: bytes) -> bool:
        """Whether the message came by another link before; else note it. One without a timestamp is always new."""
        if not timestamp:
            return False
        key = hash((route_id, timestamp, data))
        first = self._from.setdefault(key, link)
        if first != link:
            return True
        mine = self._of.setdefault(link, deque())
        if not mine or mine[-1] != key:
            mine.append(key)
        if len(mine) > SEEN_LIMIT:
            self._from.pop(mine.popleft(), None)
        return False

    def forget(self, link: int) -> None:
        for key in self._of.pop(link, ()):
            self._from.pop(key, None)
