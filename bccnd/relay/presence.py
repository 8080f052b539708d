"""Presence: the sources that beat on ``heartbeat/<src>``, and whether they are alive, silent or have left.

    (unknown) --- first beat ---> alive --- nothing heard for ``misses`` intervals ---> silent
                                  ^   |                                                    |
                                  |   '--- ``leaving`` ---> left                           |
                                  '---- beats again ---------'---- anything is heard ------'

Rules
- The interval of a source is learnt from the gaps between its heartbeats: a shorter one at once, a longer one when it
  has come twice, so that a lost heartbeat does not look like a slower pace. Before the first gap it is ASSUMED.
- A message costs nothing here: ``heard`` knows when a source was last heard, and is asked when the source is due. At
  most CHECKS sources are looked at in one call, and no more once EVENTS have come of it; the others stay due.
- The table is bounded, and shared: when it is full, the host with most sources gives one up (``crowd``), the one that
  has been gone longest or, if none is, the one that came last. If the newcomer's own host has most and none of its
  sources is gone, the newcomer is not watched. So no host pushes out what the others announce.
- A source that ``heard`` no longer knows is forgotten without an event.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from math import inf
from typing import Any

from bccnd.relay.crowd import Crowd, address_of, host_of
from bccnd.relay.deadlines import Alarm, Deadlines
from bccnd.relay.options import Heartbeat
from bccnd.wire.sbus import shown

# Seconds between the heartbeats of a source that was heard once: patience costs less than a false alarm.
ASSUMED = 60.0
SHORTEST, LONGEST = 1.0, 3600.0
# Gaps between these shares of the interval are its jitter.
SHORTER, LONGER = 0.75, 1.5
# Sources looked at in one call, some milliseconds of work.
CHECKS = 1000
# Each may have thousands of hearers.
EVENTS = 8
# Seconds at most between two looks at whether a silent source is back.
GONE_SECONDS = 60.0
STATUS = b"bccnd/"
VERSION_LIMIT = 64
_REPAIR = re.compile(rb"bccnd/[!-~]+ repair=([1-9][0-9]{0,6})(?: .*)?", re.DOTALL)


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
    """``interval``: seconds, 0 before it is known; ``beat``: when it last said that it is there; ``address``: from
    where it first did; ``repair``: how many numbers of a source it keeps, if it is a daemon that repairs.
    """

    __slots__ = ("address", "beat", "interval", "longer", "repair", "since", "state", "version")

    def __init__(self, now: float, address: bytes = b"") -> None:
        self.state = State.ALIVE
        self.address = address
        self.since = self.beat = now  # since when it is in its state
        self.interval = 0.0
        self.longer = False  # the last gap was longer than the interval
        self.version = ""
        self.repair = 0

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
    """``heard``: when a source was last heard, None when it is not known. ``events``: what has happened and has not
    been reported yet, for the caller to take.
    """

    def __init__(
        self,
        heard: Callable[[bytes], float | None],
        options: Heartbeat,
        limit: int,
        alarm: Alarm,
    ) -> None:
        self._heard = heard
        self.events: list[tuple[Event, bytes, Life]] = []
        self._lives: dict[bytes, Life] = {}
        self._crowd, self._gone = Crowd(), Crowd()
        self._repairers: dict[bytes, bytes] = {}  # host -> its daemon
        self._due: Deadlines[bytes] = Deadlines(alarm)
        self.configure(options, limit)

    def configure(self, options: Heartbeat, limit: int) -> None:
        """``limit``: of sources; a smaller one holds for newcomers."""
        self._limit, self._misses = limit, options.misses

    def take_events(self) -> list[tuple[Event, bytes, Life]]:
        taken, self.events = self.events, []
        return taken

    def __len__(self) -> int:
        return len(self._lives)

    def __iter__(self) -> Iterator[tuple[bytes, Life]]:
        yield from self._lives.items()

    def get(self, src: bytes) -> Life | None:
        return self._lives.get(src)

    @property
    def repairers(self) -> int:
        """How many daemons repair, about."""
        return len(self._repairers)

    def repairer(self, host: bytes) -> Life | None:
        """The daemon of this host, if it repairs and is alive."""
        life = self._lives.get(self._repairers.get(host, b""))
        return life if life and life.repair and life.state is State.ALIVE else None

    def beat(self, src: bytes, text: bytes, now: float, peer: bytes = b"") -> None:
        """A heartbeat of the source, which ``peer`` sent."""
        leaving = text == b"leaving"
        life = self._lives.get(src)
        if life is None:
            address = address_of(peer)
            if leaving or not self._make_room(src, address):
                return
            life = self._lives[src] = Life(now, address)
            self._crowd.add(src, life.address)
            self._note_status(src, life, text)
            self._due.set(src, now + self._patience(life))
            self.events.append((Event.APPEARED, src, life))
            return
        if leaving:
            if life.state is not State.LEFT:
                self._turn(src, life, State.LEFT, Event.LEFT, now)
                self._due.set(src, now + LONGEST)
            return
        self._note_status(src, life, text)
        if life.state is State.LEFT:
            life.longer = False
        else:
            life.learn(now - life.beat)
        life.beat = now
        if life.state is not State.ALIVE:
            self._turn(src, life, State.ALIVE, Event.BACK, now)
        due = now + self._patience(life)
        if due < (self._due.get(src) or inf):
            self._due.set(src, due)

    def restarted(self, src: bytes, now: float) -> None:
        """The numbers of the source have begun anew."""
        life = self._lives.get(src)
        if life is not None:
            if life.state is not State.ALIVE:
                self._turn(src, life, State.ALIVE, None, now)
                self._due.set(src, now + self._patience(life))
            life.since = life.beat = now
            self.events.append((Event.RESTARTED, src, life))

    def next_deadline(self) -> float:
        return self._due.next

    def on_deadline(self, now: float) -> None:
        """Look at sources that are due, at most CHECKS, or until there are EVENTS; the others stay due."""
        for _ in range(CHECKS):
            first = self._due.pop(now) if len(self.events) < EVENTS else None
            if first is None:
                return
            src = first[0]
            self._check(src, self._lives[src], now)

    def state(self) -> list[tuple[bytes, dict[str, Any]]]:
        """The table in plain values, for a successor of this daemon."""
        return [
            (
                src,
                {name: getattr(life, name) for name in Life.__slots__}
                | {"state": str(life.state), "due": self._due.get(src) or 0.0},
            )
            for src, life in self._lives.items()
        ]

    def restore(self, state: Iterable[tuple[bytes, dict[str, Any]]]) -> None:
        for src, fields in state:
            self._lives[src] = life = Life(0.0)
            for name, value in fields.items():
                if name in Life.__slots__:
                    setattr(life, name, value)
            life.state = State(life.state)
            if life.repair:
                self._repairers[host_of(src)] = src
            self._due.set(src, fields["due"])
        self._count_anew()

    def _note_status(self, src: bytes, life: Life, text: bytes) -> None:
        life.version, life.repair = _version(text), _repair(text)
        if life.repair:
            self._repairers[host_of(src)] = src

    def _check(self, src: bytes, life: Life, now: float) -> None:
        heard = self._heard(src)
        if heard is None:
            self._forget(src)
        elif life.state is State.LEFT:
            self._due.set(src, now + LONGEST)
        elif life.state is State.SILENT:
            if heard > life.since:
                self._turn(src, life, State.ALIVE, Event.BACK, now)
                self._due.set(src, heard + self._patience(life))
            else:
                self._due.set(src, now + max(SHORTEST, min(self._interval(life), GONE_SECONDS)))
        elif (silent_at := max(heard, life.beat) + self._patience(life)) > now:
            self._due.set(src, silent_at)
        else:
            self._turn(src, life, State.SILENT, Event.SILENT, now)
            self._due.set(src, now + min(self._interval(life), GONE_SECONDS))

    def _interval(self, life: Life) -> float:
        return life.interval or ASSUMED

    def _patience(self, life: Life) -> float:
        return self._misses * self._interval(life)

    def _turn(self, src: bytes, life: Life, state: State, event: Event | None, now: float) -> None:
        life.state, life.since = state, now
        if src in self._gone:
            self._gone.remove(src)
        if state is not State.ALIVE:
            self._gone.add(src, life.address)
        if event:
            self.events.append((event, src, life))

    def _make_room(self, src: bytes, address: bytes) -> bool:
        if len(self._lives) >= self._limit:
            giver = self._crowd.giver(src, address)
            members = self._crowd.members(giver)
            alone = len(members) == 1 and not giver.newcomer  # nobody has more than one
            gone = next(iter(self._gone if alone else self._gone.members(giver)), None)
            if gone is None and (alone or giver.newcomer):
                return False
            self._forget(gone or next(reversed(members)))
        return True

    def _forget(self, src: bytes) -> None:
        del self._lives[src]
        if self._repairers.get(host_of(src)) == src:
            del self._repairers[host_of(src)]
        self._crowd.remove(src)
        if src in self._gone:
            self._gone.remove(src)
        self._due.remove(src)

    def _count_anew(self) -> None:
        """Whose the sources are, and which are silent or have left, the longest first."""
        self._crowd, self._gone = Crowd(), Crowd()
        for src, life in self:
            self._crowd.add(src, life.address)
        gone = [(life.since, src) for src, life in self if life.state is not State.ALIVE]
        for _, src in sorted(gone):
            self._gone.add(src, self._lives[src].address)


def _version(text: bytes) -> str:
    """What a daemon says of itself; empty for the status of a program."""
    if not text.startswith(STATUS):
        return ""
    return shown(text.removeprefix(STATUS).partition(b" ")[0][:VERSION_LIMIT]).decode()


def _repair(text: bytes) -> int:
    """How many numbers a daemon says that it keeps of each source."""
    found = _REPAIR.fullmatch(text)
    return int(found[1]) if found else 0
