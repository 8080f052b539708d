"""Who is there: the sources that say so regularly on ``heartbeat/<src>``, and what became of them.

Rules
- The interval of a source is learnt from the gaps between its heartbeats: a shorter one at once, a longer one when it
  has come twice, so that a lost heartbeat does not look like a slower pace. Before there was a gap it is ASSUMED.
- A source is silent when nothing at all was heard of it for ``misses`` intervals; whatever is heard later brings it
  back. Who said ``leaving`` has left, until it beats again.
- Nothing is done per message: ``heard`` says when a source was last heard, and is asked when a source is due. Who is
  due stands at the head of a heap; at most CHECKS are made a tick, what is left waits for the next.
- Bounded: when the table is full a newcomer takes the place of one that is gone; if none is, it is not watched.
- A source that ``heard`` does not know any more is forgotten without a word.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any

ASSUMED = 60.0  # seconds, of who was heard once: patience costs less than a false alarm
SHORTEST, LONGEST = 1.0, 3600.0
SHORTER, LONGER = 0.75, 1.5  # of the interval: gaps between these are its jitter
CHECKS = 1000  # a tick
GONE_SECONDS = 60.0  # at most, between two looks at whether a silent source is back
STATUS = b"bccnd/"
VERSION_LIMIT = 64


class State(StrEnum):
    ALIVE = "alive"
    SILENT = "silent"
    LEFT = "left"


class Event(StrEnum):
    APPEARED = "appeared"
    SILENT = "silent"
    BACK = "back"
    RESTARTED = "restarted"
    LEFT = "left"


class Life:
    """``interval``: seconds, 0 before it is known; ``beat``: when it last said that it is there."""

    __slots__ = ("beat", "due", "interval", "longer", "since", "state", "version")

    def __init__(self, now: float) -> None:
        self.state = State.ALIVE
        self.since = self.beat = now  # since when it is in its state
        self.interval = 0.0
        self.longer = False  # the last gap was longer than the interval
        self.version = ""
        self.due = 0.0

    def learn(self, gap: float) -> None:
        gap = min(max(gap, SHORTEST), LONGEST)
        longer = gap > self.interval * LONGER
        if not self.interval or gap < self.interval * SHORTER or (longer and self.longer):
            self.interval, self.longer = gap, False
        elif longer:
            self.longer = True
        else:
            self.interval, self.longer = (3 * self.interval + gap) / 4, False


class Presence:
    """``heard``: when a source was last heard, None when it is not known; ``tell`` is called for each event."""

    def __init__(
        self,
        heard: Callable[[bytes], float | None],
        tell: Callable[[Event, bytes, Life], None],
    ) -> None:
        self._heard, self._tell = heard, tell
        self.configure(limit=16384, misses=3)
        self._lives: dict[bytes, Life] = {}
        self._gone: dict[bytes, None] = {}  # silent or left, the longest first
        self._heap: list[tuple[float, bytes]] = []

    def configure(self, limit: int, misses: int) -> None:
        """``limit``: of sources; a smaller one holds for newcomers."""
        self._limit, self._misses = limit, misses

    def __len__(self) -> int:
        return len(self._lives)

    def __iter__(self) -> Iterator[tuple[bytes, Life]]:
        yield from self._lives.items()

    def get(self, src: bytes) -> Life | None:
        return self._lives.get(src)

    def beat(self, src: bytes, text: bytes, now: float) -> None:
        """A heartbeat of the source."""
        leaving = text == b"leaving"
        life = self._lives.get(src)
        if life is None:
            if leaving or not self._make_room():
                return
            life = self._lives[src] = Life(now)
            life.version = _version(text)
            self._watch(src, life, now + self._patience(life))
            self._tell(Event.APPEARED, src, life)
            return
        if leaving:
            if life.state is not State.LEFT:
                self._turn(src, life, State.LEFT, Event.LEFT, now)
                self._watch(src, life, now + LONGEST)
            return
        life.version = _version(text)
        if life.state is State.LEFT:
            life.longer = False
        else:
            life.learn(now - life.beat)
        life.beat = now
        if life.state is not State.ALIVE:
            self._turn(src, life, State.ALIVE, Event.BACK, now)
        due = now + self._patience(life)
        if due < life.due:
            self._watch(src, life, due)

    def restarted(self, src: bytes, now: float) -> None:
        """The numbers of the source have begun anew."""
        life = self._lives.get(src)
        if life is not None:
            if life.state is not State.ALIVE:
                self._turn(src, life, State.ALIVE, None, now)
                self._watch(src, life, now + self._patience(life))
            life.since = life.beat = now
            self._tell(Event.RESTARTED, src, life)

    def tick(self, now: float) -> None:
        for _ in range(CHECKS):
            if not self._heap or self._heap[0][0] > now:
                return
            due, src = heapq.heappop(self._heap)
            life = self._lives.get(src)
            if life is not None and life.due == due:
                self._check(src, life, now)

    def state(self) -> list[tuple[bytes, dict[str, Any]]]:
        """The table in plain values, for a successor of this daemon."""
        return [
            (src, {name: getattr(life, name) for name in Life.__slots__} | {"state": str(life.state)})
            for src, life in self._lives.items()
        ]

    def restore(self, state: Iterable[tuple[bytes, dict[str, Any]]]) -> None:
        for src, fields in state:
            self._lives[src] = life = Life(0.0)
            for name, value in fields.items():
                if name in Life.__slots__:
                    setattr(life, name, value)
            life.state = State(life.state)
            self._watch(src, life, life.due)
        gone = [(life.since, src) for src, life in self if life.state is not State.ALIVE]
        self._gone = dict.fromkeys(src for _, src in sorted(gone))

    def _check(self, src: bytes, life: Life, now: float) -> None:
        heard = self._heard(src)
        if heard is None:
            del self._lives[src]
            self._gone.pop(src, None)
        elif life.state is State.LEFT:
            self._watch(src, life, now + LONGEST)
        elif life.state is State.SILENT:
            if heard > life.since:
                self._turn(src, life, State.ALIVE, Event.BACK, now)
                self._watch(src, life, heard + self._patience(life))
            else:
                self._watch(src, life, now + max(SHORTEST, min(self._interval(life), GONE_SECONDS)))
        elif (silent_at := max(heard, life.beat) + self._patience(life)) > now:
            self._watch(src, life, silent_at)
        else:
            self._turn(src, life, State.SILENT, Event.SILENT, now)
            self._watch(src, life, now + min(self._interval(life), GONE_SECONDS))

    def _interval(self, life: Life) -> float:
        return life.interval or ASSUMED

    def _patience(self, life: Life) -> float:
        return self._misses * self._interval(life)

    def _turn(self, src: bytes, life: Life, state: State, event: Event | None, now: float) -> None:
        life.state, life.since = state, now
        self._gone.pop(src, None)
        if state is not State.ALIVE:
            self._gone[src] = None
        if event:
            self._tell(event, src, life)

    def _make_room(self) -> bool:
        if len(self._lives) >= self._limit:
            if not self._gone:
                return False
            longest = next(iter(self._gone))
            del self._gone[longest], self._lives[longest]
        return True

    def _watch(self, src: bytes, life: Life, due: float) -> None:
        life.due = due
        heapq.heappush(self._heap, (due, src))
        if len(self._heap) > 64 + 2 * len(self._lives):  # of what was overtaken
            self._heap = [(life.due, src) for src, life in self._lives.items()]
            heapq.heapify(self._heap)


def _version(text: bytes) -> str:
    """What a daemon says of itself; empty for the status of a program."""
    if not text.startswith(STATUS):
        return ""
    return text.removeprefix(STATUS)[:VERSION_LIMIT].decode("ascii", "backslashreplace")
