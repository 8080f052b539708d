"""Draws scenarios from seeds: one ``random.Random(seed)`` draws everything.

    draw(seed)            hosts of one segment, strangers and liars, what is said and what goes wrong
    draw(seed, "links")   two or three segments, with their uplinks and backbones
    draw(seed, "rings")   three segments, a backbone for each two of them, and two uplinks of each to each backbone

A seed of one kind has nothing to do with the same seed of another.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Literal

from tests.simulation.scenario import (
    FOREVER,
    BadSpell,
    Burst,
    Busy,
    Cut,
    CutLine,
    Element,
    HostPlan,
    Kill,
    KillBackbone,
    KillUplink,
    Liar,
    Lie,
    NetworkPlan,
    OfUplink,
    OneWay,
    Reload,
    Replace,
    ReplaceBackbone,
    Scenario,
    Stop,
    StopUplink,
    Stranger,
    StrangerSpeaks,
    Stuck,
    UplinkPlan,
)

# What may be drawn.
Kind = Literal["segment", "links", "rings"]

LIES = ("everything", "far", "unknown", "forged")


class _Drawing:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = chance = Random(seed)
        self.size = chance.choices(
            (2, 3, 4, chance.randint(5, 8), chance.randint(9, 64)), (24, 34, 25, 14, 3)
        )[0]
        self.length = chance.uniform(0.2, 1.5)  # seconds in which something is said
        # A long one now and then: more than a plain program remembers, and than some keep.
        most = 2000 if self.size < 4 and self.often(0.02) else 160
        self.messages = max(16, min(most, 4 * most // self.size))

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def time(self) -> float:
        return round(self.chance.uniform(0.01, self.length), 6)

    def host(self) -> int:
        return self.chance.randrange(self.size)

    def scenario(self) -> Scenario:
        chance = self.chance
        network = self._network()
        hosts = self._hosts()
        strangers, liars, key = (), (), self.often(0.3)
        if self.often(0.3):
            strangers = tuple(Stranger(number, self.often(0.5)) for number in range(chance.randint(1, 2)))
        if self.often(0.2):
            liars = (Liar(0, not key or self.often(0.5)),)
        elements = [*self._bursts(), *self._faults()]
        for stranger in strangers:
            elements += [self._stranger_speaks(stranger.number) for _ in range(chance.randint(0, 3))]
        for liar in liars:
            elements += [self._lie(liar.number, liar.knows_key) for _ in range(chance.randint(1, 3))]
        heartbeat = 1 if self.size <= 4 and self.often(0.5) else 10
        if self.often(0.5):  # every daemon has said that it is there before anything happens
            elements = [
                replace(each, at=each.at + heartbeat, until=each.until + heartbeat) for each in elements
            ]
            hosts = tuple(replace(host, start=host.start and host.start + heartbeat) for host in hosts)
        elements.sort(key=lambda each: each.at)
        return Scenario(self.seed, hosts, network, tuple(elements), strangers, liars, key, heartbeat)

    def _network(self) -> NetworkPlan:
        chance = self.chance
        return NetworkPlan(
            delay=chance.uniform(50e-6, 300e-6),
            jitter=chance.choice((0.0, 0.0, 100e-6, 1e-3, 3e-3)),
            late=chance.choice((0.0, 0.0, 0.01, 0.1)),
            late_seconds=chance.choice((0.002, 0.008, 0.03)),
            doubled=chance.choice((0.0, 0.0, 0.0, 0.01, 0.2)),
            echo=self.often(0.25),
        )

    def _hosts(self) -> tuple[HostPlan, ...]:
        chance = self.chance
        loss = chance.choice((0.0, 0.0, 0.005, 0.02, 0.05, 0.05, 0.1, 0.2, 0.3))
        shared = chance.choice((0.0, 0.0, 0.0, 0.01, 0.05, 0.15))
        all_repair = self.often(0.7)
        return tuple(
            HostPlan(
                number,
                repairs=all_repair or self.often(0.6),
                start=self.time() if self.often(0.07) else 0.0,
                loss=0.5 if self.often(0.03) else loss,
                uplink_loss=shared,
                buffer=chance.choice((512, 512, 512, 64, 16)),
                read_seconds=chance.choice((5e-6, 5e-6, 20e-6, 200e-6)),
                wakes=chance.choice((20e-6, 50e-6, 300e-6)),
                patterns=(">", *chance.choices(("a", "b", "a/>", "*/1"), k=chance.choice((0, 0, 0, 1, 2)))),
                keeps_pids=self.often(0.7),
                tight=self.often(0.1),
            )
            for number in range(self.size)
        )

    def _bursts(self) -> Iterator[Burst]:
        chance, left = self.chance, self.messages
        speakers = [(self.host(), program) for program in range(chance.choice((1, 2, 2, 3, 5)))]
        while left > 0:
            count = min(left, chance.choice((1, 1, 2, 5, 20, 60, self.messages // 4)))
            left -= count
            host, program = chance.choice(speakers)
            gap = chance.choice((0.0, 0.0001, 0.001, 0.001, 0.01))
            at = self.time()
            chan, size = chance.choice(("a", "a", "a/1", "b", "b/1")), chance.choice((20, 20, 200, 1000))
            yield Burst(at, at + gap * (count - 1), host, program, count, gap, chan, size)

    def _faults(self) -> Iterator[Element]:
        chance = self.chance
        for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
            at, host = self.time(), self.host()
            until = at + chance.choice((0.005, 0.03, 0.1, 0.4))
            kind = chance.randrange(10)
            if kind == 0:
                yield Cut(
                    at,
                    until,
                    tuple(sorted(chance.sample(range(self.size), chance.randint(1, self.size - 1)))),
                )
            elif kind == 1:
                yield OneWay(at, until, host, (host + chance.randrange(1, self.size)) % self.size)
            elif kind in (2, 3):
                yield BadSpell(at, until, host, chance.choice((0.5, 0.9, 1.0)), self.often(0.5))
            elif kind == 4:
                yield Busy(at, until, host)
            elif kind == 5:
                yield Stuck(at, until, host, 0 if self.often(0.5) else 1)
            elif kind == 6:
                yield Stop(at, FOREVER if self.often(0.3) else until + 0.1, host)
            elif kind == 7:
                yield Kill(at, FOREVER if self.often(0.3) else until + 0.1, host)
            elif kind == 8:
                yield Replace(at, at, host)
            else:
                yield Reload(at, at, host, self.often(0.5))

    def _stranger_speaks(self, stranger: int) -> StrangerSpeaks:
        at, count, gap = self.time(), self.chance.choice((1, 5, 30)), self.chance.choice((0.0, 0.001, 0.01))
        return StrangerSpeaks(at, at + gap * (count - 1), stranger, count, gap)

    def _lie(self, liar: int, knows_key: bool) -> Lie:
        at = self.time()
        what = self.chance.choice(LIES[:3] if knows_key else LIES)
        return Lie(
            at, at + self.chance.choice((0.0, 0.1, 0.4)), liar, what, self.chance.choice((0.002, 0.02, 0.1))
        )


class _LinkedDrawing(_Drawing):
    """Few hosts a segment, and few messages: what is looked for is between the segments."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = chance = Random(seed)
        self.segments = self._how_many()
        # Of each host.
        self.places = [
            place for place in range(self.segments) for _ in range(chance.choice((1, 1, 1, 2, 2, 3)))
        ]
        self.size = len(self.places)
        self.length = chance.uniform(0.3, 2.5)
        self.messages = chance.choice((20, 40, 80, 120))

    def _how_many(self) -> int:
        """The segments."""
        return self.chance.choice((2, 2, 2, 3, 3))

    def _topology(self) -> str:
        return self.chance.choice(("star", "ring", "chain")) if self.segments > 2 else "star"

    def _siblings(self) -> int:
        """The uplinks of a segment to one backbone."""
        return self.chance.choice((1, 1, 2))

    def scenario(self) -> Scenario:
        hosts = tuple(
            replace(host, segment=place, start=0.0)
            for host, place in zip(self._hosts(), self.places, strict=True)
        )
        uplinks, network = self._uplinks(), self._network()
        elements = [*self._bursts(), *self._faults(), *self._link_faults(uplinks)]
        if self.often(0.4):  # the segments are calm: whatever goes wrong does so between them
            hosts = tuple(
                HostPlan(host.number, patterns=host.patterns, segment=host.segment) for host in hosts
            )
            network = replace(network, jitter=0.0, late=0.0)
            between = (Burst, OfUplink, KillBackbone, ReplaceBackbone)
            elements = [each for each in elements if isinstance(each, between)]
        if self.often(0.6):  # each uplink has heard the others before anything happens
            elements = [replace(each, at=each.at + 1.5, until=each.until + 1.5) for each in elements]
        elements.sort(key=lambda each: each.at)
        return Scenario(
            self.seed,
            hosts,
            network,
            tuple(elements),
            key=self.often(0.3),
            uplinks=uplinks,
            lines=self._lines(),
        )

    def _lines(self) -> NetworkPlan:
        chance = self.chance
        return NetworkPlan(
            delay=chance.choice((0.0005, 0.005, 0.02)),
            jitter=chance.choice((0.0, 0.0, 0.002, 0.02)),
            late=chance.choice((0.0, 0.0, 0.05)),
            late_seconds=chance.choice((0.03, 0.2)),
            doubled=chance.choice((0.0, 0.0, 0.05, 0.3)),
        )

    def _uplinks(self) -> tuple[UplinkPlan, ...]:
        """Of each segment, to the backbones that its place in the topology gives it."""
        chance, last = self.chance, self.segments - 1
        topology = self._topology()
        loss = chance.choice((0.0, 0.0, 0.02, 0.1, 0.3))
        plans = []
        for segment in range(self.segments):
            exports = chance.choice(((">",), (">",), ("a", "a/>"), ("b", "a/1"), ("*/1",)))
            backbones = {
                "star": {0},
                "ring": {segment, (segment + 1) % self.segments},
                "chain": {max(0, segment - 1), min(segment, last - 1)},
            }[topology]
            for backbone in sorted(backbones):
                for _ in range(self._siblings()):
                    host = chance.choice([at for at, place in enumerate(self.places) if place == segment])
                    plans.append(
                        UplinkPlan(
                            len(plans),
                            host,
                            backbone,
                            loss,
                            exports,
                            keeps=self.often(0.6),
                            tight=self.often(0.15),
                            batch_bytes=chance.choice((1250, 1250, 0)),
                        )
                    )
        return tuple(plans)

    def _link_faults(self, uplinks: tuple[UplinkPlan, ...]) -> Iterator[Element]:
        chance = self.chance
        for _ in range(chance.choice((0, 1, 1, 2, 3))):
            at, plan = self.time(), chance.choice(uplinks)
            until = at + chance.choice((0.05, 0.3, 1.0, 3.0))
            kind = chance.randrange(8)
            if kind in (0, 1):
                yield CutLine(at, at + chance.choice((0.1, 1.0, 3.0, 6.0)), plan.number)
            elif kind in (2, 3, 4):
                if self.often(0.4):  # it ends with something that it has not got rid of
                    yield CutLine(max(0.01, at - 0.5), until, plan.number)
                yield (StopUplink if kind == 2 else KillUplink)(at, until, plan.number)
            elif kind == 5:
                yield KillBackbone(at, until, plan.backbone)
            elif kind == 6:
                yield ReplaceBackbone(at, at, plan.backbone)
            else:
                yield (Stop if self.often(0.5) else Kill)(at, until, plan.host)


class _RingDrawing(_LinkedDrawing):
    """Each message goes both ways round, by two uplinks each: whatever comes, comes again."""

    def _how_many(self) -> int:
        return 3

    def _topology(self) -> str:
        return "ring"

    def _siblings(self) -> int:
        return 2


_DRAWINGS: dict[Kind, type[_Drawing]] = {"segment": _Drawing, "links": _LinkedDrawing, "rings": _RingDrawing}


def draw(seed: int, kind: Kind = "segment") -> Scenario:
    """The scenario of a seed."""
    return _DRAWINGS[kind](seed).scenario()
