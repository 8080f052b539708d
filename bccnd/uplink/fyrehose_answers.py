"""Answers other clients of a fyrehose backbone that miss messages.

    FORWARD --> a range of its requester, in line --> DELIVERs, as fast as its allowance lets them go

Rules
- Answers go to the address in the FORWARD, which the backbone vouches for. Anybody who can send in the backbone's
  name can direct messages to a victim: this carrier belongs in controlled networks (``bccnd/wire/FYREHOSE.md``,
  "Security"). The allowances bound what a victim gets.
- Requesters take turns; an address has one allowance, however many ports it names.
- A look into the archive costs as much as a datagram: asking for what is not kept is no cheaper.
"""

from collections import deque
from collections.abc import Iterator

from bccnd.relay.allowance import Allowance
from bccnd.uplink.carrier import Archive
from bccnd.wire.fyrehose import SEQ_LIMIT, Address, Deliver

# Units a second and at once, for one address and for all: six megabytes a second for one, and at once as much as the
# buffer of a plain socket holds.
UNITS, UNITS_AT_ONCE = 4096, 64
ALL_UNITS, ALL_UNITS_AT_ONCE = 16_384, 256
# Units that must be free before another turn pays.
AT_ONCE = 16
# Bytes of a datagram that cost one unit; longer ones cost several.
UNIT_BYTES = 1500
# Numbers of a FORWARD that are looked at: as many as our backbone allows.
RANGE = 256
# Numbers of one look into the archive, which bounds the memory that it takes.
LOOK = 32
# Addresses in line, and ranges of each. A requester that is refused asks again.
ADDRESSES_LIMIT, RANGES_LIMIT = 256, 32


class _Requester:
    """``ranges``: the numbers that it still gets, each with address and port."""

    __slots__ = ("allowance", "ranges")

    def __init__(self, now: float) -> None:
        self.allowance = Allowance(UNITS, UNITS_AT_ONCE)
        self.allowance.has(now)
        self.ranges: deque[tuple[Address, int, int]] = deque()


class Answers:
    """``answered``: datagrams that went out, since the start; ``refused``: ranges that found no place."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._requesters: dict[bytes, _Requester] = {}  # whose turn is next comes first
        self._all = Allowance(ALL_UNITS, ALL_UNITS_AT_ONCE)
        # Datagrams that were looked up and not sent yet: at most LOOK, for one requester.
        self._found: deque[tuple[bytes, Address]] = deque()
        self._next = float("inf")
        self.answered = self.refused = 0

    def next_deadline(self) -> float:
        return self._next

    def ask(self, address: Address, first: int, last: int, now: float) -> None:
        """A client at this address misses these numbers."""
        requester = self._requesters.get(address[0])
        if requester is None:
            self._forget(now)
            if len(self._requesters) >= ADDRESSES_LIMIT:
                self.refused += 1
                return
            requester = self._requesters[address[0]] = _Requester(now)
        wanted = address, first, min(last, first + RANGE - 1)
        if len(requester.ranges) >= RANGES_LIMIT or wanted in requester.ranges:
            self.refused += 1
            return
        requester.ranges.append(wanted)
        self._next = min(self._next, now)

    def take(self, base: int, now: float) -> Iterator[tuple[bytes, Address]]:
        """The packets to send now. ``base``: the position of the number 0."""
        if now < self._next:
            return
        while (wait := self._ready(base, now)) <= now:
            packet, address = self._found.popleft()
            for _ in range(_cost(packet)):
                self._all.take(now)
                self._requesters[address[0]].allowance.take(now)
            self.answered += 1
            yield packet, address
        self._next = wait

    def _ready(self, base: int, now: float) -> float:
        """When the first of what was found can go; infinite if nobody waits."""
        while not self._found:
            waits = []
            for addr, requester in self._requesters.items():
                if requester.ranges:
                    waits.append(requester.allowance.when(now, AT_ONCE))
                    if requester.allowance.has(now) and self._all.has(now):
                        self._look(addr, requester, base, now)
                        break
            else:
                return max(min(waits), self._all.when(now, 1)) if waits else float("inf")
        packet, address = self._found[0]
        cost = _cost(packet)
        allowances = self._requesters[address[0]].allowance, self._all
        if max(each.when(now, cost) for each in allowances) <= now:
            return now
        return max(each.when(now, max(cost, AT_ONCE)) for each in allowances)

    def _look(self, addr: bytes, requester: _Requester, base: int, now: float) -> None:
        """Find the first of what a requester wants; the others have their turn before its next."""
        self._requesters[addr] = self._requesters.pop(addr)
        requester.allowance.take(now)
        self._all.take(now)
        address, first, last = requester.ranges.popleft()
        until = min(last, first + LOOK - 1)
        if until < last:
            requester.ranges.appendleft((address, until + 1, last))
        for position, datagram in self._archive.kept(base + first, base + until):
            self._found.append((Deliver(position % SEQ_LIMIT, datagram).serialize(), address))

    def _forget(self, now: float) -> None:
        """Forget requesters that wait for nothing, and whose allowance is full again."""
        waiting = {address[0] for _, address in self._found}
        for addr in [
            addr
            for addr, each in self._requesters.items()
            if not each.ranges and addr not in waiting and each.allowance.when(now, UNITS_AT_ONCE) <= now
        ]:
            del self._requesters[addr]


def _cost(packet: bytes) -> int:
    return 1 + len(packet) // UNIT_BYTES
