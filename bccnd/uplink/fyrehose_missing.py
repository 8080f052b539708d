"""Keeps track of missing numbers of a fyrehose backbone, and of when to ask for them.

    left out --> WAITING --> READY --> ASKED --> it came
                               ^         |'--> GONE: given up
                               '---------'
    left out, thousands in a row --> both ends and samples are asked for, what is between them is RESTING

Rules
- A number that was left out may only have been overtaken, so the first request waits a little. Further requests
  follow after longer and random pauses, since the backbone chooses another client each time. The number is given up
  after ``tries`` or ``patience``.
- The lowest numbers are asked for first. A window bounds how many are under way: it shrinks when answers fail to
  come, and grows when they come. The rate of requests is bounded, too. So a client that was cut off for long catches
  up at the pace of the clients that answer.
- A long gap is doubtful. Either the backbone crashed, and a million numbers never existed; or this client was cut
  off, and others keep everything, or the younger part. So the client asks for the ends of the gap and for samples
  across it. Where something comes, it asks for what is next to it, and so on: numbers that existed follow each other.
  Between two samples that came, it asks for everything. When the samples have been judged, and nothing more comes
  beside a resting part, that part is passed over. An island between two crashes is found if it begins where a crash
  of our backbone leads, or is longer than the distance between samples.
- Doubtful numbers are asked for at a steady pace, and given up within two seconds on a fast network: a link that lost
  a datagram in a crash waits for that. A request that may not have reached the backbone does not count.
- Everything is bounded: the number of parts, and so the time of a call.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from operator import attrgetter

from bccnd.relay.allowance import Allowance
from bccnd.relay.deadlines import Alarm, Deadlines
from bccnd.uplink.fyrehose_parts import (
    ASKED,
    GONE,
    RANGE,
    READY,
    RESTING,
    WAITING,
    Part,
    Survey,
    doubtful,
    samples_of,
)

# Requests a second and at once. A backbone takes 1000 a second from an address, which two uplinks may share.
REQUESTS, REQUESTS_AT_ONCE = 400, 64
# Ranges that one call takes up, before the packets have their turn.
RANGES_AT_ONCE = 8
# Numbers that have come, between two missing ones, and are asked for with them: they are sent in vain, but save a
# request. The nearer the allowance is to its end, the more of them are allowed.
FEW_BETWEEN, MANY_BETWEEN = 3, 16
# Seconds before a number is asked for: at least, and the random part on top.
SOONEST, SPREAD = 0.01, 0.01
# Seconds before it is asked for again: at least, and at most.
AGAIN_LEAST, AGAIN_MOST = 0.05, 0.4
# Seconds that an answer may take while others come: answers wait in line at the client that keeps them.
IN_LINE = 1.0
# So many missing numbers mean a catch-up. With so many numbers ahead of ``complete``, new ones go to the archive
# only, since all of them may wait elsewhere. With so many, only the lowest are still asked for.
CATCHING_UP, AHEAD, AHEAD_MOST = 1024, 4096, 65_536
# Numbers under way: at the start, at least and at most.
WINDOW, WINDOW_LEAST, WINDOW_MOST = 512, 256, 2048
# Parts of missing numbers, some 200 bytes each. Beyond that the lowest are given up.
PARTS_LIMIT = 4096
# A gap of more numbers is doubtful.
LONG, END = 2048, 256
# Requests for a doubtful number, and for a sample, which is asked for at half the pace: so both take equally long. If
# the backbone forwards one request in four to a client that keeps the number, one run in a thousand is lost.
DOUBTS, SAMPLE_DOUBTS = 24, 12

_first_of = attrgetter("first")


class Missing:
    """``next``: the number after the highest that is known. Numbers since the start: ``asked`` for, ``repaired``,
    ``lost``, and ``skipped``, those of long gaps that may never have existed. ``pace``: seconds of two round trips;
    ``alive``: whether the backbone has answered lately. ``chance``: a random number from 0 to 1.
    """

    def __init__(self, first: int, chance: Callable[[], float], tries: int, patience: float) -> None:
        self.next = first
        self.pace = AGAIN_LEAST
        self.alive = True
        self.asked = self.repaired = self.lost = self.skipped = 0
        self._chance, self._tries, self._patience = chance, tries, patience
        self._parts: list[Part] = []
        self._total = self._gone = self._under_way = 0
        self._window = float(WINDOW)
        self._shrunk = self._progress = -inf
        self._due: Deadlines[Part] = Deadlines(Alarm())
        self._ready: list[tuple[int, int, Part]] = []
        self._order = count()
        self._allowance = Allowance(REQUESTS, REQUESTS_AT_ONCE)
        self._again = inf  # when to go on with what is ready

    @property
    def complete(self) -> int:
        """The number below which nothing is still to come."""
        return self._parts[0].first if self._parts else self.next

    @property
    def behind(self) -> int:
        """How many numbers may still come."""
        return self._total - self._gone

    @property
    def ahead(self) -> int:
        """How many numbers above ``complete`` have come."""
        return self.next - self.complete - self._total

    def next_deadline(self) -> float:
        return min(self._due.next, self._again)

    def __contains__(self, seq: int) -> bool:
        return self._find(seq) is not None

    @property
    def catches_up(self) -> bool:
        """Whether so much is missing that new messages would only fill memory."""
        return self.behind > CATCHING_UP and self.ahead > AHEAD

    def is_asked_for(self, seq: int) -> bool:
        part = self._find(seq)
        return part is not None and part.asks > 0

    def take(self, seq: int, now: float) -> bool:
        """A number has come. Returns whether it was new."""
        if seq >= self.next:
            self._open(self.next, seq, now)
            self.next = seq + 1
            return True
        part = self._find(seq)
        if part is None:
            return False
        if part.asks:
            self.repaired += 1
            self._progress = now
            self._window = min(float(WINDOW_MOST), self._window + 0.25)
        self._arrived(part, seq)
        self._trim()
        if self._ready:  # there is room for more
            self._again = 0.0
        return True

    def defer(self, seq: int, now: float) -> None:
        """A number has come, and was put into the archive only: it is passed on in its turn."""
        if seq < self.next:
            return
        self._open(self.next, seq, now)
        last = self._parts[-1] if self._parts else None
        if last and last.after == seq and last.state == READY and not last.looked and last.survey is None:
            last.after += 1
            self._total += 1
        else:
            self._insert(Part(seq, seq + 1, READY))
        self.next = seq + 1
        self._bound()

    def ask(self, now: float, own: Callable[[int, int], Iterable[int]]) -> list[tuple[int, int]]:
        """The ranges, both ends included, to send a REQUEST for. ``own`` passes on what the own archive has from one
        number to another, and returns which that is.
        """
        self._wake(now)
        ranges: list[tuple[int, int]] = []
        self._again = self._ask_all(ranges, now, own)
        return ranges

    def restart(self) -> None:
        """The backbone was cut off: ask again for everything that was asked for since."""
        for part in self._parts:
            if part.state == ASKED:
                self._move(part, READY)
            if part.state in (READY, WAITING):
                part.asks = 0
        self._window = float(WINDOW)

    # -- what is asked for

    def _ask_all(
        self, ranges: list[tuple[int, int]], now: float, own: Callable[[int, int], Iterable[int]]
    ) -> float:
        """Ask for what is ready. Returns when to go on; infinite if that depends on what comes, or on a part."""
        for _ in range(RANGES_AT_ONCE):
            part = self._lowest()
            if part is None:
                return inf
            if not part.looked and self.ahead >= AHEAD_MOST and part.first != self.complete:
                return inf
            if not part.looked:
                self._look(part, own, now)
            elif self._under_way >= self._window:
                return inf
            elif not self._allowance.take(now):
                return self._allowance.when(now, 1)
            else:
                ranges.append(self._ask(part, now))
        return now

    def _lowest(self) -> Part | None:
        while self._ready:
            part = self._ready[0][2]
            if part.state == READY and part.size:
                return part
            heappop(self._ready)
        return None

    def _look(self, part: Part, own: Callable[[int, int], Iterable[int]], now: float) -> None:
        parts = self._closely(part, FEW_BETWEEN, now)
        for each in parts:
            each.looked = True
            if each.state == WAITING:
                self._move(each, READY)
        for seq in own(part.first, parts[-1].after - 1):
            if (found := self._find(seq)) is not None:
                self._arrived(found, seq)
        self._trim()

    def _ask(self, part: Part, now: float) -> tuple[int, int]:
        much = self._allowance.when(now, REQUESTS_AT_ONCE // 2) > now
        parts = self._closely(part, MANY_BETWEEN if much else FEW_BETWEEN, now)
        for each in parts:
            self._count_as_asked(each, now)
        return part.first, parts[-1].after - 1

    def _closely(self, part: Part, hole: int, now: float) -> list[Part]:
        """The numbers to ask for with this part, and with those close behind it: RANGE at most."""
        if part.size > RANGE:
            self._insert(part.split(part.first + RANGE), moved=True)
        parts = [part]
        for each in self._parts[(at := self._index(part.first) + 1) : at + RANGE]:
            too_far = each.first - parts[-1].after > hole or each.after - part.first > RANGE
            ready = each.state == READY or (each.state == WAITING and each.since <= now)
            if too_far or not ready or each.looked != part.looked:
                break
            parts.append(each)
        return parts

    def _count_as_asked(self, part: Part, now: float) -> None:
        if not part.asks:
            part.since = now
            self.asked += part.size
        wait = max(AGAIN_LEAST, self.pace)
        if not part.doubtful:
            wait = min(AGAIN_MOST, wait * 1.5 ** min(part.asks, 8))
        elif part.survey:
            wait *= DOUBTS / SAMPLE_DOUBTS
        part.asks += 1
        part.asked_at = now
        part.due = now + wait * (0.75 + self._chance() / 2)
        self._move(part, ASKED)

    def _wake(self, now: float) -> None:
        while (found := self._due.pop(now)) is not None:
            part = found[0]
            if part.state == WAITING:
                self._move(part, READY)
            elif self._is_in_line(part, now):
                self._due.set(part, part.due)
            else:
                self._unanswered(part, now)

    def _is_in_line(self, part: Part, now: float) -> bool:
        """Whether answers to many requests are still under way."""
        if self._under_way < RANGE or now - self._progress > self.pace or now - part.asked_at >= IN_LINE:
            return False
        part.due = now + self.pace
        return True

    def _unanswered(self, part: Part, now: float) -> None:
        if not part.doubtful and now - self._shrunk >= self.pace:
            self._window, self._shrunk = max(float(WINDOW_LEAST), self._window / 2), now
        if part.doubtful and not self.alive:
            part.asks -= 1
        if part.asks < self._most(part) and (part.doubtful or now - part.since < self._patience):
            self._move(part, READY)
        elif survey := part.survey:
            self._move(part, RESTING)
            if survey.came[part.index] is None:
                survey.came[part.index] = False
                self._conclude(survey)
        else:
            self._give_up(part)
        self._trim()

    def _most(self, part: Part) -> int:
        """How often the part is asked for."""
        if not part.doubtful:
            return self._tries
        return min(self._tries, SAMPLE_DOUBTS if part.survey else DOUBTS)

    # -- surveys

    def _survey(self, first: int, after: int, end: int) -> None:
        """Ask for samples of these numbers. ``end``: that of the gap."""
        samples = samples_of(first, after, end)
        survey = Survey(first, [low + size for low, size in samples], after)
        at = first
        for index, (low, size) in enumerate([*samples, (after, 0)]):
            if at < low:
                self._insert(doubtful(at, low, survey, -1))
            if size:
                sample = doubtful(low, low + size, survey, index)
                self._insert(sample)
                self._move(sample, READY)
            at = low + size

    def _conclude(self, survey: Survey) -> None:
        """Judge the resting parts, once all samples are judged."""
        if None in survey.came:
            return
        judged = [
            part
            for part in self._parts[self._index(survey.first) : self._index(survey.after - 1) + 1]
            if part.survey is survey
        ]
        for part in judged:
            at = bisect_right(survey.ends, part.first)
            between = part.index < 0 and 0 < at < len(survey.ends)
            part.survey, part.index = None, -1
            if part.state == RESTING and between and survey.came[at - 1] and survey.came[at]:
                part.asks = 0
                self._move(part, READY)
        for part in judged:
            if part.state == RESTING:
                self._pass_over(self._index(part.first))
        self._trim()

    def _look_beyond(self, at: int) -> None:
        """Something of this doubtful part has come: ask for the resting parts beside it."""
        part = self._parts[at]
        above = self._parts[at + 1] if at + 1 < len(self._parts) else None
        if above is not None and above.first == part.after and above.state == RESTING:
            if above.size > RANGE:
                self._insert(above.split(above.first + RANGE), moved=True)
            self._wake_up(above)
        below = self._parts[at - 1] if at else None
        if below is not None and below.after == part.first and below.state == RESTING:
            if below.size > RANGE:
                upper = below.split(below.after - RANGE)
                self._insert(upper, moved=True)
                below = upper
            self._wake_up(below)

    def _wake_up(self, part: Part) -> None:
        part.survey, part.index, part.asks = None, -1, 0
        self._move(part, READY)

    def _pass_over(self, at: int) -> None:
        """Give up this resting part, and those beside it, unless something may still come there."""
        low = high = at
        while low and self._rests_beside(low - 1, low):
            low -= 1
        while high + 1 < len(self._parts) and self._rests_beside(high + 1, high):
            high += 1
        if not self._may_come_beside(low - 1, low) and not self._may_come_beside(high + 1, high):
            for part in self._parts[low : high + 1]:
                self._count_as_gone(part)

    def _rests_beside(self, other: int, at: int) -> bool:
        part = self._parts[other]
        return part.state == RESTING and part.survey is None and self._touch(other, at)

    def _may_come_beside(self, other: int, at: int) -> bool:
        return 0 <= other < len(self._parts) and self._parts[other].state != GONE and self._touch(other, at)

    def _touch(self, one: int, other: int) -> bool:
        return self._parts[min(one, other)].after == self._parts[max(one, other)].first

    # -- the parts

    def _open(self, first: int, after: int, now: float) -> None:
        """Open a part for numbers that were left out."""
        if first >= after:
            return
        ends = [(first, after)]
        if long := after - first > LONG:
            ends = [(first, first + END), (after - END, after)]
            self._survey(first + END, after - END, after)
        for low, high in ends:
            part = Part(low, high, WAITING)
            part.doubtful = long
            part.since = now + SOONEST
            part.due = part.since + SPREAD * self._chance()
            self._insert(part)
        self._bound()

    def _index(self, seq: int) -> int:
        """The index of the first part that ends above ``seq``."""
        at = bisect_right(self._parts, seq, key=_first_of)
        return at - 1 if at and self._parts[at - 1].after > seq else at

    def _find(self, seq: int) -> Part | None:
        at = bisect_right(self._parts, seq, key=_first_of) - 1
        return self._parts[at] if at >= 0 and seq < self._parts[at].after else None

    def _insert(self, part: Part, *, moved: bool = False) -> None:
        """Insert a part. ``moved``: its numbers belonged to another part, and are already counted."""
        self._parts.insert(bisect_right(self._parts, part.first, key=_first_of), part)
        if not moved:
            self._total += part.size
        self._schedule(part)

    def _schedule(self, part: Part) -> None:
        if part.state in (WAITING, ASKED):
            self._due.set(part, part.due)
        elif part.state == READY:
            if len(self._ready) > 2 * PARTS_LIMIT:  # mostly what is not ready any more
                self._ready = [each for each in self._ready if each[2].state == READY and each[2] is not part]
                heapify(self._ready)
            heappush(self._ready, (part.first, next(self._order), part))
            self._again = 0.0

    def _move(self, part: Part, state: int) -> None:
        if part.state in (WAITING, ASKED):
            self._due.remove(part)
        self._gone += part.size * ((state == GONE) - (part.state == GONE))
        self._under_way -= part.expected
        part.state = state
        self._under_way += part.expected
        self._schedule(part)

    def _arrived(self, part: Part, seq: int) -> None:
        """Take a number that has come out of its part."""
        if part.doubtful:
            self._look_beyond(self._index(seq))
        at = self._index(seq)
        self._total -= 1
        self._gone -= part.state == GONE
        self._under_way -= part.expected > 0
        if seq == part.first:
            part.first += 1
        else:
            if seq + 1 < part.after:
                self._insert(part.split(seq + 1), moved=True)
            part.after = seq
        if not part.size:
            self._due.remove(part)
            del self._parts[at]
        if part.survey is not None and part.index >= 0:
            part.survey.came[part.index] = True
            self._conclude(part.survey)

    def _give_up(self, part: Part) -> None:
        self._count_as_gone(part)
        at = self._index(part.first)
        for beside in (at - 1, at + 1):
            if part.doubtful and 0 <= beside < len(self._parts) and self._rests_beside(beside, at):
                self._pass_over(beside)

    def _count_as_gone(self, part: Part) -> None:
        if part.doubtful:
            self.skipped += part.size
        else:
            self.lost += part.size
        self._move(part, GONE)

    def _trim(self) -> None:
        """Forget the parts that were given up, up to the first number that may still come."""
        at = 0
        while at < len(self._parts) and self._parts[at].state == GONE:
            self._total -= self._parts[at].size
            self._gone -= self._parts[at].size
            at += 1
        del self._parts[:at]

    def _bound(self) -> None:
        over = len(self._parts) - PARTS_LIMIT
        for part in self._parts[: max(0, over)]:
            if part.state == GONE:
                continue
            survey = part.survey
            self._give_up(part)
            if survey is not None and part.index >= 0 and survey.came[part.index] is None:
                survey.came[part.index] = False
                self._conclude(survey)
        self._trim()
