"""Bounds the work for a user in a round of the loop: the connections of one user take turns.

Without this, a user with a hundred busy connections would have a hundred turns between two turns of anybody else.
There is one ``Turns`` for each kind of work: to judge what peers sent, to write to them, and to read the daemon.

Rules
- In a round a user gets ``most`` work, apart from what the last turn adds. Then further connections wait for a later
  round, behind those that already wait.
- If n connections want turns, each gets an n-th part, so that one with little to do does not wait for long turns.
  None gets less than ``least``: a turn costs something, however little is done in it.
"""

from asyncio import AbstractEventLoop
from collections import Counter, deque
from collections.abc import Callable

# A turn: does as much work as it is told, or a little more, and returns how much it was.
Turn = Callable[[int], int]


class Turns:
    """For all connections on ``loop``. ``most``: work of a user in a round; ``least``: work of a turn."""

    def __init__(self, loop: AbstractEventLoop, most: int, least: int) -> None:
        self._loop = loop
        self._most, self._least = most, least
        self._done: Counter[int] = Counter()  # by user, in this round
        self._waiting: dict[int, deque[Turn]] = {}
        self._is_round = False

    def take(self, uid: int, turn: Turn) -> bool:
        """Call it now, or later in its turn. Whether it was called now."""
        if uid in self._waiting or self._done[uid] >= self._most:
            self.wait(uid, turn)
            return False
        self._begin()
        self._done[uid] += turn(self._most)
        return True

    def wait(self, uid: int, turn: Turn) -> None:
        """Call it in a later round: for a connection that has had a turn, and has more to do."""
        self._begin()
        self._waiting.setdefault(uid, deque()).append(turn)

    def _begin(self) -> None:
        if not self._is_round:
            self._is_round = True
            self._loop.call_soon(self._end_round)

    def _end_round(self) -> None:
        self._is_round = False
        self._done.clear()
        if self._waiting:
            self._begin()
        for uid, waiting in list(self._waiting.items()):
            count = len(waiting)  # none if a turn has failed
            share = max(self._least, self._most // max(1, count))
            for _ in range(count):  # those that come meanwhile wait for the next round
                if self._done[uid] >= self._most:
                    break
                self._done[uid] += waiting.popleft()(share)
            if not waiting:
                del self._waiting[uid]
