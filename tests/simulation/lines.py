"""Between the segments: the lines of uplinks, and the backbones to which they lead.

    UplinkProgram --packets--> Lines --> BackboneProgram, or another uplink, which answers what was missed

Rules
- The dice for a packet depend on what is in it, on how often that was sent, on both ends and on the seed.
- What is lost is lost on the line of either uplink. LINKS_LOSE seconds after the last element the lines lose, double
  and delay nothing any more: uplinks say all the time that they are there, so there would be no end of repairs.
- A backbone is a real core, which gives every message its number; that no number is given twice is looked at here.
"""

from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from bccnd.backbone.core import Backbone
from bccnd.wire.fyrehose import (
    ACK,
    DELIVER,
    FORWARD,
    HEAD_BYTES,
    KEEPALIVE,
    PUSH,
    REQUEST,
    Address,
    Deliver,
    Forward,
    Request,
    parse,
)
from bccnd.wire.link import STATUS_CHANNEL
from tests.backbone.packets import Desk
from tests.simulation.invariants import Broken
from tests.simulation.network import MASK, roll
from tests.simulation.scenario import LINKS_LOSE, CutLine, Scenario

if TYPE_CHECKING:
    from tests.simulation.world import World

KINDS = {
    DELIVER: "deliver",
    PUSH: "push",
    REQUEST: "request",
    FORWARD: "forward",
    KEEPALIVE: "keepalive",
    ACK: "ack",
}
# What is sent for as long as there is an uplink: that it is there, and what it says of itself.
AT_REST = {"keepalive", "ack", "status"}


class Station(Protocol):
    """``line``: the number of the uplink, or -1."""

    name: str
    line: int

    def receive(self, packet: bytes, source: Address) -> None: ...


def is_status(data: bytes) -> bool:
    """Whether a link datagram says of its sender what it says all the time."""
    return STATUS_CHANNEL + b"|" in data[:160]


class Lines:
    def __init__(self, world: "World") -> None:
        scenario: Scenario = world.scenario
        self._world, self._plan = world, scenario.lines
        self._seed = roll(scenario.seed & MASK, scenario.dice, 11)
        self._loss = {plan.number: plan.loss for plan in scenario.uplinks}
        self._cuts = [each for each in scenario.elements if isinstance(each, CutLine)]
        self._calm_from = scenario.last + LINKS_LOSE
        self._stations: dict[Address, Station] = {}
        self._clear_at: defaultdict[tuple[Address, Address], float] = defaultdict(float)
        self._times: defaultdict[tuple[int, Address, Address], int] = defaultdict(int)

    def join(self, address: Address, station: Station) -> None:
        self._stations[address] = station

    def leave(self, address: Address) -> None:
        self._stations.pop(address, None)

    def send(self, packet: bytes, source: Address, to: Address) -> None:
        world, plan, now = self._world, self._plan, self._world.now
        kind = KINDS[packet[0]]
        if packet[0] in (DELIVER, PUSH) and is_status(packet[HEAD_BYTES:]):
            kind = "status"
        sender, station = self._stations[source], self._stations.get(to)
        world.at_rest(sender.name, kind, packet, known=kind in AT_REST)
        what = packet[HEAD_BYTES:] if packet[0] == DELIVER else packet
        key = crc32(what), source, to
        times = self._times[key] = self._times[key] + 1
        if station is None:
            return
        ends = [line for line in (sender.line, station.line) if line >= 0]
        arrives = now + plan.delay
        dice = roll(key[0], times, *source[0][2:], *to[0][2:], self._seed)
        if any(cut.of in ends and cut.at <= now < cut.until for cut in self._cuts):
            world.story.tell(now, f"{station.name} does not get a {kind} of {sender.name}: a line is cut")
            return
        if now >= self._calm_from:
            world.at(arrives, self._arrive, packet, source, to)
            return
        for end in ends:
            if roll(dice, 1, end) < self._loss[end] * MASK:
                world.story.tell(now, f"{station.name} does not get a {kind} of {sender.name}: it is lost")
                return
        arrives += plan.jitter * roll(dice, 3) / MASK
        if roll(dice, 4) < plan.late * MASK:
            arrives += plan.late_seconds * roll(dice, 5) / MASK
        else:
            arrives = self._clear_at[source, to] = max(arrives, self._clear_at[source, to])
        world.at(arrives, self._arrive, packet, source, to)
        if roll(dice, 6) < plan.doubled * MASK:
            world.at(arrives + 0.01 * roll(dice, 7) / MASK, self._arrive, packet, source, to)

    def _arrive(self, packet: bytes, source: Address, to: Address) -> None:
        if (station := self._stations.get(to)) is not None:
            station.receive(packet, source)


class BackboneProgram:
    """``up``: whether it runs; ``given``: number -> the message that has it, of all its lives."""

    line = -1

    def __init__(self, number: int, world: "World") -> None:
        self.world, self.number = world, number
        self.name = f"b{number}"
        self.address: Address = bytes([10, 2, 0, number]), 4900
        self.up = False
        self.given: dict[int, bytes] = {}
        self._lives = 0
        self._stored = 1  # what the file holds
        self._desk = self._new_desk()

    def start(self) -> None:
        if self.up:
            return
        self.up = True
        self._desk = self._new_desk()
        self._core.numbers.next = self._core.numbers.bound = self._stored
        self._reserve()
        self.world.lines.join(self.address, self)
        self.world.story.tell(self.world.now, f"{self.name} starts at number {self._stored}")

    def kill(self) -> None:
        self.world.story.tell(self.world.now, f"{self.name} is killed")
        self.up = False
        self.world.lines.leave(self.address)

    def replace(self) -> None:
        """Another program goes on with its state."""
        if self.up:
            self.world.story.tell(self.world.now, f"{self.name} is replaced")
            state = self._core.state()
            self._desk = self._new_desk()
            self._core.restore(state)

    @property
    def _core(self) -> Backbone:
        return self._desk.core

    def _new_desk(self) -> Desk:
        self._lives += 1
        return Desk(Random(roll(self.world.scenario.seed & MASK, 13, self.number, self._lives)).randrange)

    def _reserve(self) -> None:
        """As the service does with its file."""
        if wanted := self._core.numbers.wanted:
            self._stored = self._core.numbers.bound = wanted

    def receive(self, packet: bytes, source: Address) -> None:
        world, lines = self.world, self.world.lines
        self._desk.now = world.now
        delivered, replies = self._desk.receive((packet, source))
        self._reserve()
        for reply, to in replies:
            lines.send(reply.serialize(), self.address, to)
        for message in delivered:
            assert isinstance(message, Deliver)
            if message.seq in self.given:
                raise Broken("number", f"{self.name} gives the number {message.seq} a second time")
            self.given[message.seq] = message.data
            world.crossings.numbered(self, message.seq, message.data)
            for to in list(self._core.subscribers.addresses):
                lines.send(message.serialize(), self.address, to)


def in_words(packet: bytes) -> str:
    """A packet for people."""
    found = parse(packet)
    return f"{found.first} to {found.last}" if isinstance(found, Request | Forward) else repr(found)[:160]
