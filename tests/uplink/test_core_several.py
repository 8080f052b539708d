"""Several segments with several uplinks each, in virtual time: each message reaches every segment once and in order,
while the medium loses, repeats and delays, and uplinks are killed or stopped, and come back.
"""

import tempfile
from pathlib import Path
from random import Random

import pytest

from bccnd.uplink.core import EARLY_SECONDS, Uplink
from bccnd.uplink.journal import Journal, Limits
from bccnd.wire.link import inner
from tests.uplink.medium import Faults, Medium, Memory
from tests.uplink.segment import IN_MEMORY, Clock, datagram, killed, options

STEP = 0.02  # seconds of virtual time


class Place:
    """A segment: a daemon that drops what it has had, a program, and an uplink to each medium that is named."""

    def __init__(self, name: bytes, media: list[Medium], clock: Clock, folder: Path) -> None:
        self.name, self.clock = name, clock
        self.src = name + b"01/door/7"
        self.said = 0
        self.heard: dict[bytes, list[int]] = {}
        self.bridges = [
            Bridge(self, medium, folder / f"{name.decode()}{n}") for n, medium in enumerate(media)
        ]

    def say(self) -> None:
        self.said += 1
        self.spread(datagram(self.said, src=self.src), None)

    def spread(self, message: bytes, by: "Bridge | None") -> None:
        """A message is on the segment; the daemon passes on what is new to it."""
        found = inner(message)
        assert found
        numbers = self.heard.setdefault(found[1], [])
        if not numbers or found[2] > numbers[-1]:
            numbers.append(found[2])
            for bridge in self.bridges:
                if bridge is not by and bridge.uplink is not None:
                    bridge.uplink.offer(message)


class Bridge:
    """An uplink, and what is left of it when it is killed."""

    def __init__(self, place: Place, medium: Medium, path: Path) -> None:
        self.place, self.medium, self.path = place, medium, path
        self.uplink: Uplink | None = None
        self.start()

    def start(self) -> None:
        clock = self.place.clock
        self.journal = Journal(self.path, Limits(), clock)
        self.journal.open()
        self.uplink = Uplink(options(self.place.name, batch_bytes=200), self.journal, clock, clock.ns)
        self.uplink.carrier = self.carrier = self.medium.attach(self.uplink)
        self.carrier.begin(self.uplink.begin())
        self.uplink.hosts([self.place.name + b"01"])
        self.started = clock.now

    def kill(self) -> None:
        self.medium.carriers.remove(self.carrier)
        killed(self.journal)
        self.uplink = None

    def stop(self) -> None:
        self.turn()
        self.medium.carriers.remove(self.carrier)
        self.journal.close()
        self.uplink = None

    def turn(self) -> None:
        if self.uplink is None:
            return
        self.uplink.flush()
        while batch := self.uplink.take():
            for message in batch:
                self.place.spread(message, self)
        if self.place.clock.now >= self.uplink.next_deadline():
            self.uplink.on_deadline()


class World:
    """``places``: name -> numbers of the media to which it has an uplink each."""

    def __init__(self, seed: int, folder: str, faults: Faults, places: dict[bytes, list[int]]) -> None:
        self.random, self.clock, self.faults = Random(seed), Clock(), faults
        count = 1 + max(number for numbers in places.values() for number in numbers)
        self.media = [Medium(self.random) for _ in range(count)]
        self.places = [
            Place(name, [self.media[number] for number in numbers], self.clock, Path(folder))
            for name, numbers in places.items()
        ]
        self.bridges = [bridge for place in self.places for bridge in place.bridges]
        for place in self.places:  # with its first message each link begins, and with it what is promised
            place.say()
        self.run(3.0)
        self.disturb()

    def disturb(self) -> None:
        for medium in self.media:
            medium.faults = self.faults

    def run(self, seconds: float, talk: float = 0.0) -> None:
        """``talk``: the chance that a program says something in a step."""
        for _ in range(round(seconds / STEP)):
            self.clock.now += STEP
            for place in self.places:
                while self.random.random() < talk:
                    place.say()
            for bridge in self.random.sample(self.bridges, len(self.bridges)):
                bridge.turn()
            for medium in self.media:
                medium.turn()

    def settle(self) -> None:
        for medium in self.media:
            medium.faults = Faults()
        for bridge in self.bridges:
            if bridge.uplink is None:
                bridge.start()
            bridge.carrier.connected = True
        self.run(4.0)

    def close(self) -> None:
        for bridge in self.bridges:
            bridge.journal.close()

    def heard(self) -> list[dict[bytes, list[int]]]:
        return [place.heard for place in self.places]

    def said(self) -> dict[bytes, list[int]]:
        return {place.src: list(range(1, place.said + 1)) for place in self.places}


FAULTS = Faults(lost=0.1, doubled=0.1, late=0.3)


@pytest.mark.parametrize("seed", range(6))
def test_either_of_two_uplinks_may_go_under_load(seed: int) -> None:
    """As long as the other one is there, and has been for the time that it takes to join."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        world = World(seed, folder, FAULTS, {b"berlin": [0, 0], b"paris": [0, 0], b"rome": [0]})
        for _ in range(8):
            world.run(0.5 + world.random.random(), talk=0.5)
            place = world.random.choice(world.places[:2])
            bridge, other = world.random.sample(place.bridges, 2)
            if bridge.uplink is None:
                bridge.start()
            elif other.uplink and world.clock.now - other.started > EARLY_SECONDS + 0.5:
                world.random.choice([bridge.kill, bridge.stop])()
        world.settle()
        assert world.heard() == [world.said()] * 3
        world.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_ring_of_three_carries_on_when_any_link_fails(seed: int) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        world = World(seed, folder, FAULTS, {b"berlin": [0, 2], b"paris": [0, 1], b"rome": [1, 2]})
        world.run(3.0, talk=0.4)
        broken = world.media[world.random.randrange(3)]
        for carrier in broken.carriers:
            carrier.connected = False
        world.run(3.0, talk=0.4)
        world.settle()
        assert world.heard() == [world.said()] * 3
        carried = sum(isinstance(carrier, Memory) for medium in world.media for carrier in medium.carriers)
        assert carried == 6
        world.close()
