"""A backbone and its clients on a network of virtual time, which loses, doubles and delays as its seed says.

Events happen one after the other; nothing waits. What a client passes on is in its ``Ear``.
"""

import random
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from bccnd.backbone.numbers import RESERVE
from bccnd.uplink.fyrehose import Client, Options
from bccnd.wire.fyrehose import Address
from tests.backbone.packets import Desk

BACKBONE: Address = bytes([10, 0, 0, 1]), 4900


class Shelf(dict[int, bytes]):
    """An ``Archive`` that keeps the last ``limit`` messages. ``looks``: how often it was looked into."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit, self.looks = limit, 0

    def keep(self, position: int, datagram: bytes) -> None:
        self[position] = datagram
        if len(self) > self.limit:
            del self[min(self)]

    def kept(self, first: int, last: int) -> list[tuple[int, bytes]]:
        self.looks += 1
        if last - first > len(self):
            return sorted((at, each) for at, each in self.items() if first <= at <= last)
        return [(at, self[at]) for at in range(first, last + 1) if at in self]


class Ear:
    """A ``Hearer``. ``heard``: position -> message; ``came_at``: and when, by ``clock``; ``completes``: in order;
    ``changes``: how often.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.heard: dict[int, bytes] = {}
        self.came_at: dict[int, float] = {}
        self._clock = clock
        self.completes: list[int] = []
        self.numbers: list[int] = []
        self.changes = 0
        self.on_change: Callable[[], None] = lambda: None

    def came(self, position: int, datagram: bytes) -> None:
        assert self.heard.setdefault(position, datagram) == datagram
        self.came_at.setdefault(position, self._clock())

    def complete(self, position: int) -> None:
        assert not self.completes or position > self.completes[-1]
        self.completes.append(position)

    def published(self, number: int) -> None:
        self.numbers.append(number)

    def changed(self) -> None:
        self.changes += 1
        self.on_change()

    @property
    def messages(self) -> set[bytes]:
        return set(self.heard.values())


class Station:
    """A client in the world, at an address of its own. What it is to publish waits in ``outbox``."""

    def __init__(self, world: "World", index: int, options: Options, position: int, shelf: Shelf) -> None:
        self.address: Address = bytes([10, 0, 1, index]), 5000 + index
        self.ear, self.shelf, self.outbox = Ear(lambda: world.now), shelf, dict[int, bytes]()
        self.client = Client(options, self.ear, shelf, world.chance.random, b"sixteen or more bytes")
        self.ear.on_change = self.fill
        self._world, self._next, self._wakes_at = world, 1, float("inf")
        self.published_at: dict[int, float] = {}
        self.client.begin(position)
        self.client.move(BACKBONE, self.address, world.now)
        world.stations[self.address] = self
        self.went_on()

    def say_each_second(self) -> None:
        """As the core does, so that the loss of a last message shows."""
        self.client.say(b"status %d" % self.address[1])
        self.went_on()
        self._world.at(self._world.now + 1.0, self.say_each_second)

    def publish(self, *messages: bytes) -> None:
        for message in messages:
            self.outbox[self._next] = message
            self._next += 1
        self.fill()
        self.went_on()

    def fill(self) -> None:
        while self.outbox and self.client.room:
            number = next(iter(self.outbox))
            self.client.publish(number, self.outbox.pop(number), self._world.now)

    def receive(self, packet: bytes, source: Address) -> None:
        self.client.receive([(packet, source)], self._world.now)
        self.went_on()

    def went_on(self) -> None:
        for packet, to in self.client.take():
            self._world.send(packet, self.address, to)
        due = max(self.client.next_deadline(), self._world.now)
        if due < self._wakes_at:
            self._wakes_at = due
            self._world.at(due, lambda: self._wake(due))

    def _wake(self, due: float) -> None:
        if due == self._wakes_at:
            self._wakes_at = float("inf")
            self.client.on_deadline(self._world.now)
            self.went_on()


class World:
    """``loss``, ``doubling``: shares of the packets; ``delay``: seconds at least, and the further ones that are
    random. ``sent``: packets by kind.
    """

    def __init__(self, seed: int = 1, loss: float = 0.0, doubling: float = 0.0,
                 delay: tuple[float, float] = (0.01, 0.0)) -> None:  # fmt: skip
        self.chance = random.Random(seed)
        self.loss, self.doubling, self.delay = loss, doubling, delay
        self.now = 1000.0
        self.sent: dict[int, int] = {}
        self.stations: dict[Address, Station] = {}
        self.cut: set[Address] = set()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._backbone: Desk | None = None
        self.bound = 1
        self.start()

    def start(self, first: int = 0) -> None:
        """Start the backbone, with the number that it has reserved, or with this one."""
        first = first or self.bound
        self._backbone = Desk(self.chance.randrange)
        self._backbone.core.numbers.next, self.bound = first, first + RESERVE

    def kill(self) -> None:
        self._backbone = None

    def station(self, options: Options = Options(), position: int = 0, limit: int = 1 << 30) -> Station:  # noqa: B008
        return Station(self, len(self.stations) + 1, options, position, Shelf(limit))

    def at(self, when: float, what: Callable[[], None]) -> None:
        heappush(self._events, (when, next(self._order), what))

    def send(self, packet: bytes, source: Address, to: Address) -> None:
        self.sent[packet[0]] = self.sent.get(packet[0], 0) + 1
        for _ in range(1 + (self.chance.random() < self.doubling)):
            if self.chance.random() >= self.loss and not {source, to} & self.cut:
                wait = self.delay[0] + self.delay[1] * self.chance.random()
                self.at(self.now + wait, lambda: self._arrive(packet, source, to))

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """``until`` is looked at each few milliseconds."""
        end, look = self.now + seconds, self.now
        while self._events and self._events[0][0] <= end:
            if self._events[0][0] >= look:
                if until():
                    return
                look = self.now + 0.005
            self.now, _, what = heappop(self._events)
            what()
        if not until():
            self.now = end

    def settle(self, until: Callable[[], bool], seconds: float = 300.0) -> None:
        self.run(seconds, until)
        assert until(), "it never happened"

    def _arrive(self, packet: bytes, source: Address, to: Address) -> None:
        if to != BACKBONE:
            if station := self.stations.get(to):
                station.receive(packet, source)
            return
        backbone = self._backbone
        if backbone is not None:
            backbone.now = self.now
            delivered, replies = backbone.receive((packet, source))
            for reply, address in replies:
                self.send(reply.serialize(), BACKBONE, address)
            for message in delivered:
                for address in backbone.core.subscribers.addresses:
                    self.send(message.serialize(), BACKBONE, address)


def numbered(name: str, count: int) -> list[bytes]:
    return [b"%b %d" % (name.encode(), index) for index in range(count)]


def connected(world: World, *stations: Station) -> None:
    world.settle(lambda: all(each.client.connected for each in stations))
