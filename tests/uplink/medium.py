"""A link medium in memory, as carriers see it: one order of positions for all, and as bad as its ``random`` makes it.

    Medium.attach(hearer) -> Memory, a Carrier --publish, say--> the medium --came, complete, published--> hearers

What is published may be lost on the way in (then it is tried again) and may get several positions; what has a
position comes to each hearer in any order, several times, or never, and then ``complete`` says so.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from bccnd.uplink.carrier import Facts, Hearer


@dataclass
class Faults:
    """Chances: that something is lost on its way to the medium, doubled there, kept for later, or lost for good on
    its way to one hearer.
    """

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    gone: float = 0.0


class Memory:
    """The Carrier of one uplink. Cut off, it has no room."""

    def __init__(self, medium: "Medium", hearer: Hearer, limit: int) -> None:
        self.medium, self.hearer = medium, hearer
        self.connected = True
        self.limit = limit
        self.in_flight: dict[int, bytes] = {}
        self.said = 0
        self.taken_below = 0
        self.to_come: list[int] = []  # positions
        self.next = len(medium.order)

    @property
    def room(self) -> int:
        return max(0, self.limit - len(self.in_flight)) if self.connected else 0

    def publish(self, number: int, datagram: bytes, channel: bytes) -> None:  # noqa: ARG002
        assert self.room > 0
        assert number not in self.in_flight
        self.in_flight[number] = datagram

    def say(self, datagram: bytes) -> None:
        self.said += 1
        if self.connected and self.medium.random.random() >= self.medium.faults.lost:
            self.medium.order.append(datagram)

    def taken(self, position: int) -> None:
        self.taken_below = position

    async def run(self, position: int) -> None:
        self.begin(position)

    def begin(self, position: int) -> None:
        """What ``run`` does, at once. ``position``: of the first that is wanted, 0 for what comes from now on."""
        self.next = position or len(self.medium.order)
        self.to_come = []

    def facts(self) -> Facts:
        return Facts("" if self.connected else "cut off")


@dataclass
class Medium:
    random: Random
    faults: Faults = field(default_factory=Faults)
    order: list[bytes] = field(default_factory=lambda: [b""])  # a datagram for each position; none has 0
    carriers: list[Memory] = field(default_factory=list)

    def attach(self, hearer: Hearer, limit: int = 64) -> Memory:
        carrier = Memory(self, hearer, limit)
        self.carriers.append(carrier)
        return carrier

    def turn(self) -> None:
        """Everybody publishes what is under way, and hears something."""
        for carrier in self.random.sample(self.carriers, len(self.carriers)):
            if carrier.connected:
                self._take_in(carrier)
        for carrier in self.random.sample(self.carriers, len(self.carriers)):
            if carrier.connected:
                self._hand_out(carrier)

    def settle(self, turns: int = 200) -> None:
        """Without faults, until nothing is under way."""
        self.faults = Faults()
        for _ in range(turns):
            self.turn()

    def _take_in(self, carrier: Memory) -> None:
        for number in self._shuffled(carrier.in_flight):
            if self.random.random() < self.faults.lost:
                continue
            self.order.append(carrier.in_flight[number])
            if self.random.random() < self.faults.doubled:
                self.order.append(carrier.in_flight[number])
            if self.random.random() >= self.faults.lost:  # else it is published again, under the same number
                del carrier.in_flight[number]
                carrier.hearer.published(number)
        carrier.hearer.changed()

    def _hand_out(self, carrier: Memory) -> None:
        carrier.to_come += range(carrier.next, len(self.order))
        carrier.next = len(self.order)
        kept = []
        for position in self._shuffled(carrier.to_come):
            if self.random.random() < self.faults.late:
                kept.append(position)
            elif self.random.random() >= self.faults.gone and self.order[position]:
                for _ in range(1 + (self.random.random() < self.faults.doubled)):
                    carrier.hearer.came(position, self.order[position])
        carrier.to_come = kept
        carrier.hearer.complete(min(kept, default=carrier.next))

    def _shuffled(self, items: Iterable[int]) -> list[int]:
        found = list(items)
        if self.faults != Faults():
            self.random.shuffle(found)
        return found
