"""What a history is made of: a flat list of elements, drawn from a seed.

    draw(seed) -> Scenario: hosts, strangers, a network, what is said, what goes wrong -> World(scenario).run()

Rules
- One ``random.Random(seed)`` draws everything. A scenario is a value: the same scenario is the same history.
- Each element stands alone. Whatever is left out, the rest is a history, too; so a failing one can be shrunk
  (``shrink``). A host keeps its number when others are left out.
- Histories are short, a second or two of virtual time and some hundred messages: many small ones find more than a few
  long ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

FOREVER = float("inf")
# Seconds after the last element in which repair must come to rest, and seconds for which it must then be quiet.
SETTLING, QUIET = 2.5, 2.5


@dataclass(frozen=True)
class HostPlan:
    """``repairs``: whether its daemon takes part in repair; one that does not is as one of an older version.

    ``loss``: of each datagram that it receives; ``uplink_loss``: of each that it sends, for everybody. ``buffer``:
    datagrams that its socket holds; ``read_seconds``: what each takes to read, which bounds its rate; ``wakes``:
    seconds until its daemon looks at the socket. ``patterns``: of its subscribers.
    """

    number: int
    repairs: bool = True
    start: float = 0.0
    loss: float = 0.0
    uplink_loss: float = 0.0
    buffer: int = 512
    read_seconds: float = 5e-6
    wakes: float = 50e-6
    patterns: tuple[str, ...] = (">",)
    keeps_pids: bool = True  # its programs outlive its daemon
    tight: bool = False  # the bounds of its repair are the least there are


@dataclass(frozen=True)
class NetworkPlan:
    """Seconds and shares. ``late``: of the datagrams, that take up to ``late_seconds`` longer; ``echo``: whether a
    host hears itself.
    """

    delay: float = 0.0002
    jitter: float = 0.0
    late: float = 0.0
    late_seconds: float = 0.0
    doubled: float = 0.0
    echo: bool = False


@dataclass(frozen=True)
class Stranger:
    """A program that speaks BCCN1 itself. ``clocked``: its numbers are a clock's; else they begin at 1."""

    number: int
    clocked: bool


@dataclass(frozen=True)
class Liar:
    """Somebody on the segment who says what is not so. ``knows_key``: or there is none."""

    number: int
    knows_key: bool


@dataclass(frozen=True)
class Element:
    at: float
    until: float

    def about(self) -> tuple[int, ...]:
        """The hosts that it cannot be without."""
        return (self.host,) if hasattr(self, "host") else ()


@dataclass(frozen=True)
class Burst(Element):
    """A program publishes ``count`` messages, one every ``gap`` seconds, or all at once."""

    host: int
    program: int
    count: int
    gap: float
    chan: str = "a"
    size: int = 20


@dataclass(frozen=True)
class StrangerSpeaks(Element):
    stranger: int
    count: int
    gap: float


@dataclass(frozen=True)
class Cut(Element):
    """A partition: those of ``side`` and the others do not hear each other."""

    side: tuple[int, ...]


@dataclass(frozen=True)
class OneWay(Element):
    """``host`` does not hear ``speaker``, who hears it."""

    host: int
    speaker: int

    def about(self) -> tuple[int, ...]:
        return self.host, self.speaker


@dataclass(frozen=True)
class BadSpell(Element):
    """A link loses most (Gilbert's bad state): what the host receives, or with ``up`` what it sends."""

    host: int
    loss: float
    up: bool


@dataclass(frozen=True)
class Busy(Element):
    """The machine does something else: its daemon reads nothing, and its buffer overflows."""

    host: int


@dataclass(frozen=True)
class Stuck(Element):
    """A subscriber reads nothing for a while."""

    host: int
    client: int


@dataclass(frozen=True)
class Stop(Element):
    """The daemon stops in order, and one starts ``until`` then."""

    host: int


@dataclass(frozen=True)
class Kill(Element):
    """The daemon dies, and one starts ``until`` then."""

    host: int


@dataclass(frozen=True)
class Replace(Element):
    """Another program takes over from the running daemon."""

    host: int


@dataclass(frozen=True)
class Reload(Element):
    """New settings, in which repair is on or off."""

    host: int
    repairs: bool


@dataclass(frozen=True)
class Lie(Element):
    """``what``: a name in ``strangers.LIES``; said every ``gap`` seconds."""

    liar: int
    what: str
    gap: float


@dataclass(frozen=True)
class Scenario:
    seed: int
    hosts: tuple[HostPlan, ...]
    network: NetworkPlan
    elements: tuple[Element, ...]
    strangers: tuple[Stranger, ...] = ()
    liars: tuple[Liar, ...] = ()
    key: bool = False
    heartbeat: int = 10
    dice: int = 0  # of the network, beside the seed

    @property
    def last(self) -> float:
        """When the last thing happens but for what follows from it."""
        starts = [host.start for host in self.hosts]
        times = [each.until if each.until < FOREVER else each.at for each in self.elements]
        return max(starts + times, default=0.0)

    @property
    def end(self) -> float:
        return self.last + SETTLING + QUIET

    def without_host(self, number: int) -> "Scenario":
        return replace(
            self,
            hosts=tuple(host for host in self.hosts if host.number != number),
            elements=tuple(each for each in self.elements if number not in each.about()),
        )


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    return _Drawing(seed).scenario()


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
