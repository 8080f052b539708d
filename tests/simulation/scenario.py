"""What a history is made of: a flat list of elements, and those that they befall.

    draw(seed) -> Scenario: hosts, strangers, a network, what is said, what goes wrong -> World(scenario).run()
                            and uplinks, their lines and backbones where there are several segments

Rules
- A scenario is a value: the same scenario is the same history.
- Each element stands alone. Whatever is left out, the rest is a history, too; so a failing one can be shrunk
  (``shrink``). A host keeps its number when others are left out.
- Histories are short, a second or two of virtual time and some hundred messages: many small ones find more than a few
  long ones.
"""

from dataclasses import dataclass, replace

FOREVER = float("inf")
# Seconds after the last element in which repair must come to rest, and seconds for which it must then be quiet.
SETTLING, QUIET = 2.5, 2.5
# The same where there are uplinks: they look for what a backbone may have left out for some 10 s. And seconds after
# which their lines lose nothing any more: they say all the time that they are there, and what is lost is asked for.
LINKS_SETTLING, LINKS_LOSE = 20.0, 2.0


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
    segment: int = 0


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
class UplinkPlan:
    """A client of the daemon of ``host``, with a line to ``backbone`` that loses this share of the packets each way.

    ``exports``: patterns; ``keeps``: its journal is a file, and outlives it; ``tight``: what it keeps and holds back
    for others is the least there is; ``batch_bytes``: of its link datagrams.
    """

    number: int
    host: int
    backbone: int = 0
    loss: float = 0.0
    exports: tuple[str, ...] = (">",)
    keeps: bool = True
    tight: bool = False
    batch_bytes: int = 1250


@dataclass(frozen=True)
class Element:
    at: float
    until: float

    def about(self) -> tuple[int, ...]:
        """The hosts that it cannot be without."""
        return (self.host,) if hasattr(self, "host") else ()

    @property
    def uplink(self) -> int:
        """The uplink that it cannot be without, or -1."""
        return -1


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
class OfUplink(Element):
    """``of``: the uplink that it befalls."""

    of: int

    @property
    def uplink(self) -> int:
        return self.of


@dataclass(frozen=True)
class CutLine(OfUplink):
    """The line of an uplink carries nothing."""


@dataclass(frozen=True)
class StopUplink(OfUplink):
    """The uplink stops in order, and one starts ``until`` then."""


@dataclass(frozen=True)
class KillUplink(OfUplink):
    """The uplink dies, and one starts ``until`` then, with what its journal had written."""


@dataclass(frozen=True)
class KillBackbone(Element):
    """The backbone dies, and one starts ``until`` then, from the number that it had reserved."""

    backbone: int


@dataclass(frozen=True)
class ReplaceBackbone(Element):
    """Another program takes over from the running backbone."""

    backbone: int


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
    uplinks: tuple[UplinkPlan, ...] = ()
    lines: NetworkPlan = NetworkPlan()  # between uplinks and backbones

    @property
    def last(self) -> float:
        """When the last thing happens but for what follows from it."""
        starts = [host.start for host in self.hosts]
        times = [each.until if each.until < FOREVER else each.at for each in self.elements]
        return max(starts + times, default=0.0)

    @property
    def end(self) -> float:
        return self.last + (LINKS_SETTLING if self.uplinks else SETTLING) + QUIET

    def without_host(self, number: int) -> "Scenario":
        rest = self
        for uplink in self.uplinks:
            if uplink.host == number:
                rest = rest.without_uplink(uplink.number)
        return replace(
            rest,
            hosts=tuple(host for host in self.hosts if host.number != number),
            elements=tuple(each for each in rest.elements if number not in each.about()),
        )

    def without_uplink(self, number: int) -> "Scenario":
        return replace(
            self,
            uplinks=tuple(each for each in self.uplinks if each.number != number),
            elements=tuple(each for each in self.elements if each.uplink != number),
        )
