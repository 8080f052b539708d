"""Bounds the lines that peers can cause in the log: by kind of line and peer, by user, and in all.

Rules
- A line is limited unless its event is one of those that no peer can cause; so is every line that nobody foresaw.
- A line needs room in three allowances: that of its event for its peer (uid, program), that of its user (uid), and
  that of all. So one program that misbehaves takes its own lines only, one user those of that user, and together they
  cannot fill a disk. Lines about no user, such as those that datagrams cause, share one user's allowance.
- The last is for ordinary users: one with subordinate uids is as many users as it likes. Lines about root, about the
  user of the process and about nobody need the first two alone: no crowd of users hides what befalls the host.
- Debug lines are there because somebody asked for them: they count in all only, in a larger allowance of their own.
- What was left out is counted, and reported every REPORT_SECONDS by event and user: ``more like this``. ROWS of those
  lines come at once, and the last stands for all others.
- The table of allowances is bounded: those that are full again are forgotten whenever there are KEYS_LIMIT. As OF_ALL
  bounds how fast lines take from them, a few hundred are not full at most.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable
from typing import Any, NamedTuple

import structlog
from structlog.typing import EventDict, WrappedLogger


class Rate(NamedTuple):
    """So many lines at once, and one more every so many seconds."""

    burst: int
    seconds: float


# The first lines say what happens, and one in a while that it still does.
OF_ONE_KIND = Rate(5, 60.0)

# Some 9,000 lines a day, whatever programs the user starts.
OF_ONE_USER = Rate(20, 10.0)

# Some 86,000 lines a day, about 40 MB, if every user is hostile.
OF_ALL = Rate(100, 1.0)

# A traceable program at work; a disk lasts until somebody remembers to switch debugging off.
OF_DEBUG = Rate(1000, 0.01)

REPORT_SECONDS = 30.0
ROWS = 10
KEYS_LIMIT = 1024


class _Allowance:
    """Room for lines, which comes back with time."""

    __slots__ = ("_at", "_rate", "_room")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._room = float(rate.burst)
        self._at = now

    def has_room(self, now: float) -> bool:
        self._room = min(self._rate.burst, self._room + (now - self._at) / self._rate.seconds)
        self._at = now
        return self._room >= 1.0

    def take(self) -> None:
        self._room -= 1.0

    def is_full(self, now: float) -> bool:
        self.has_room(now)
        return self._room >= self._rate.burst


class LogLimit:
    """A processor for structlog, the first of a chain. ``unlimited``: the events that no peer can cause."""

    def __init__(self, unlimited: Collection[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._unlimited = unlimited
        self._clock = clock
        self._owners = {None, 0, os.geteuid()}
        now = clock()
        self._all, self._debug = _Allowance(OF_ALL, now), _Allowance(OF_DEBUG, now)
        self._allowances: dict[Hashable, _Allowance] = {}
        self._left_out: Counter[tuple[str, int | None]] = Counter()
        self._reported_at = now

    def __call__(self, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        """Raises ``structlog.DropEvent`` for a line that has no room."""
        what = event["event"]
        if what in self._unlimited:
            return event
        uid = event.get("uid")
        if not self._take(what, uid, event.get("program"), debug=method == "debug"):
            self._left_out[what, uid] += 1
            if len(self._left_out) > KEYS_LIMIT:
                self._left_out = Counter({("", None): self._left_out.total()})
            raise structlog.DropEvent
        return event

    def _take(self, what: str, uid: int | None, program: str | None, *, debug: bool) -> bool:
        now = self._clock()
        needed = [self._debug]
        if not debug:
            kind = self._allowance((what, uid, program), OF_ONE_KIND, now)
            needed = [kind, self._allowance(uid, OF_ONE_USER, now)]
            if uid not in self._owners:
                needed.append(self._all)
        if not all(allowance.has_room(now) for allowance in needed):
            return False
        for allowance in needed:
            allowance.take()
        return True

    def _allowance(self, key: Hashable, rate: Rate, now: float) -> _Allowance:
        allowance = self._allowances.get(key)
        if allowance is None:
            if len(self._allowances) >= KEYS_LIMIT:
                self._allowances = {
                    key: each for key, each in self._allowances.items() if not each.is_full(now)
                }
            allowance = self._allowances[key] = _Allowance(rate, now)
        return allowance

    def left_out(self, *, ending: bool = False) -> list[dict[str, Any]]:
        """The fields of the lines ``more like this``, when it is time or the process is ``ending``."""
        now = self._clock()
        if not self._left_out or (now - self._reported_at < REPORT_SECONDS and not ending):
            return []
        self._reported_at = now
        counted, self._left_out = self._left_out.most_common(), Counter()
        rows = [
            {"of": what or "others", "more": more} | ({} if uid is None else {"uid": uid})
            for (what, uid), more in counted[: ROWS - 1]
        ]
        if rest := sum([more for _, more in counted[ROWS - 1 :]]):
            rows.append({"of": "others", "more": rest})
        return rows
