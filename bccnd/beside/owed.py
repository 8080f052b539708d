"""The requests that a program has still to answer, and which of them is next. No I/O and no clock.

Anybody may ask, as often as it likes. Without this, whoever asks most has all the answers.

Rules
- An asker is a source: each connection has its own name. Askers have turns, an answer each. Those that got no answer
  in the last CALM_SECONDS come first. So who asks without end waits, and nobody waits for it. A user
  that asks over a hundred connections by turns can have it otherwise: the daemon alone limits those.
- An asker is owed EACH answers at most, and ASKERS askers are. Requests beyond that are dropped, except that a calm
  asker takes the place of the last of the others.
- A second has PARTS messages of answers. When they are used up, requests wait.
- What is remembered of askers is bounded by what they got within CALM_SECONDS.
"""

from collections import deque
from math import inf
from typing import Generic, TypeVar

# Messages of answers a second.
PARTS = 500
# Requests of one asker that wait: the page of a door makes two at once.
EACH = 4
# Askers that wait: with answers of 16 messages, half a second.
ASKERS = 16
# Seconds after an answer in which the asker is not calm: people look less often.
CALM_SECONDS = 3.0

R = TypeVar("R")


class Owed(Generic[R]):
    """``R``: a request. ``due``: when to ``take`` the next, in monotonic seconds; infinite for never."""

    def __init__(self) -> None:
        # Asker -> its requests, in turn.
        self._calm: dict[str, deque[R]] = {}
        self._others: dict[str, deque[R]] = {}
        # Asker -> when it got its last answer, the longest ago first.
        self._answered: dict[str, float] = {}
        # Until when the messages are used up.
        self._until = -inf

    @property
    def due(self) -> float:
        return self._until if self._calm or self._others else inf

    def ask(self, who: str, request: R, now: float) -> None:
        waiting = self._calm.get(who) or self._others.get(who)
        if waiting:
            if len(waiting) < EACH:
                waiting.append(request)
            return
        self._forget(now)
        is_calm = who not in self._answered
        if len(self._calm) + len(self._others) >= ASKERS:
            if not is_calm or not self._others:
                return
            self._others.popitem()
        (self._calm if is_calm else self._others)[who] = deque([request])

    def take(self, now: float) -> R | None:
        """The next request to answer; None if it is not time."""
        if now < self.due:
            return None
        table = self._calm or self._others
        who = next(iter(table))
        waiting = table.pop(who)
        self._forget(now)
        self._answered.pop(who, None)
        self._answered[who] = now
        request = waiting.popleft()
        if waiting:
            self._others[who] = waiting
        return request

    def took(self, parts: int, now: float) -> None:
        """An answer took so many messages."""
        self._until = max(self._until, now - 1.0) + max(1, parts) / PARTS

    def _forget(self, now: float) -> None:
        while self._answered:
            who, at = next(iter(self._answered.items()))
            if now - at < CALM_SECONDS:
                break
            del self._answered[who]
