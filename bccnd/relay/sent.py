"""Keeps the datagrams that this host has sent, so that it can send them again (``bccnd/wire/REPAIR.md``, "What is
kept").

Rules
- Datagrams are kept as the sealed bytes that left. Those sealed together are one batch: one copy each, no parsing.
- The newest datagrams of each source are kept, at most ``repair.numbers`` and ``repair.source_bytes``, and at most
  ``repair.bytes`` of all sources. The overhead of batches and sources counts, too.
- When all are full, the user who holds most gives up some, and of that user the sources that hold more than the
  others: a flood costs its own user.
- A source that has been silent for SILENT_SECONDS is forgotten when another one sends.
- Datagrams sealed with a key that is no longer used are useless: ``clear``.
"""

from bisect import bisect_right
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from typing import Any

from bccnd.relay.announcements import Announcements, Speaker
from bccnd.relay.effects import Sealed
from bccnd.relay.options import Repair
from bccnd.wire.sbus import Memory

# Longer than any receiver waits for a message, and longer than a short break of a link.
SILENT_SECONDS = 60.0
# Bytes of a source that may be kept before they are counted, so that most messages cost no accounting.
UNCOUNTED_BYTES = 4 << 10
# Bytes that a source takes, with those not counted yet; and a batch and each of its numbers, beside the datagrams.
SOURCE_BYTES, BATCH_BYTES, NUMBER_BYTES = 1024 + UNCOUNTED_BYTES, 320, 80
# The part of its datagrams that a source gives up at once, so that the search for one to give up is rare.
GIVEN_PART = 8

# The first number; the datagrams side by side; where each begins and ends in them, less an offset.
Batch = tuple[int, bytes, list[int], list[int], int]

_first_of = itemgetter(0)


class Record(Speaker):
    """One source: ``count`` datagrams in batches, which take ``size`` bytes of the share of ``user``. The batches
    from ``counted`` on, with ``uncounted`` bytes, are not in ``size`` yet. ``passed``, for a bridge: the number from
    which on nobody has what is not kept here, if that is not ``first``; else 0.
    """

    __slots__ = ("batches", "count", "counted", "passed", "size", "uncounted", "user")

    def __init__(self, name: bytes, user: int, first: int, now: float) -> None:
        super().__init__(name, first, now)
        self.user = user
        self.passed = 0
        self.count = 0
        self.size = SOURCE_BYTES
        self.uncounted = 0
        self.counted = 0
        self.batches: deque[Batch] = deque()

    def find(self, seq: int) -> bytes | None:
        """The datagram with this number, None if it is not kept."""
        at = bisect_right(self.batches, seq, key=_first_of) - 1
        if at < 0:
            return None
        first, data, starts, ends, base = self.batches[at]
        index = seq - first
        return data[starts[index] - base : ends[index] - base] if index < len(starts) else None

    def within(self, ranges: tuple[range, ...]) -> tuple[range, ...]:
        """The part of the numbers that this host has passed, sent or not."""
        first = min(self.first, self.passed or self.first)
        cut = (range(max(part.start, first), min(part.stop, self.last + 1)) for part in ranges)
        return tuple(part for part in cut if part)

    def gone(self, ranges: Iterable[range]) -> list[range]:
        """Of numbers that are not kept, those that no other bridge may have brought."""
        return [range(max(each.start, self.passed), each.stop) for each in ranges if each.stop > self.passed]

    @property
    def oldest(self) -> int:
        """The lowest number that is kept; one above the last if none is."""
        return self.batches[0][0] if self.batches else self.last + 1


@dataclass(slots=True)
class Resent:
    """What one call sends again. ``looked``: numbers and ranges; ``gone``: of a source in any order."""

    sent: int = 0
    looked: int = 0
    gone: list[tuple[bytes, list[range]]] = field(default_factory=list)

    def add_gone(self, record: Record, number: int) -> None:
        """One more is not kept, mostly the one behind the last."""
        if number < record.passed:
            return
        name = record.name
        if self.gone and self.gone[-1][0] == name and self.gone[-1][1][-1].stop == number:
            self.gone[-1][1][-1] = range(self.gone[-1][1][-1].start, number + 1)
        else:
            self.gone.append((name, [range(number, number + 1)]))


class Sent:
    """name of a source -> ``Record``."""

    def __init__(self, memory: Memory, options: Repair, announcements: Announcements) -> None:
        self._memory = memory
        self._announcements = announcements
        # In the order in which they last spoke.
        self._records: OrderedDict[bytes, Record] = OrderedDict()
        self._users: Counter[int] = Counter()  # what each holds
        # The records of each user, in the order in which they are asked to give.
        self._rings: dict[int, OrderedDict[bytes, Record]] = {}
        self.size = 0
        self.numbers = 0  # that were kept since the start
        self.configure(options)

    def configure(self, options: Repair) -> None:
        self._options = options
        self.on = options.on
        if not self.on:
            self.clear()

    def __len__(self) -> int:
        return len(self._records)

    def get(self, name: bytes) -> Record | None:
        return self._records.get(name)

    def keep(self, name: bytes, user: int, seq: int, sealed: Sealed, now: float) -> None:
        """Keep datagrams that leave, numbered from ``seq`` on."""
        record = self._records.get(name)
        if record is None or seq <= record.last:
            record = self._begin(name, user, seq, now)
        elif record.user != user:
            self._pass_on(record, user)
        if isinstance(sealed, tuple):
            starts, ends = sealed
            base = starts[0]
            data = self._memory[base : ends[-1]]
        else:
            base, data = 0, b"".join(sealed)
            ends = list(accumulate(map(len, sealed)))
            starts = [0, *ends[:-1]]
        record.batches.append((seq, data, starts, ends, base))
        record.last = seq + len(starts) - 1
        record.uncounted += len(data) + BATCH_BYTES + NUMBER_BYTES * len(starts)
        if not record.fresh:
            self._records.move_to_end(name)
            self._announcements.note(record, now)
            self._count(record)
        elif record.uncounted > UNCOUNTED_BYTES:
            self._count(record)

    def begin_anew(self, name: bytes, seq: int) -> None:
        """Keep nothing of a source from before ``seq`` if its numbers had come further."""
        if (record := self._records.get(name)) and record.last >= seq:
            self._forget(record)

    def clear(self) -> None:
        """Keep nothing of what was sent so far."""
        for record in self._records.values():
            record.batches.clear()  # some of it may wait to be sent again
        self._records, self._users, self._rings = OrderedDict(), Counter(), {}
        self.size = 0
        self._announcements.clear()

    def forget_silent(self, now: float) -> None:
        while self._records:
            record = next(iter(self._records.values()))
            if now - record.spoke <= SILENT_SECONDS:
                return
            self._forget(record)

    def state(self) -> list[tuple[Any, ...]]:
        """What is kept, in plain values, for a successor of this daemon."""
        return [
            (
                record.name,
                record.user,
                record.first,
                record.since,
                record.spoke,
                list(record.batches),
            )
            for record in self._records.values()
        ]

    def passed(self) -> dict[bytes, int]:
        """Of each record that has it, for a successor."""
        return {record.name: record.passed for record in self._records.values() if record.passed}

    def restore(self, state: Iterable[tuple[Any, ...]], passed: Mapping[bytes, int]) -> None:
        """``keep`` all of it, as far as there is room, and announce it."""
        for name, user, first, since, spoke, batches in state if self.on else ():
            for seq, data, starts, ends, base in batches:
                datagrams = [data[start - base : end - base] for start, end in zip(starts, ends, strict=True)]
                self.keep(name, user, seq, datagrams, spoke)
            if record := self._records.get(name):
                record.first, record.since = first, since
                record.passed = passed.get(name, 0)

    def _begin(self, name: bytes, user: int, seq: int, now: float) -> Record:
        """A source that is new, or whose numbers have gone back."""
        if before := self._records.get(name):
            self._forget(before)
        self._records[name] = record = Record(name, user, seq, now)
        self._join(record)
        self.size += record.size
        return record

    def _pass_on(self, record: Record, user: int) -> None:
        """The name is another user's now, who pays from here on for all that is kept under it."""
        self._leave(record)
        record.user = user
        self._join(record)

    def _join(self, record: Record) -> None:
        self._rings.setdefault(record.user, OrderedDict())[record.name] = record
        self._users[record.user] += record.size

    def _leave(self, record: Record) -> None:
        ring = self._rings[record.user]
        del ring[record.name]
        self._users[record.user] -= record.size
        if not ring:
            del self._rings[record.user], self._users[record.user]

    def _count(self, record: Record) -> None:
        """Take what is new of a source into the account, and give up what is beyond the bounds."""
        options, added = self._options, 0
        for at in range(record.counted, len(record.batches)):
            batch = record.batches[at]
            record.count += len(batch[2])
            self.numbers += len(batch[2])
            added += _size_of(batch)
        record.counted, record.uncounted = len(record.batches), 0
        self._pay(record, added)
        if record.count > options.numbers or record.size > options.source_bytes:
            self._give(record, record.count - options.numbers, record.size - options.source_bytes)
        if self.size > options.bytes:
            self._make_room()

    def _pay(self, record: Record, size: int) -> None:
        record.size += size
        self._users[record.user] += size
        self.size += size

    def _give(self, record: Record, numbers: int, size: int) -> None:
        """Drop the oldest of a source, at least so much."""
        batches, freed = record.batches, 0
        while len(batches) > 1 and (numbers > 0 or size > freed):
            batch = batches.popleft()
            freed += _size_of(batch)
            numbers -= len(batch[2])
            record.count -= len(batch[2])
            record.counted -= 1
        self._pay(record, -freed)

    def _make_room(self) -> None:
        while self.size > self._options.bytes:
            ring = self._rings[max(self._users, key=self._users.__getitem__)]
            name, record = next(iter(ring.items()))
            ring.move_to_end(name)
            if record.size * len(ring) < self._users[record.user]:
                continue  # others of the user hold more; one of them holds as much as the average
            if len(record.batches) <= 1:
                self._forget(record)
            else:
                self._give(record, 0, max(1, record.size // GIVEN_PART))

    def _forget(self, record: Record) -> None:
        del self._records[record.name]
        self._leave(record)
        self.size -= record.size
        record.batches.clear()
        self._announcements.forget(record)


def _size_of(batch: Batch) -> int:
    return len(batch[1]) + BATCH_BYTES + NUMBER_BYTES * len(batch[2])
