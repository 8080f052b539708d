"""Whether somebody on this host listens to anything that a watched pattern means, and when that changes.

    a pattern comes or goes --> Listeners --> some time later a round for each user --> ``on_deadline``: what changed

Rules
- A subscription is counted if it and the watched pattern have a channel in common (``pattern.meet``). Patterns of
  different separators have if one of them means a single channel that the other matches, or if they begin alike.
- Neither who watches nor a tap is counted. A watch from elsewhere counts nobody whose pattern is local.
- Watches take a part of the time (STEPS_A_SECOND), and at most TURN_STEPS at once, whoever holds how many patterns of
  what length. Users take turns within it: who has many watches learns later, and nobody else does. Who subscribes
  pays for none.
- A round of a user looks at each of its watches once, ROUND_SECONDS after the last one at the soonest. So what
  changes meanwhile is seen once, and who comes and goes meanwhile may be seen by nobody.
- For a single channel the route says it. For a pattern somebody is remembered for whom it is true, as long as it is;
  while there is nobody, only those are looked at who have gained a pattern since.
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
# What it takes to look at a watch, at a session, and at each of its patterns; of two that begin alike, how many bytes
# are compared in a step.
LOOK_STEPS = 8
SESSION_STEPS = 2
PATTERN_STEPS = 3
BYTES_A_STEP = 4

Key = tuple[bytes, bytes]  # separator and pattern


@dataclass(eq=False, slots=True)
class Watch:
    """``owner``: who wants to know, of whom a session is not counted; ``user``: whose time it takes.

    ``listened``: whether somebody listens; None: nobody has looked yet. ``seen``: the version up to which it holds;
    ``witness``: somebody for whom it is true.
    """

    key: Key
    owner: Any
    user: Hashable
    listened: bool | None = None
    seen: int = -1
    witness: tuple[Session, Key] | None = None
    told: bytes = b""  # what the owner knows, and since when
    told_at: float = float("-inf")

    @property
    def is_channel(self) -> bool:
        separator, pattern = self.key
        return not patterns.has_wildcard(pattern, separator)


@dataclass(slots=True)
class _Round:
    """What is left to look at: watches, of the first of them the sessions, and of the last of these the patterns.
    ``version``: at its begin; ``whole``: it had all watches of the user then.
    """

    version: int
    watches: OrderedDict[Watch, None]
    whole: bool = False
    sessions: list[Session] | None = None
    patterns: list[Key] | None = None


@dataclass(slots=True)
class _User:
    """``seen``: the version up to which all of it was looked at."""

    seen: int
    watches: dict[Watch, None] = field(default_factory=dict)


class Lookout:
    def __init__(self, router: Router, rules: Rules, meter: Meter, alarm: Alarm) -> None:
        self._router, self._meter, self._listeners = router, meter, router.listeners
        self._rules = rules
        self._listeners.on_change = self._changed
        self._users: dict[Hashable, _User] = {}
        self._rounds: dict[Hashable, _Round] = {}  # who has its turn next first
        self._began = float("-inf")  # the last rounds
        self._due: Deadlines[str] = Deadlines(alarm)

    def add(self, watch: Watch, now: float) -> None:
        """Look at it soon."""
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
        """Look at some; those of which ``listened`` has changed."""
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
        """Whether no channel that it means leaves the host."""
        separator, pattern = key
        return any(patterns.covers(each.encode(), pattern, separator) for each in self._rules.options.local)

    def _changed(self) -> None:
        """Somebody listens to more, or to less."""
        if self._users and self._due.get("changed") is None:
            self._due.set("changed", self._began + ROUND_SECONDS)

    def _look(self, round_: _Round, changed: list[Watch]) -> bool:
        """Look at one more watch, or at a part of the sessions; whether anything is left of the round."""
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
        """None: there is more to look at."""
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
        """Whether this pattern, which the session may hold, makes it a listener."""
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
    """Whether two have a channel in common that begin alike."""
    (separator, watched), (others, held) = one, other
    if separator == others:
        return patterns.meet(watched, held, separator)
    if not patterns.has_wildcard(watched, separator):
        return patterns.matches(held, others, watched)
    if not patterns.has_wildcard(held, others):
        return patterns.matches(watched, separator, held)
    return True
