"""What is missing of each source, and what is held back behind it (``bccnd/wire/REPAIR.md``, "What is held back").

    a number is left out ---> missing ---> asked for, up to ASKS_LIMIT times ---> it comes: taken
                                 |                                           '--> gone, or given up: lost
    a message above it  ---> held ---> released in order, once nothing below it is missing

Rules
- A gap belongs to one source. It lasts as long as a number of the source is missing or a message is held. A source
  without a gap costs nothing here.
- Numbers above the last that was heard can be missing as well: the daemon of the source announced them, or a stray
  suggests them (``dedup``). They hold back only what is above them, and are no losses when they are given up.
- A number is asked for after a random time. A datagram that was only overtaken comes in that time, and of many
  receivers that miss it, one asks first and the others hear that. The time follows RFC 5401, "RandomBackoff": late
  times are likelier.
- A number is given up once no missing number of its source has come for ``hold_seconds``, or it has been missing for
  PATIENCE times as long, or the last request for it was not answered. Messages held behind it are then released,
  never dropped. A full buffer leaves many consecutive numbers missing. Their requests are counted anew whenever one
  of them comes, since the others wait for their turn at the sender.
- Held messages are bounded for each source and in all. When all are full, the address whose sources hold most gives
  up, and of these the source that holds most: it waits for nothing more.
- A missing number of a relayed source may have been left out on purpose. It is lost only if waiting for it was in
  vain. If it is ``gone``, it was left out.
- Gaps are bounded, too. When the table is full, the owner with most gaps gives up its oldest (``crowd``), or gets no
  further one. So an owner that keeps many gaps open takes repair from nobody else.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import pairwise
from math import exp, inf, log
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from bccnd.relay.crowd import Crowd, address_of
from bccnd.relay.deadlines import Alarm, Deadlines
from bccnd.relay.options import Repair
from bccnd.relay.shares import Shares

# Least seconds before a number is asked for, and the most random seconds on top.
SOONEST, SPREAD = 0.001, 0.009
# The same before it is asked for again: a sender sends it again once in 10 ms at most.
AGAIN_SECONDS, AGAIN_SPREAD = 0.011, 0.004
ASKS_LIMIT = 8
# A number is given up after this many times ``hold_seconds``, however much of the source comes meanwhile.
PATIENCE = 10
# Sources with a gap, some kilobytes each.
GAPS_LIMIT = 4096
# Sources beside them that had to give up, until the next call releases what they hold.
ENDING_LIMIT = 256
# What a source holds is counted in units of so many bytes, so that most messages cost no accounting.
UNIT_BYTES = 1 << 10
# Messages of a source that one call releases, a millisecond of work for a few subscribers. After as many of several
# sources, the next call goes on with the rest.
RELEASED_AT_ONCE = 256
# Parts that a gap may get from ``gone`` or from announcements: to look at all of them takes a tenth of a millisecond.
# The parts that messages cut are bounded by the messages that may wait.
PARTS_LIMIT = 1024
# Bytes that a held message takes beside its datagram.
ENTRY_BYTES = 200
# The value of ``kept`` for a source: nobody keeps what it sends.
PLAIN = -inf
# Seconds for which a daemon counts as keeping what a source sends after it has said so.
KEPT_SECONDS = 60.0


class Missing:
    """Numbers from ``first`` up to ``after``. ``due``: when to ask for them; ``ripe``: before this time asking is no
    use; ``asks``: how often somebody asked; ``until``: when they are given up in any case.
    """

    __slots__ = ("after", "asks", "due", "first", "found", "ripe", "until")

    def __init__(
        self,
        first: int,
        after: int,
        found: float,
        ripe: float,
        due: float,
        asks: int = 0,
        until: float = inf,
    ) -> None:
        self.first, self.after = first, after
        self.found, self.ripe, self.due, self.asks, self.until = found, ripe, due, asks, until

    @property
    def numbers(self) -> range:
        return range(self.first, self.after)


_first_of = attrgetter("first")


class Held(NamedTuple):
    """A message that waits. ``repaired``: it came because somebody asked for it."""

    seq: int
    chan: bytes
    datagram: bytes
    peer: bytes
    interface: bytes
    repaired: bool

    @property
    def size(self) -> int:
        return len(self.datagram) + ENTRY_BYTES


class Account(Protocol):
    """What is known of a source; ``last``: its highest number that was heard (``dedup.Source``)."""

    last: int
    lost: int
    left_out: int
    given_up: int
    gone: int
    relay: tuple[str, str] | None
    gap: "Gap | None"
    kept: float | None
    peer: str


class Forgotten:
    """The ``Account`` of a source that is not known any more: its messages only have to go."""

    def __init__(self) -> None:
        self.last = self.lost = self.left_out = self.given_up = self.gone = 0
        self.relay: tuple[str, str] | None = None
        self.gap: Gap | None = None
        self.kept: float | None = PLAIN
        self.peer = ""


class Gap:
    """``missing``: in rising order; ``held``: a heap of ``Held``; ``progress``: when a missing number last came;
    ``in_line``: it waits for the next request; ``units``: that its address is accountable for.
    """

    __slots__ = ("address", "held", "in_line", "missing", "progress", "size", "source", "src", "units")

    def __init__(self, src: bytes, source: Account) -> None:
        self.src = src
        self.source = source
        self.address = address_of(source.peer.encode())
        self.missing: list[Missing] = []
        self.held: list[Held] = []
        self.size = self.units = 0
        self.progress = -inf
        self.in_line = False

    def find(self, seq: int) -> int:
        """The index of what is missing with this number in it, -1 for none."""
        at = bisect_right(self.missing, seq, key=_first_of) - 1
        return at if at >= 0 and seq < self.missing[at].after else -1

    def take(self, seq: int, now: float) -> int | None:
        """The number has come: how often it was asked for, None if it was not missing."""
        at = self.find(seq)
        if at < 0:
            return None
        part = self.missing[at]
        asks = part.asks
        if asks:
            part.asks, part.due, part.until = 1, min(part.due, part.until), inf
        self.cut(range(seq, seq + 1))
        self.progress = now
        return asks

    @property
    def after(self) -> int:
        """The number behind all that is missing, 0 if nothing is."""
        return self.missing[-1].after if self.missing else 0

    def cut(self, numbers: range) -> int:
        """These are no longer missing. Returns how many of them were."""
        first, after = numbers.start, numbers.stop
        at = max(0, bisect_right(self.missing, first, key=_first_of) - 1)
        count = 0
        while at < len(self.missing) and self.missing[at].first < after:
            part = self.missing[at]
            low, high = max(first, part.first), min(after, part.after)
            if low >= high:
                at += 1
                continue
            count += high - low
            rest = [
                Missing(start, stop, part.found, part.ripe, part.due, part.asks, part.until)
                for start, stop in ((part.first, low), (high, part.after))
                if start < stop
            ]
            self.missing[at : at + 1] = rest
            at += len(rest)
        return count

    @property
    def boundary(self) -> float:
        """What is below this number can be released."""
        return self.missing[0].first if self.missing else inf


class Gaps:
    """src -> ``Gap``. ``chance``: a random number from 0 to 1. ``given_up``: numbers, since the start, and
    ``missed``: those of them that no account had counted as missed, as their sources are relayed. ``guess``:
    whether the daemon of a source at this peer is likely to keep what it sends, where it has not said so yet.
    ``wanted``: whether anybody here gets messages at all.
    """

    def __init__(self, options: Repair, alarm: Alarm, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._gaps: dict[bytes, Gap] = {}
        self._due: Deadlines[bytes] = Deadlines(alarm)
        self._crowd = Crowd()  # whose gaps they are
        self._held = Shares()  # units, by address and source
        self.size = 0
        self.group = 1  # daemons that may miss the same
        self.guess: Callable[[bytes, str], bool] = lambda _src, _peer: False
        self.wanted: Callable[[], bool] = lambda: True
        self.given_up = self.missed = 0
        self.configure(options)

    def configure(self, options: Repair) -> None:
        self._options = options
        self.on = options.on
        if not self.on:
            for gap in self._gaps.values():
                self.abandon(gap)
                self.plan(gap)

    def __len__(self) -> int:
        return len(self._gaps)

    def __iter__(self) -> Iterator[Gap]:
        yield from self._gaps.values()

    def get(self, src: bytes) -> Gap | None:
        return self._gaps.get(src)

    @property
    def held(self) -> int:
        return sum([len(gap.held) for gap in self._gaps.values()])

    def next_deadline(self) -> float:
        return self._due.next

    def repairable(self, src: bytes, source: Account, now: float) -> bool:
        """Whether somebody keeps what the source sends, and somebody wants it."""
        if not self.on or source.kept == PLAIN or not self.wanted():
            return False
        if source.kept is not None and now - source.kept <= KEPT_SECONDS:
            return True
        return self.guess(src, source.peer)

    def due(self, now: float) -> Iterator[Gap]:
        """Gaps that have numbers to be asked for, or to be given up. The caller then calls ``plan``, for all."""
        while (first := self._due.pop(now)) is not None:
            if gap := self._gaps.get(first[0]):
                yield gap

    def open(
        self, src: bytes, source: Account, numbers: range, now: float, known: Iterable[int] = ()
    ) -> Gap | None:
        """These numbers of a source are missing, but for the ``known`` ones. None where there is no room."""
        gap = self._gaps.get(src)
        if gap is None:
            if not numbers or not self._has_room(src, address_of(source.peer.encode())):
                return None
            gap = self._enter(src, source)
        elif gap.source is not source or src not in self._crowd:  # it ends
            return None
        ripe = now + SOONEST
        due = ripe + self._backoff(SPREAD)
        edges = [numbers.start - 1, *sorted(number for number in known if number in numbers), numbers.stop]
        for before, behind in pairwise(edges):
            self._add(gap, Missing(before + 1, behind, now, ripe, due))
        planned = self._due.get(src)
        if planned is None or (due < planned and not gap.in_line):
            self._due.set(src, due)
        return gap

    def put(self, gap: Gap, held: Held) -> Gap | None:
        """Hold a message. Returns a gap of which numbers were given up for want of room."""
        heappush(gap.held, held)
        gap.size += held.size
        self.size += held.size
        self._weigh(gap)
        if self.size > self._options.hold_bytes:
            most = self._gaps[self._held.giver()] if self._held else gap
            parts = len(most.missing)
        elif len(gap.held) > self._options.hold_messages:
            most, parts = gap, 1
        else:
            return None
        while most.held[0].seq >= most.boundary:  # nothing of it goes by itself
            self._give_up(most, parts)
        return most

    def ready(self, gap: Gap) -> list[Held]:
        """Take what can be released, in order, RELEASED_AT_ONCE messages at most. A gap with nothing left ends."""
        boundary = gap.boundary
        taken: list[Held] = []
        while gap.held and gap.held[0][0] < boundary and len(taken) < RELEASED_AT_ONCE:
            held = heappop(gap.held)
            gap.size -= held.size
            self.size -= held.size
            taken.append(held)
        self._weigh(gap)
        if not gap.held and not gap.missing:
            self._end(gap)
        elif len(taken) == RELEASED_AT_ONCE:
            self.plan(gap)
        return taken

    def ask(self, gap: Gap, now: float, until: float) -> Iterator[range]:
        """The numbers to be asked for until then. What is taken of them counts as asked for from now on."""
        for part in gap.missing:
            if part.due <= until and part.ripe <= now:
                self._put_off(part, now)
                yield part.numbers

    def overhear(self, gap: Gap, ranges: Iterable[range], now: float, most: int) -> int:
        """Somebody else asks for these numbers: how many parts that concerned, at least; no more than ``most`` are
        looked at.
        """
        looked = 0
        for numbers in ranges:
            at = max(0, bisect_right(gap.missing, numbers.start, key=_first_of) - 1)
            while at < len(gap.missing) and looked < most and (part := gap.missing[at]).first < numbers.stop:
                at += 1
                looked += 1
                just_asked = part.asks and part.due - now > AGAIN_SECONDS / 2  # by several at once
                if numbers.start <= part.first and part.after <= numbers.stop and not just_asked:
                    self._put_off(part, now)
        return looked

    def write_off(self, gap: Gap, numbers: range) -> int:
        """Nobody keeps these any more. Returns how many losses that makes final."""
        if len(gap.missing) >= PARTS_LIMIT:
            return 0
        last = gap.source.last
        lost = gap.cut(range(numbers.start, min(numbers.stop, last + 1))) if numbers.start <= last else 0
        gap.cut(numbers)
        if gap.source.relay:
            return 0
        gap.source.gone += lost
        return lost

    def expire(self, gap: Gap, now: float) -> None:
        """Give up what was waited for long enough."""
        wait = self._options.hold_seconds
        while gap.missing and self._expires(gap, gap.missing[0], wait) <= now:
            self._give_up(gap, 1)

    def abandon(self, gap: Gap) -> None:
        """Nothing more of it is waited for: what is held can be released."""
        self._give_up(gap, len(gap.missing))

    def plan(self, gap: Gap) -> None:
        """Have the gap come up when numbers of it are next asked for or given up, or messages released."""
        if self._gaps.get(gap.src) is not gap:
            return
        if gap.held and gap.held[0].seq < gap.boundary:
            self._due.set(gap.src, 0.0)
        elif gap.missing:
            due = self._expires(gap, gap.missing[0], self._options.hold_seconds)
            if not gap.in_line:  # it is asked for when it has its turn
                due = min(due, *[part.due for part in gap.missing])
            self._due.set(gap.src, due)
        else:
            self._due.remove(gap.src)

    def state(self) -> list[tuple[Any, ...]]:
        """The gaps in plain values, for a successor of this daemon."""
        return [
            (
                gap.src,
                [(part.first, part.after, part.found, part.asks) for part in gap.missing],
                [tuple(held) for held in sorted(gap.held)],
            )
            for gap in self._gaps.values()
        ]

    def restore(self, state: Iterable[tuple[Any, ...]], source_of: Callable[[bytes], Account | None]) -> None:
        """Everything is to be asked for, or given up, at once. Where repair is off now, or the source is unknown,
        nothing is waited for.
        """
        for src, missing, held in state:
            source = source_of(src)
            gap = self._enter(src, source or Forgotten())
            for first, after, found, asks in missing if self.on and source else ():
                gap.missing.append(Missing(first, after, found, 0.0, 0.0, asks))
            for each in held:
                self.put(gap, Held(*each))
            self._due.set(src, 0.0)

    def _add(self, gap: Gap, new: Missing) -> None:
        """Numbers of which some may be missing already."""
        first, after = new.first, new.after
        at = max(0, bisect_right(gap.missing, first, key=_first_of) - 1)
        while first < after:
            part = gap.missing[at] if at < len(gap.missing) else None
            if part and part.after <= first:
                at += 1
                continue
            stop = min(after, part.first) if part else after
            if first < stop:
                gap.missing.insert(at, Missing(first, stop, new.found, new.ripe, new.due))
                at += 1
            first = part.after if part else after

    def _expires(self, gap: Gap, part: Missing, wait: float) -> float:
        return min(max(part.found, gap.progress) + wait, part.found + PATIENCE * wait, part.until)

    def _put_off(self, part: Missing, now: float) -> None:
        part.asks += 1
        part.ripe = now + AGAIN_SECONDS
        part.due = part.ripe + self._backoff(AGAIN_SPREAD)
        if part.asks >= ASKS_LIMIT:
            part.due, part.until = inf, part.due

    def _give_up(self, gap: Gap, count: int) -> None:
        """The lowest of what is missing, so many parts."""
        source = gap.source
        for part in gap.missing[:count]:
            lost = max(0, min(part.after, source.last + 1) - part.first)
            source.given_up += lost
            self.given_up += lost
            if source.relay:
                counted = min(lost, source.left_out)
                source.left_out -= counted
                source.lost += counted
                self.missed += counted
        del gap.missing[:count]

    def _enter(self, src: bytes, source: Account) -> Gap:
        self._gaps[src] = gap = source.gap = Gap(src, source)
        self._crowd.add(src, gap.address)
        return gap

    def _has_room(self, src: bytes, address: bytes) -> bool:
        """Whether there is room for one more, for which another gap may have to end."""
        if len(self._crowd) < GAPS_LIMIT:
            return True
        giver = self._crowd.giver(src, address)
        if giver.newcomer or len(self._gaps) >= GAPS_LIMIT + ENDING_LIMIT:
            return False
        gap = self._gaps[next(iter(self._crowd.members(giver)))]
        self._crowd.remove(gap.src)
        self.abandon(gap)
        if gap.held:
            self.plan(gap)
        else:
            self._end(gap)
        return True

    def _weigh(self, gap: Gap) -> None:
        """Have the account of its address say what it holds."""
        units = gap.size // UNIT_BYTES
        if units == gap.units or self._gaps.get(gap.src) is not gap:
            return
        if units:
            self._held.add(gap.address, gap.src, gap.src, units - gap.units)
        else:
            self._held.remove(gap.address, gap.src, gap.src, gap.units)
        gap.units = units

    def _end(self, gap: Gap) -> None:
        if self._gaps.get(gap.src) is gap:
            del self._gaps[gap.src]
            self._due.remove(gap.src)
            if gap.src in self._crowd:
                self._crowd.remove(gap.src)
        if gap.source.gap is gap:
            gap.source.gap = None

    def _backoff(self, most: float) -> float:
        """Up to ``most``, mostly near it: the more there are who may ask, the fewer begin early."""
        weight = log(max(1, self.group)) + 1.0
        return most * log(1.0 + self._chance() * (exp(weight) - 1.0)) / weight
