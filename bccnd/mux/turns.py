"""How much is done for a user in a round of the loop: the connections of one user take turns.

Without that a user with hundred connections that send more than is judged would have hundred turns between two of
anybody else. There is one ``Turns`` for each kind of work: to judge what peers sent, to write to them, and to read
the daemon.

Rules
- In a round a user has so much work done, but for the last turn. Whoever comes then waits for its turn in a later
  round, behind those that wait already.
- The n that want turns get the n-th part of it each, so that the one that has little to do waits for no long turns.
  None gets less than ``least``: a turn costs something, however little is done in it.
"""

from asyncio import AbstractEventLoop
from collections import Counter, deque
from collections.abc import Callable

# Does as much work as it is told, or a little more, and says how much it was.
Turn = Callable[[int], int]


class Turns:
    """Of all connections on ``loop``. ``most`` and ``least``: work of a user in a round, and of a turn at least."""

    def __init__(self, loop: AbstractEventLoop, most: int, least: int) -> None:
        self._loop = loop
        self._most, self._least = most, least
        self._done: Counter[int] = Counter()  # by user, in this round
        self._waiting: dict[int, deque[Turn]] = {}
        self._is_round = False

    def take(self, uid: int, turn: Turn) -> bool:
        """Have it called at once, or else later. Whether it was."""
        if uid in self._waiting or self._done[uid] >= self._most:
            self.wait(uid, turn)
            return False
        self._begin()
        self._done[uid] += turn(self._most)
        return True

    def wait(self, uid: int, turn: Turn) -> None:
        """Have it called in a later round: for who has had a turn, and has more to do."""
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
            count = len(waiting)  # none where a turn has failed
            share = max(self._least, self._most // max(1, count))
            for _ in range(count):  # those that come meanwhile have the next round
                if self._done[uid] >= self._most:
                    break
                self._done[uid] += waiting.popleft()(share)
            if not waiting:
                del self._waiting[uid]
