"""Which numbers of a fyrehose backbone are missing, and when to ask for them.

    left out --> WAITING --> READY --> ASKED --> it came
                               ^         |'--> GONE: given up
                               '---------'
    left out, thousands in a row --> a survey: samples are asked for, what is between them is RESTING

Rules
- A number that was left out may only have been overtaken, so it is asked for after a while. It is asked for again,
  each time after a longer and random while, as the backbone chooses another client each time; and is given up after
  ``tries`` or ``patience``.
- The lowest are asked for first. How many are under way is bounded by a window, which shrinks when answers do not
  come, and grows when they do; how often is asked is bounded, too. So a client that was cut off for long catches up
  at the pace of those who answer.
- A long gap is surveyed first. After a crash of the backbone a million numbers may follow that never existed; or this
  client was cut off, and others keep everything, or the younger part. Samples across the gap tell: between two that
  nobody keeps, nothing is asked for; between two that come, everything is; between one and the other samples are
  taken again, closer together. So a crash costs some hundred small requests and few seconds, in which what comes goes
  on. An island between two crashes that is shorter than the distance of samples is passed over.
- Next to what comes of a long gap, more is asked for at once: mostly it is there, too, and the survey takes seconds.
- Everything is bounded: the parts that it is cut into, and thereby the time of a call.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count, pairwise
from math import inf
from operator import attrgetter

from bccnd.relay.allowance import Allowance
from bccnd.relay.deadlines import Alarm, Deadlines

# Numbers of one request: what a backbone passes on of it (``bccnd/backbone/README.md``, "Settings").
RANGE = 256
# Requests a second and at once. A backbone takes 1000 a second of an address, which two uplinks may share.
REQUESTS, REQUESTS_AT_ONCE = 400, 64
# Ranges that one call takes up, before the packets have their turn.
RANGES_AT_ONCE = 8
# Numbers that are there between two that are missing, and asked for with them: sent in vain, but a request is saved.
# The more, the nearer the allowance is to its end.
FEW_BETWEEN, MANY_BETWEEN = 3, 16
# Seconds before a number is asked for, at least, and the further ones that are random.
SOONEST, SPREAD = 0.01, 0.01
# Seconds before it is asked for again: at least, and at most; of a sample at most.
AGAIN_LEAST, AGAIN_MOST, AGAIN_SAMPLE = 0.05, 0.4, 0.2
# Seconds that an answer may take while others come, which wait in line where they are kept.
IN_LINE = 1.0
# With so many missing, a client catches up; so many may be ahead of what is complete before what is new goes to the
# archive only, as all of it may wait elsewhere; and so many before no more is asked for, but for the lowest.
CATCHING_UP, AHEAD, AHEAD_MOST = 1024, 4096, 65_536
# Numbers under way: at the start, at least, at most. What was asked for more often does not count any more: mostly
# nobody keeps it, and others would wait for nothing.
WINDOW, WINDOW_LEAST, WINDOW_MOST = 512, 256, 2048
HOPE = 2
# Parts that missing numbers are cut into, some 200 bytes each. Of more the lowest are given up.
PARTS_LIMIT = 4096
# A gap of more numbers is surveyed, but for its ends.
LONG, END = 2048, 256
# Samples of a survey: at least, and at most, in between one for so many numbers, as a crash skips at least twice as
# many (``bccnd/backbone/numbers.py``); and the numbers of a sample.
SAMPLES_LEAST, SAMPLES_MOST, SAMPLE_DISTANCE, SAMPLE = 16, 64, 1 << 18, 16
# What rests is asked for once a number comes that is so near to it.
NEAR = 128

WAITING, READY, ASKED, RESTING, GONE = range(5)


class _Survey:
    """``samples``: the first number of each; ``came``: whether anything of it did, None while that is open."""

    __slots__ = ("came", "end", "samples")

    def __init__(self, samples: list[int], end: int) -> None:
        self.samples, self.end = samples, end
        self.came: list[bool | None] = [None] * len(samples)


class _Part:
    """Numbers from ``first`` up to ``after``. ``asks``: how often they were asked for; ``asked_at``, ``since``: the
    last time and the first, before that the time from which on they may be; ``due``: when something is to be done.
    ``looked``: whether the own archive had its turn. ``survey``: that it belongs to, as the sample of this ``index``,
    or -1. ``doubtful``: of a long gap, and may never have existed.
    """

    __slots__ = (
        "after", "asked_at", "asks", "doubtful", "due", "first", "index", "looked", "since", "state", "survey",
    )  # fmt: skip

    def __init__(self, first: int, after: int, state: int) -> None:
        self.first, self.after, self.state = first, after, state
        self.asks, self.index = 0, -1
        self.due = self.since = self.asked_at = 0.0
        self.looked = self.doubtful = False
        self.survey: _Survey | None = None

    @property
    def size(self) -> int:
        return self.after - self.first

    @property
    def expected(self) -> int:
        """Numbers that are under way, as far as one can hope."""
        return self.size if self.state == ASKED and self.asks <= HOPE else 0

    def split(self, at: int) -> "_Part":
        """Keep what is below ``at``. Returns the rest, which begins at ``at`` or above."""
        rest = _Part(at, self.after, self.state)
        rest.asks, rest.due, rest.since, rest.asked_at = self.asks, self.due, self.since, self.asked_at
        rest.looked, rest.survey, rest.index = self.looked, self.survey, self.index
        rest.doubtful = self.doubtful
        self.after = at
        return rest


_first_of = attrgetter("first")


class Missing:
    """``next``: the number behind the highest that is known. Numbers since the start: ``asked`` for, ``repaired``,
    ``lost``, and ``skipped``, those of long gaps, which may never have existed. ``pace``: seconds of two round trips.
    ``chance``: a random number from 0 to 1.
    """

    def __init__(self, first: int, chance: Callable[[], float], tries: int, patience: float) -> None:
        self.next = first
        self.pace = AGAIN_LEAST
        self.asked = self.repaired = self.lost = self.skipped = 0
        self._chance, self._tries, self._patience = chance, tries, patience
        self._parts: list[_Part] = []
        self._total = self._gone = self._under_way = 0
        self._window = float(WINDOW)
        self._shrunk = self._progress = -inf
        self._due: Deadlines[_Part] = Deadlines(Alarm())
        self._ready: list[tuple[int, int, _Part]] = []
        self._order = count()
        self._allowance = Allowance(REQUESTS, REQUESTS_AT_ONCE)
        self._again = inf  # when to go on with what is ready

    @property
    def complete(self) -> int:
        """Nothing below is still to come."""
        return self._parts[0].first if self._parts else self.next

    @property
    def behind(self) -> int:
        """Numbers that may still come."""
        return self._total - self._gone

    @property
    def ahead(self) -> int:
        """Numbers above ``complete`` that came."""
        return self.next - self.complete - self._total

    def next_deadline(self) -> float:
        return min(self._due.next, self._again)

    def __contains__(self, seq: int) -> bool:
        return self._find(seq) is not None

    @property
    def catches_up(self) -> bool:
        """Whether so much is missing that what comes now only fills memory."""
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
        if part.doubtful:
            self._reach(seq)
        self._trim()
        if self._ready:  # there is room for more
            self._again = 0.0
        return True

    def defer(self, seq: int, now: float) -> None:
        """A number has come and was put into the archive only: it is wanted when its turn comes."""
        if seq < self.next:
            return
        self._open(self.next, seq, now)
        last = self._parts[-1] if self._parts else None
        if last and last.after == seq and last.state == READY and not last.looked and last.survey is None:
            last.after += 1
            self._total += 1
        else:
            self._insert(_Part(seq, seq + 1, READY))
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
        """The backbone was cut off: what was asked for since is asked for anew."""
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
        """When to go on: infinite if that is up to what comes, or to the time of a part."""
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

    def _lowest(self) -> _Part | None:
        while self._ready:
            part = self._ready[0][2]
            if part.state == READY and part.size:
                return part
            heappop(self._ready)
        return None

    def _look(self, part: _Part, own: Callable[[int, int], Iterable[int]], now: float) -> None:
        parts = self._closely(part, FEW_BETWEEN, now)
        for each in parts:
            each.looked = True
            if each.state == WAITING:
                self._move(each, READY)
        for seq in own(part.first, parts[-1].after - 1):
            if (found := self._find(seq)) is not None:
                self._arrived(found, seq)
        self._trim()

    def _ask(self, part: _Part, now: float) -> tuple[int, int]:
        much = self._allowance.when(now, REQUESTS_AT_ONCE // 2) > now
        parts = self._closely(part, MANY_BETWEEN if much else FEW_BETWEEN, now)
        for each in parts:
            self._count_as_asked(each, now)
        return part.first, parts[-1].after - 1

    def _closely(self, part: _Part, hole: int, now: float) -> list[_Part]:
        """What can be done with this part, of it and of those that follow closely: RANGE numbers at most."""
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

    def _count_as_asked(self, part: _Part, now: float) -> None:
        if not part.asks:
            part.since = now
            self.asked += part.size
        most = AGAIN_SAMPLE if part.survey else AGAIN_MOST
        wait = min(most, max(AGAIN_LEAST, self.pace) * 1.5 ** min(part.asks, 8))
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

    def _is_in_line(self, part: _Part, now: float) -> bool:
        """Whether the answer to much that was asked for is under way."""
        if self._under_way < RANGE or now - self._progress > self.pace or now - part.asked_at >= IN_LINE:
            return False
        part.due = now + self.pace
        return True

    def _unanswered(self, part: _Part, now: float) -> None:
        if now - self._shrunk >= self.pace:
            self._window, self._shrunk = max(float(WINDOW_LEAST), self._window / 2), now
        if survey := part.survey:
            if part.asks < self._tries:
                self._move(part, READY)
                return
            self._move(part, RESTING)
            if survey.came[part.index] is None:
                survey.came[part.index] = False
                self._conclude(survey)
        elif part.asks < self._tries and now - part.since < self._patience:
            self._move(part, READY)
        else:
            self._give_up(part)
        self._trim()

    # -- surveys

    def _survey(self, part: _Part) -> None:
        """Take samples of a long part that is one whole."""
        number = min(SAMPLES_MOST, max(SAMPLES_LEAST, part.size // SAMPLE_DISTANCE))
        step = part.size // number
        firsts = [part.first + step * index for index in range(number)] + [part.after - SAMPLE]
        survey = _Survey(firsts, part.after)
        self._move(part, RESTING)
        part.survey, part.index, part.asks, part.looked = survey, -1, 0, False
        at = self._index(part.first)
        cut = []
        for index, (first, following) in enumerate(pairwise([*firsts, part.after])):
            sample = _Part(first, first + SAMPLE, RESTING)
            rest = _Part(first + SAMPLE, following, RESTING)
            sample.survey = rest.survey = survey
            sample.doubtful = rest.doubtful = True
            sample.index = index
            cut += [sample, rest] if rest.size else [sample]
        self._parts[at : at + 1] = cut
        part.after = part.first  # it is no more
        for each in cut:
            if each.index >= 0:
                self._move(each, READY)
        self._bound()

    def _conclude(self, survey: _Survey) -> None:
        """Judge what is between the samples, once all of them are."""
        if None in survey.came:
            return
        for at, (first, after) in enumerate(pairwise([*survey.samples[:-1], survey.end])):
            came, next_came = survey.came[at], survey.came[at + 1]
            for part in self._parts[self._index(first) : self._index(after)]:
                if part.survey is not survey:
                    continue
                part.survey, part.index = None, -1
                if part.state == GONE:
                    continue
                if not came and not next_came:
                    self._give_up(part)
                elif part.state != RESTING:
                    continue
                elif (came and next_came) or part.size <= LONG:
                    part.asks = 0
                    self._move(part, READY)
                else:
                    self._survey(part)
        self._trim()

    def _reach(self, seq: int) -> None:
        """Ask for what rests near a number that came, without waiting for the survey: RANGE numbers on each side."""
        for near in (seq - NEAR, seq + NEAR):
            part = self._find(near)
            if part is None or part.state != RESTING or part.index >= 0:
                continue
            if part.size > RANGE:
                rest = part.split(part.after - RANGE if near < seq else part.first + RANGE)
                self._insert(rest, moved=True)
                part = rest if near < seq else part
            part.survey = None
            self._move(part, READY)
        self._bound()

    # -- the parts

    def _open(self, first: int, after: int, now: float) -> None:
        """These have been left out."""
        if first >= after:
            return
        ends = [(first, after)]
        long = after - first > LONG
        if long:
            ends = [(first, first + END), (after - END, after)]
            middle = _Part(first + END, after - END, RESTING)
        for low, high in ends:
            part = _Part(low, high, WAITING)
            part.doubtful = long
            part.since = now + SOONEST
            part.due = part.since + SPREAD * self._chance()
            self._insert(part)
        if long:
            self._insert(middle)
            self._survey(middle)
        self._bound()

    def _index(self, seq: int) -> int:
        """Of the first part that ends above ``seq``."""
        at = bisect_right(self._parts, seq, key=_first_of)
        return at - 1 if at and self._parts[at - 1].after > seq else at

    def _find(self, seq: int) -> _Part | None:
        at = bisect_right(self._parts, seq, key=_first_of) - 1
        return self._parts[at] if at >= 0 and seq < self._parts[at].after else None

    def _insert(self, part: _Part, *, moved: bool = False) -> None:
        """``moved``: its numbers belonged to another part, and are counted."""
        self._parts.insert(bisect_right(self._parts, part.first, key=_first_of), part)
        if not moved:
            self._total += part.size
        self._schedule(part)

    def _schedule(self, part: _Part) -> None:
        if part.state in (WAITING, ASKED):
            self._due.set(part, part.due)
        elif part.state == READY:
            if len(self._ready) > 2 * PARTS_LIMIT:  # mostly what is not ready any more
                self._ready = [each for each in self._ready if each[2].state == READY and each[2] is not part]
                heapify(self._ready)
            heappush(self._ready, (part.first, next(self._order), part))
            self._again = 0.0

    def _move(self, part: _Part, state: int) -> None:
        if part.state in (WAITING, ASKED):
            self._due.remove(part)
        self._gone += part.size * ((state == GONE) - (part.state == GONE))
        self._under_way -= part.expected
        part.state = state
        self._under_way += part.expected
        self._schedule(part)

    def _arrived(self, part: _Part, seq: int) -> None:
        """This number of the part is not missing any more."""
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

    def _give_up(self, part: _Part) -> None:
        if part.doubtful:
            self.skipped += part.size
        else:
            self.lost += part.size
        self._move(part, GONE)

    def _trim(self) -> None:
        """Forget what was given up, up to the first that is still to come."""
        at = 0
        while at < len(self._parts) and self._parts[at].state == GONE:
            self._total -= self._parts[at].size
            self._gone -= self._parts[at].size
            at += 1
        del self._parts[:at]

    def _bound(self) -> None:
        over = len(self._parts) - PARTS_LIMIT
        for part in self._parts[: max(0, over)]:
            if part.state != GONE:
                self._give_up(part)
        self._trim()
