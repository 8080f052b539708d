"""How much of what a connection has sent is judged in one turn. Its user has all its connections share.

Without that a user with hundred connections that send more than is judged would have hundred turns between two of
anybody else.

Rules
- In a round of the loop the n-th connection of a user gets the n-th part of CHUNKS, so all of them together get
  little more than one does. If more had a turn in the round before, their number counts: those that come late in
  a round get as much as the others.
- None gets less than SHARE: a turn costs something, however little is judged in it.
"""

from asyncio import AbstractEventLoop
from collections import Counter

from bccnd.mux import limits


class Turns:
    """Of all connections on ``loop``."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._now: Counter[int] = Counter()  # by user: turns in this round
        self._before = self._now

    def share(self, uid: int) -> int:
        """Begin a turn: the chunks that may be judged in it, as ``Endpoint.work`` counts them."""
        if not self._now:
            self._loop.call_soon(self._end_round)
        self._now[uid] += 1
        return max(limits.SHARE, limits.CHUNKS // max(self._now[uid], self._before[uid]))

    def _end_round(self) -> None:
        self._before, self._now = self._now, Counter()
