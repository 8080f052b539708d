"""Into the segment: link datagrams in the order of their numbers, each once, without waiting for lost ones.

Rules
- Each link has a next number. A lower number is a duplicate, a higher one is held.
- A missing number is lost once its link has announced a floor above it, and everything up to the position of that
  floor has come: the missing datagram was published before, so it would have come. It is then counted and passed
  over.
- A link that is silent for OVER_SECONDS announces no more floors: its held datagrams go on without the rest.
- When all links together hold too much, the link that holds most gives up its first gap.
- A link begins at the first floor that is heard from it. Missing numbers from before that are no loss. Nor is a gap
  of GAP_LIMIT or more, except for what exceeds the jumps of restarts.
- A number counts as missed if it has not come when a later one comes, or a floor above it is announced; most of these
  still come.
- Links are bounded. A new one takes the place of one that has said little, or nothing for a while; otherwise it gets
  none.
- A message is dropped if another link has brought a later one of its source: it came by that link too, or is too
  late.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from bccnd.errors import LinkError
from bccnd.uplink.journal import RESTART_JUMP
from bccnd.wire.link import Inner, Numbered, Status, messages, segment_of

# Links: some kilobytes each, and what they hold.
LINKS_LIMIT = 256
# A link that has said less is new, and one that was silent for longer is gone: only these can lose their place.
PROVEN = 16
SILENT_SECONDS = 60.0
# A link that is silent for longer will not come back with what is missing: by default its sender keeps nothing for so
# long. One without a journal that was killed never does.
OVER_SECONDS = 3600
# Links without a place whose next number is remembered, so that nothing of them comes twice.
GONE_LIMIT = 256
# A gap of so many numbers or more is a restart of the sender, which leaves RESTART_JUMP out.
GAP_LIMIT = 1 << 32
# Bytes that a held datagram takes in addition to its own.
HELD_BYTES = 320
# Floors of a link that wait for their position. Beyond that a new one replaces the last.
FLOORS_LIMIT = 64
# Entries of the heap of links whose floors wait. Links that are forgotten leave one behind.
DUE_LIMIT = 8 * LINKS_LIMIT
# Sources whose last number is remembered, some 150 bytes each and twice as many at most: once for all links together,
# and divided among the links, of which at least SOURCES_PARTS are assumed.
SOURCES_LIMIT = 1 << 16
SOURCES_PARTS = 8
# While more datagrams than this are held, ``taken`` looks at them only once in so many calls.
HELD_MANY = 1024
HELD_MANY_ASKED = 50


class Lasts:
    """The last number of each source. Bounded: the sources that were silent longest are forgotten."""

    def __init__(self) -> None:
        self._new: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._new) + len(self._old)

    def get(self, src: bytes) -> int:
        """The last number of a source; -1 if it is not known."""
        found = self._new.get(src)
        return self._old.get(src, -1) if found is None else found

    def set(self, src: bytes, seq: int, limit: int) -> None:
        self._new[src] = seq
        if len(self._new) >= limit:
            self._old, self._new = self._new, {}


class Held(NamedTuple):
    """``at``: where the messages of the datagram begin."""

    position: int
    datagram: bytes
    at: int

    @property
    def bytes(self) -> int:
        return HELD_BYTES + len(self.datagram)


@dataclass(slots=True)
class Link:
    """``next``: the number that comes next; ``begun``: missing numbers below it were sent before the link was heard;
    ``high``: above all numbers heard of; ``missed``: numbers below that which did not come in time.
    """

    src: bytes
    segment: bytes
    next: int
    begun: int
    heard: float = 0.0
    silent: int = 0  # seconds of the carrier since then, while something is held
    said: int = 0  # datagrams and statuses
    datagrams: int = 0
    messages: int = 0
    duplicates: int = 0
    missed: int = 0
    high: int = 0
    lost: int = 0
    said_next: int = 0
    held: dict[int, Held] = field(default_factory=dict)  # by number
    order: list[int] = field(default_factory=list)  # the numbers of what is held, as a heap; of others, too
    held_bytes: int = 0
    floors: deque[tuple[int, int]] = field(default_factory=deque)  # position, floor: both rise
    due: int = 0  # the position at which its floors are looked at next; 0 for none
    sources: Lasts = field(default_factory=Lasts)

    def see(self, upto: int, high: int) -> None:
        """Everything below ``upto`` was published. Numbers before the first that was heard are not missed."""
        if not self.high:
            self.high = max(high, self.begun)
        elif high > self.high:
            missed = (upto - self.high) % RESTART_JUMP
            self.missed += missed if missed < GAP_LIMIT else 0
            self.high = high


@dataclass(slots=True)
class Received:
    """Counters since the start, of link datagrams; ``messages`` and ``late`` count messages."""

    datagrams: int = 0
    messages: int = 0
    duplicates: int = 0
    lost: int = 0
    wrong: int = 0  # sound outside, malformed inside
    crowded: int = 0  # of links without a place
    late: int = 0  # messages that another link was faster with


class Inbound:
    """``position``, ``numbers``: where it was before a restart, and the next number of each link; ``hold_bytes``:
    most bytes that all links hold; ``forgotten``: called with each link that loses its place. What comes in order is
    put into ``out``.
    """

    def __init__(
        self, position: int, numbers: Mapping[bytes, int], hold_bytes: int, forgotten: Callable[[bytes], None]
    ) -> None:
        self.links: dict[bytes, Link] = {}
        self.received = Received()
        self.hold_bytes = hold_bytes
        self.complete = position
        self.out: list[tuple[Link, Inner]] = []
        self._forgotten = forgotten
        self._numbers = dict(numbers)
        self._holding: dict[bytes, Link] = {}
        self._held_bytes = 0
        self._due: list[tuple[int, bytes]] = []  # position, link: a heap of the first floors that wait
        self._highs = Lasts()
        self._taken = position
        self._taken_asked = 0

    def came(self, position: int, datagram: bytes, header: Numbered, now: float) -> None:
        number = header.number
        link = self.links.get(header.src) or self._begin(header.src, header.floor, number, now)
        if link is None:
            return
        link.heard, link.silent = now, 0
        link.said += 1
        link.datagrams += 1
        self.received.datagrams += 1
        link.see(number, number + 1)
        if number == link.next:
            link.next += 1
            self._deliver(link, datagram, header.at)
            if link.held:
                self._drain(link)
        elif number < link.next or number in link.held:
            link.duplicates += 1
            self.received.duplicates += 1
        else:
            self._hold(link, number, Held(position, datagram, header.at))
        if header.floor > link.next:
            self._floor(link, position, header.floor)

    def said(self, position: int, status: Status, now: float) -> bool:
        """Note that a link has said something. Whether it has a place."""
        link = self.links.get(status.src) or self._begin(status.src, status.floor, status.next, now)
        if link is None:
            return False
        link.heard, link.silent = now, 0
        link.said += 1
        link.said_next = max(link.said_next, status.next)
        link.see(status.floor, status.floor)
        if status.floor > link.next:
            self._floor(link, position, status.floor)
        return True

    def completed(self, position: int) -> None:
        """Nothing below this position is still to come."""
        if position <= self.complete:
            return
        self.complete = position
        due = self._due
        while due and due[0][0] <= position:
            waiting = self.links.get(heappop(due)[1])
            if waiting is not None:
                waiting.due = 0
                self._look_at_floors(waiting)

    def age(self) -> None:
        """Call this each second while the carrier is connected."""
        for link in list(self._holding.values()):
            link.silent += 1
            if link.silent > OVER_SECONDS:
                self._pass_over(link, max(link.held) + 1)

    def taken(self) -> int:
        """Everything below this position has been put out, or never will be."""
        held = sum(len(link.held) for link in self._holding.values())
        self._taken_asked += 1
        if held < HELD_MANY or self._taken_asked % HELD_MANY_ASKED == 0:
            first = (each.position for link in self._holding.values() for each in link.held.values())
            self._taken = min(self.complete, min(first, default=self.complete))
        return self._taken

    def numbers(self) -> dict[bytes, int]:
        """The next number of each link."""
        return self._numbers | {src: link.next for src, link in self.links.items()}

    # -- links

    def _begin(self, src: bytes, floor: int, begun: int, now: float) -> Link | None:
        if len(self.links) >= LINKS_LIMIT and not self._make_room(now):
            self.received.crowded += 1
            return None
        known = self._numbers.pop(src, None)
        link = (
            Link(src, segment_of(src), floor, begun)
            if known is None
            else Link(src, segment_of(src), known, known)
        )
        self.links[src] = link
        return link

    def _make_room(self, now: float) -> bool:
        """Forget the link that may be forgotten and is silent longest. Whether there was one."""
        may_go = [
            link for link in self.links.values() if link.said < PROVEN or now - link.heard > SILENT_SECONDS
        ]
        if not may_go:
            return False
        gone = min(may_go, key=lambda link: link.heard)
        self._held_bytes -= gone.held_bytes
        self._holding.pop(gone.src, None)
        del self.links[gone.src]
        if gone.said >= PROVEN:
            self._numbers[gone.src] = gone.next
            if len(self._numbers) > GONE_LIMIT:
                del self._numbers[next(iter(self._numbers))]
        self._forgotten(gone.src)
        return True

    # -- what is held

    def _hold(self, link: Link, number: int, held: Held) -> None:
        link.held[number] = held
        heappush(link.order, number)
        link.held_bytes += held.bytes
        self._held_bytes += held.bytes
        self._holding[link.src] = link
        while self._held_bytes > self.hold_bytes:
            fullest = max(self._holding.values(), key=lambda each: each.held_bytes)
            self._pass_over(fullest, self._first_held(fullest))

    def _first_held(self, link: Link) -> int:
        """The lowest number that is held. At least one must be."""
        while link.order[0] not in link.held:
            heappop(link.order)
        return link.order[0]

    def _drain(self, link: Link) -> None:
        """Put out what is held and comes next."""
        while (held := link.held.pop(link.next, None)) is not None:
            link.held_bytes -= held.bytes
            self._held_bytes -= held.bytes
            link.next += 1
            self._deliver(link, held.datagram, held.at)
        while link.order and link.order[0] < link.next:
            heappop(link.order)
        if not link.held:
            self._holding.pop(link.src, None)

    def _pass_over(self, link: Link, floor: int) -> None:
        """Stop waiting for missing numbers below ``floor``."""
        while link.held and (first := self._first_held(link)) < floor:
            self._skip_to(link, first)
            self._drain(link)
        self._skip_to(link, floor)
        self._drain(link)

    def _skip_to(self, link: Link, number: int) -> None:
        if number <= link.next:
            return
        missing = (number - max(link.next, link.begun)) % RESTART_JUMP if number > link.begun else 0
        if 0 < missing < GAP_LIMIT:
            link.lost += missing
            self.received.lost += missing
        link.next = number

    # -- floors

    def _floor(self, link: Link, position: int, floor: int) -> None:
        """The sender has published everything below ``floor``, at lower positions, or has given it up."""
        if position <= self.complete:
            self._pass_over(link, floor)
            return
        floors = link.floors
        while floors and position <= floors[-1][0] and floor >= floors[-1][1]:
            floors.pop()  # the older floor is lower, and its position higher
        if len(floors) >= FLOORS_LIMIT and position > floors[-1][0]:
            floor = max(floor, floors.pop()[1])
        if not floors or (position > floors[-1][0] and floor > floors[-1][1]):
            floors.append((position, floor))
        self._look_at_floors(link)

    def _look_at_floors(self, link: Link) -> None:
        floor = 0
        while link.floors and (link.floors[0][0] <= self.complete or link.floors[0][1] <= link.next):
            position, said = link.floors.popleft()
            floor = said if position <= self.complete else floor
        if floor > link.next:
            self._pass_over(link, floor)
        if link.floors and not 0 < link.due <= link.floors[0][0]:
            link.due = link.floors[0][0]
            if len(self._due) >= DUE_LIMIT:  # most of them are of links that are forgotten
                waiting = [each for each in self.links.values() if each.floors]
                for each in waiting:
                    each.due = each.floors[0][0]
                self._due = [(each.due, each.src) for each in waiting]
                heapify(self._due)
            else:
                heappush(self._due, (link.due, link.src))

    # -- in order

    def _deliver(self, link: Link, datagram: bytes, at: int) -> None:
        try:
            inside = messages(datagram, at)
        except LinkError:
            self.received.wrong += 1
            return
        mine, highs, out = link.sources, self._highs, self.out
        limit = SOURCES_LIMIT // max(SOURCES_PARTS, len(self.links))
        for message in inside:
            src, seq = message[1], message[2]
            again = seq < mine.get(src)  # it goes back on this link, so the source was restarted
            mine.set(src, seq, limit)
            if seq <= highs.get(src) and not again:
                self.received.late += 1
                continue
            highs.set(src, seq, SOURCES_LIMIT)
            out.append((link, message))
        link.messages += len(inside)
        self.received.messages += len(inside)
