"""What repair delivers, and how late, over the loss of a network: the figures of the chart.

    table()              one line for each loss and load
    shared_losses()      how many ask when a loss befalls everybody

Each figure is of one history of given seed, so it is the same each time.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from tests.simulation.invariants import delivered_share
from tests.simulation.scenario import BadSpell, Burst, HostPlan, NetworkPlan, Scenario
from tests.simulation.world import World

LOSSES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
# Sources, and messages a second of all of them.
LOADS = ((1, 1_000), (10, 1_000), (1, 10_000))
MESSAGES = 20_000
DELAY = 0.0002
# Seconds: by then every daemon has said that it is there.
BEGIN = 11.0


@dataclass(frozen=True)
class Measured:
    """``sent``, ``lost``: messages, for each receiver; ``delays``: seconds beyond those of a network without loss,
    sorted; ``counts``: datagrams sent, by kind.
    """

    sent: int
    lost: int
    delays: list[float]
    counts: Counter[str]

    @property
    def share(self) -> float:
        """Of the messages, delivered."""
        return 1 - self.lost / self.sent

    @property
    def traffic(self) -> float:
        """Datagrams sent for each message."""
        return sum(self.counts.values()) / self.counts["message"]

    def delay(self, share: float) -> float:
        return self.delays[min(len(self.delays) - 1, int(share * len(self.delays)))] if self.delays else 0.0


def measure(
    *,
    hosts: int,
    sources: int,
    rate: float,
    loss: float,
    messages: int = MESSAGES,
    repairs: bool = True,
    seed: int = 1,
) -> Measured:
    """``rate``: messages a second of all sources, which are on host 0; ``loss``: of each receiver by itself."""
    each = messages // sources
    gap = sources / rate
    bursts = tuple(
        Burst(BEGIN + gap * source / sources, BEGIN + gap * each, 0, source, each, gap, "a", 80)
        for source in range(sources)
    )
    plans = tuple(HostPlan(number, repairs=repairs, loss=loss if number else 0.0) for number in range(hosts))
    world = World(Scenario(seed, plans, NetworkPlan(delay=DELAY), bursts))
    world.run()
    counts = delivered_share(world)
    usual = DELAY + plans[0].wakes
    publishers = world.ledger.publishers
    delays = sorted(
        max(0.0, when - publishers[number].times[index] - usual)
        for host in world.hosts.values()
        if host.number
        for number, index, when in host.witness.got
    )
    lost = counts["sent"] - counts["delivered"]
    return Measured(counts["sent"], lost, delays, world.network.counts)


def requests_for_shared(*, hosts: int, seed: int) -> int:
    """How many requests are sent for a message that its sender's link loses, and so everybody."""
    burst = Burst(BEGIN, BEGIN + 0.01, 0, 0, 3, 0.005, "a", 80)
    spell = BadSpell(BEGIN + 0.004, BEGIN + 0.006, 0, 1.0, up=True)
    plans = tuple(HostPlan(number) for number in range(hosts))
    world = World(Scenario(seed, plans, NetworkPlan(delay=DELAY), (burst, spell)))
    world.run()
    return world.network.counts["repair/resend"]


def shared_losses(hosts: int = 64, seeds: int = 50) -> Iterator[str]:
    """How often there were so many requests for a loss that all share."""
    counts = Counter(requests_for_shared(hosts=hosts, seed=seed) for seed in range(seeds))
    found = ", ".join(f"{times} times {requests}" for requests, times in sorted(counts.items()))
    yield f"{hosts} hosts that all miss one message: median {median(counts.elements()):g} requests; {found}"


def table(hosts: int = 3) -> Iterator[str]:
    """Delivered shares and added delays, in milliseconds, with ``hosts`` of which one speaks."""
    yield f"{hosts} hosts, of which one sends, {MESSAGES} messages; milliseconds beyond those without loss"
    yield "sources   msg/s   loss   delivered     p50     p99   p99.9  traffic"
    for sources, rate in LOADS:
        for loss in LOSSES:
            found = measure(hosts=hosts, sources=sources, rate=rate, loss=loss)
            delays = "  ".join(f"{1000 * found.delay(share):6.1f}" for share in (0.5, 0.99, 0.999))
            yield f"{sources:7}  {rate:6}  {loss:5.0%}  {found.share:10.4%}  {delays}  {found.traffic:7.2f}"
