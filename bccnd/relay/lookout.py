"""Finds out whether somebody on this host listens to a channel of a watched pattern, and when that changes.

    a pattern comes or goes --> Listeners --> some time later a round for each user --> ``on_deadline``: what changed

Rules
- A subscription counts if it and the watched pattern have a channel in common (``pattern.meet``). Patterns of
  different separators do if one of them is a single channel that the other matches, or if both begin alike.
- The session that watches does not count, nor does a tap. For a watch from elsewhere, local patterns do not count.
- Watches take a bounded part of the time (STEPS_A_SECOND), at most TURN_STEPS at once, however many patterns there
  are and however long. Users take turns within that: a user with many watches learns changes later, and nobody else
  does. A subscriber pays for none of it.
- A round of a user looks at each of its watches once. Rounds begin ROUND_SECONDS apart or more. So a round sees
  several changes as one, and a listener that comes and goes in between may not be seen at all.
- For a single channel the route has the answer. For a pattern one listener is remembered, the witness, as long as it
  is one. While there is none, only sessions that have gained a pattern since are looked at.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from bccnd.relay import pattern as patterns
from bccnd.relay.deadlines import Alarm, Deadlines
from bccnd.relay.meter import Meter
from bccnd.relay.router import NOTICES, Router
from bccnd.relay.session import Session
from bccnd.relay.state import Rules

# Half a millisecond, and an eighth of the time, in the steps of ``client_input``.
TURN_STEPS = 2048
STEPS_A_SECOND = 1 << 19
ROUND_SECONDS = 0.05
# Steps to look at a watch, at a session, and at each of its patterns; and the bytes compared in a step, of two
# patterns that begin alike.
LOOK_STEPS = 8
SESSION_STEPS = 2
PATTERN_STEPS = 3
BYTES_A_STEP = 4

Key = tuple[bytes, bytes]  # separator and pattern


@dataclass(eq=False, slots=True)
class Watch:
    """``owner``: the session or lease that wants to know; a session does not count itself. ``user``: pays the time.

    ``listened``: whether somebody listens, None before the first look. ``seen``: the version of the listeners for
    which that holds; ``witness``: a session that listens, with its pattern.
    """

    key: Key
    owner: Any
    user: Hashable
    listened: bool | None = None
    seen: int = -1
    witness: tuple[Session, Key] | None = None
    told: bytes = b""  # the state that the owner was told, and when
    told_at: float = float("-inf")

    @property
    def is_channel(self) -> bool:
        separator, pattern = self.key
        return not patterns.has_wildcard(pattern, separator)


@dataclass(slots=True)
class _Round:
    """What is left to look at: watches, the sessions for the first watch, the patterns of the last session.
    ``version``: that of the listeners at the start; ``whole``: whether it began with all watches of the user.
    """

    version: int
    watches: OrderedDict[Watch, None]
    whole: bool = False
    sessions: list[Session] | None = None
    patterns: list[Key] | None = None


@dataclass(slots=True)
class _User:
    """``seen``: the version of the listeners for which all watches were looked at."""

    seen: int
    watches: dict[Watch, None] = field(default_factory=dict)


class Lookout:
    def __init__(self, router: Router, rules: Rules, meter: Meter, alarm: Alarm) -> None:
        self._router, self._meter, self._listeners = router, meter, router.listeners
        self._rules = rules
        self._listeners.on_change = self._changed
        self._users: dict[Hashable, _User] = {}
        self._rounds: dict[Hashable, _Round] = {}  # the next user comes first
        self._began = float("-inf")  # when the last rounds began
        self._due: Deadlines[str] = Deadlines(alarm)

    def add(self, watch: Watch, now: float) -> None:
        """Add a watch, and look at it soon."""
        version = self._listeners.version
        self._users.setdefault(watch.user, _User(version)).watches[watch] = None
        round_ = self._rounds.setdefault(watch.user, _Round(version, OrderedDict()))
        round_.watches[watch] = None
        if self._due.get("turn") is None:
            self._due.set("turn", now)

    def remove(self, watch: Watch) -> None:
        user, round_ = self._users[watch.user], self._rounds.get(watch.user)
        del user.watches[watch]
        if not user.watches:
            del self._users[watch.user]
            self._rounds.pop(watch.user, None)
        elif round_ and watch in round_.watches:
            if watch is next(iter(round_.watches)):
                round_.sessions = round_.patterns = None
            del round_.watches[watch]

    def next_deadline(self) -> float:
        return self._due.next

    def on_deadline(self, now: float) -> list[Watch]:
        """Look at some watches. Returns those whose ``listened`` has changed."""
        changed: list[Watch] = []
        if self._due.next > now:
            return changed
        while (due := self._due.pop(now)) is not None:
            if due[0] == "changed":
                self._began, version = now, self._listeners.version
                for name, user in self._users.items():
                    if user.seen < version and name not in self._rounds:
                        self._rounds[name] = _Round(version, OrderedDict(user.watches), whole=True)
        before = self._meter.steps
        while self._rounds and self._meter.steps < before + TURN_STEPS:
            name = next(iter(self._rounds))
            round_ = self._rounds.pop(name)
            if self._look(round_, changed):
                self._rounds[name] = round_
            else:
                user = self._users[name]
                user.seen = round_.version if round_.whole else user.seen
                if user.seen < self._listeners.version:
                    self._changed()
        if self._rounds:
            self._due.set("turn", now + (self._meter.steps - before) / STEPS_A_SECOND)
        return changed

    def is_confined(self, key: Key) -> bool:
        """Whether no channel of the pattern leaves the host."""
        separator, pattern = key
        return any(patterns.covers(each.encode(), pattern, separator) for each in self._rules.options.local)

    def _changed(self) -> None:
        """Somebody listens to more, or to less."""
        if self._users and self._due.get("changed") is None:
            self._due.set("changed", self._began + ROUND_SECONDS)

    def _look(self, round_: _Round, changed: list[Watch]) -> bool:
        """Look at one more watch, or at a part of the sessions. Whether anything is left of the round."""
        watch = next(iter(round_.watches), None)
        if watch is None:
            return False
        self._meter.steps += LOOK_STEPS
        listened = self._reaches(watch) if watch.is_channel else self._meets(watch, round_)
        if listened is None:
            return True
        watch.seen = round_.version
        if listened is not watch.listened:
            watch.listened = listened
            changed.append(watch)
        del round_.watches[watch]
        round_.sessions = round_.patterns = None
        return bool(round_.watches)

    def _reaches(self, watch: Watch) -> bool:
        route = self._router.route(watch.key[1])
        if not isinstance(watch.owner, Session):
            return route.size > 0 and not route.local
        return route.size > route.serves(watch.owner)

    def _meets(self, watch: Watch, round_: _Round) -> bool | None:
        """Whether somebody listens to the pattern; None if there is more to look at."""
        if round_.sessions is None:
            if watch.witness is not None and self._counts(watch, *watch.witness):
                return True
            since = watch.seen if watch.listened is False else -1
            round_.sessions = self._listeners.since(since)
        sessions, until = round_.sessions, self._meter.steps + TURN_STEPS // 4
        self._meter.steps += len(sessions) // 16
        watch.witness = None
        while sessions:
            session = sessions[-1]
            if round_.patterns is None:
                self._meter.steps += SESSION_STEPS
                round_.patterns = list(session.subscriptions)
            while round_.patterns:
                if self._meter.steps >= until:
                    return None
                key = round_.patterns.pop()
                if self._counts(watch, session, key):
                    watch.witness = session, key
                    return True
            sessions.pop()
            round_.patterns = None
        return False

    def _counts(self, watch: Watch, session: Session, key: Key) -> bool:
        """Whether the session still holds this pattern, and is a listener by it."""
        watched, held = watch.key[1], key[1]
        self._meter.steps += PATTERN_STEPS
        if session is watch.owner or session.tap or key not in session.subscriptions:
            return False
        if patterns.is_directed(held) or held.startswith(NOTICES) or not patterns.may_meet(watched, held):
            return False
        self._meter.steps += (len(watched) + len(held)) // BYTES_A_STEP
        if not _meet(watch.key, key):
            return False
        return isinstance(watch.owner, Session) or not self.is_confined(key)


def _meet(one: Key, other: Key) -> bool:
    """Whether two patterns that begin alike have a channel in common."""
    (separator, watched), (others, held) = one, other
    if separator == others:
        return patterns.meet(watched, held, separator)
    if not patterns.has_wildcard(watched, separator):
        return patterns.matches(held, others, watched)
    if not patterns.has_wildcard(held, others):
        return patterns.matches(watched, separator, held)
    return True
