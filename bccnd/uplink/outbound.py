"""Out of the segment: messages into link datagrams, with contiguous numbers, until the carrier has published them.

    add --> batch --> flush --> the journal's outbox --> carrier.publish ... published

Rules
- A datagram has its number and its place in the outbox before the carrier gets it.
- Datagrams are published in the order of their numbers, as long as the carrier has room; those that wait are read
  from the journal. They are sealed only then, with the current floor and the current key.
- The floor is the lowest number that is neither published nor given up.
- When the outbox is full, or its datagrams are too old, the oldest is given up. While the journal cannot be read,
  nothing is given up until everything is too old.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from bccnd.uplink.carrier import Carrier
from bccnd.uplink.journal import Journal, Row
from bccnd.wire.link import Seal

# Rows that are read from the journal at a time.
PAGE = 64
# A full outbox gives up a part at once, so that it is not checked for each datagram.
ROOM_PARTS = 64
# Precision with which ages are noted, as a part of the seconds that a datagram may wait.
AGE_STEPS = 64


@dataclass(slots=True)
class Sent:
    """Counters since the start, of messages and of link datagrams."""

    messages: int = 0
    datagrams: int = 0
    published: int = 0
    given_up: int = 0  # datagrams


class Outbound:
    """``src``: of the link."""

    def __init__(self, journal: Journal, src: bytes, seal: Seal, batch_bytes: int) -> None:
        self.sent = Sent()
        self.src, self.seal, self.batch_bytes = src, seal, batch_bytes
        self._journal = journal
        self._batch: list[bytes] = []
        self._batch_size = 0
        self._channel = b""
        self._in_flight: set[int] = set()
        self._order: deque[int] = deque()  # numbers in flight
        self.waiting, self.waiting_bytes = journal.outbox_size()
        self._ages: deque[tuple[float, int]] = deque()
        self._waiting_from = journal.floor
        self._settle()

    @property
    def batched(self) -> bool:
        """Whether a flush would make a datagram."""
        return bool(self._batch)

    @property
    def next(self) -> int:
        """The number of the next datagram."""
        return self._journal.next

    @property
    def floor(self) -> int:
        return self._journal.floor

    def add(self, channel: bytes, message: bytes, carrier: Carrier) -> None:
        size = len(message)
        if self._batch and self._batch_size + size > self.batch_bytes:
            self.flush(carrier)
        if not self._batch:
            self._channel = channel
        self._batch.append(message)
        self._batch_size += size

    def flush(self, carrier: Carrier) -> None:
        """Make a datagram of what was added."""
        if not self._batch:
            return
        journal = self._journal
        row = Row(journal.next, self._channel, b"".join(self._batch))
        self.sent.messages += len(self._batch)
        self.sent.datagrams += 1
        self._batch, self._batch_size = [], 0
        journal.next += 1
        for forgotten in journal.add(row):
            if forgotten.number >= self._waiting_from:
                self._give_up(1, forgotten.bytes)
        if self.waiting or carrier.room <= 0:
            self.waiting += 1
            self.waiting_bytes += row.bytes
            self._bound()
        else:
            self._publish(row, carrier)

    def push(self, carrier: Carrier) -> None:
        """Publish what waits, while the carrier has room and the journal can be read."""
        while self.waiting and carrier.room > 0:
            rows = self._journal.waiting(self._waiting_from, min(PAGE, carrier.room))
            if rows is None:
                return
            if not rows:
                self._give_up_the_rest()
            for row in rows:
                self.waiting -= 1
                self.waiting_bytes -= row.bytes
                self._publish(row, carrier)

    def published(self, number: int) -> None:
        if number in self._in_flight:
            self._in_flight.discard(number)
            self._journal.published(number)
            self.sent.published += 1
            self._settle()

    def age(self, now: float) -> None:
        """Give up what has waited for too long."""
        if not self.waiting:
            self._ages.clear()
            return
        limit = self._journal.limits.outbox_seconds
        if not self._ages or now - self._ages[-1][0] >= limit / AGE_STEPS:
            self._ages.append((now, self.next))
        below = 0
        while self._ages and now - self._ages[0][0] > limit:
            below = self._ages.popleft()[1]
        if below and not self._give_up_while(lambda row: row.number < below):
            self._give_up_the_rest()  # nobody waits for a disk for ever

    def _publish(self, row: Row, carrier: Carrier) -> None:
        self._waiting_from = row.number + 1
        self._in_flight.add(row.number)
        self._order.append(row.number)
        self._settle()
        datagram = self.seal.numbered(self.src, row.number, self._journal.floor, row.messages)
        carrier.publish(row.number, datagram, row.channel)

    def _settle(self) -> None:
        order, in_flight = self._order, self._in_flight
        while order and order[0] not in in_flight:
            order.popleft()
        if order:
            self._journal.floor = order[0]
        elif self.waiting:
            self._journal.floor = max(self._journal.floor, self._waiting_from)
        else:
            self._journal.floor = self._journal.next

    def _bound(self) -> None:
        limit = self._journal.limits.outbox_bytes
        if self.waiting_bytes > limit:
            enough = limit - limit // ROOM_PARTS
            self._give_up_while(lambda _: self.waiting > 1 and self.waiting_bytes > enough)

    def _give_up_while(self, too_much: Callable[[Row], bool]) -> bool:
        """Give up datagrams, the oldest first. Returns False if the journal cannot be read."""
        while self.waiting:
            rows = self._journal.waiting(self._waiting_from, PAGE)
            if rows is None:
                return False
            if not rows:
                self._give_up_the_rest()
            for row in rows:
                if not too_much(row):
                    self._settle()
                    return True
                self._waiting_from = row.number + 1
                self._journal.published(row.number)
                self._give_up(1, row.bytes)
        self._settle()
        return True

    def _give_up_the_rest(self) -> None:
        """Give up datagrams that a damaged file had, or that cannot be read."""
        self._give_up(self.waiting, self.waiting_bytes)
        self._waiting_from = self.next
        self._settle()

    def _give_up(self, count: int, size: int) -> None:
        self.sent.given_up += count
        self.waiting -= count
        self.waiting_bytes -= size
