"""Traffic through a relay. Publishers and subscribers are C programs that count every message."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.machine import cpu_seconds
from tests.bench.peers import Contender, Relay
from tests.bench.programs import LoadProcess, MeasurementError, Tally, words
from tests.bench.rounds import STEP, Bench, Flow
from tests.packet_client import PacketClient

CHANNEL = "local/bench"  # stays on the host, as with the brokers
PAYLOAD = 100  # bytes
PATTERNS_A_CLIENT = 1000  # the default limit is 1024


def fan_out(
    bench: Bench,
    contender: Contender,
    messages: int,
    *,
    subscribers: int = 1,
    size: int = PAYLOAD,
    channels: int = 1,
    passes: int = 20,
    pattern: str = CHANNEL,
    idle_clients: int = 0,
    patterns: int = 0,
    churn: tuple[int, str] | None = None,
) -> Flow:
    """One publisher to some subscribers, each of which gets everything, at full speed.

    `passes`: how often each of several channels is used, at least; with 1 exactly once, so that all are new to the
    relay. `idle_clients`: connected besides, each with a subscription of its own that never matches; `patterns`: so
    many more that never match either, with wildcards; `churn`: pairs of SUB and UNSUB a second, and what the
    patterns end in.
    """
    load = bench.programs.load
    if channels > 1:
        at_least = -(-passes * channels // STEP) * STEP
        messages = at_least if passes == 1 else max(messages, at_least)
    with bench.folder() as folder, contender.start(folder) as relay, ExitStack() as running:
        running.enter_context(clients_of(relay, idle_clients, patterns))
        where = {"protocol": relay.protocol, "address": relay.address}
        kind = "packets" if relay.protocol == "bus" else "stream"
        common = {**where, "size": size, "packed": contender.packed}
        taken = words(
            f"{kind}-subscribe",
            **common,
            channel=pattern,
            count=messages,
            copies=subscribers,
            block=True,
            slot=size + 1024,
        )
        receiving = running.enter_context(LoadProcess([load, *taken]))
        receiving.await_ready()
        if churn:
            rate, tail = churn
            churning = running.enter_context(
                LoadProcess([load, *words("churn", address=relay.address, rate=rate, tail=tail)])
            )
            churning.await_ready()
        cpu = cpu_seconds(relay.pid)
        sent = words(f"{kind}-publish", **common, channel=CHANNEL, count=messages, channels=channels)
        with LoadProcess([load, *sent]) as sending:
            begun, received = sending.tally(), receiving.tally()
            cpu = cpu_seconds(relay.pid) - cpu
        if churn:
            churning.end()
            _require_rate(churning.tally(), rate)
    seconds = received.last - begun.first
    if received.count != messages * subscribers or seconds <= 0:
        raise MeasurementError(f"{received.count} deliveries of {messages * subscribers}")
    return Flow(received.count / seconds, seconds, cpu / seconds)


def _require_rate(churned: Tally, rate: int) -> None:
    seconds = churned.last - churned.first
    if churned.count < 0.9 * rate * seconds - 2:
        raise MeasurementError(f"churn of {churned.count / seconds:.0f} pairs a second, {rate} were wanted")


@contextmanager
def clients_of(relay: Relay, count: int, patterns: int = 0, *, subscribed: bool = True) -> Iterator[None]:
    """Clients that never get anything, held by this process, which sleeps during a run.

    `count` with one subscription each, or none, and as many as it takes to hold `patterns`.
    """
    path = Path(relay.address.partition(":")[2])
    with ExitStack() as connected:
        for number in range(count):
            client = connected.enter_context(PacketClient(path))
            client.subscribe(*[f"local/idle/{number}"] if subscribed else [])
        for first in range(0, patterns, PATTERNS_A_CLIENT):
            client = connected.enter_context(PacketClient(path))
            client.subscribe(
                *[f"local/*/other/{n}/>" for n in range(first, min(patterns, first + PATTERNS_A_CLIENT))]
            )
        yield
