"""The cost of a daemon with little to do: memory, processor time, and the time from its start to its first answer."""

import time
from contextlib import ExitStack
from functools import partial
from statistics import median

from tests.bench.charts import Bars, Lines
from tests.bench.loads import CHANNEL, clients_of
from tests.bench.machine import cpu_seconds, resident_kib
from tests.bench.peers import Contender, Relay
from tests.bench.programs import LoadProcess, MeasurementError, words
from tests.bench.results import Figure, Report, Series
from tests.bench.rounds import STEP, Bench

CLIENTS = 1000
FULL_CACHE = 1 << 18  # channels, by default (limits.channels_cached)
SOAK_RATE = 5000  # messages a second
SOAK_SAMPLES = 120


def memory(bench: Bench) -> Report:
    report = Report("Memory (RSS)")
    idle = bench.alternate(
        {each.name: partial(_idle_mb, bench, each) for each in (bench.ours, *bench.brokers)}, report.faults
    )
    report.charts = [Bars("memory", "Memory of an idle relay", "MB", {"": idle})]
    for broker in bench.brokers:
        report.compare(f"memory/idle/{broker.name}", "idle", "MB", idle, "bccnd", broker.name)
    cases = {
        "idle": ("idle", "MB", lambda: _idle_mb(bench, bench.ours)),
        "client": ("an idle client", "KB", lambda: _kb_a_client(bench, subscribed=False)),
        "subscriber": (
            "an idle client with one subscription",
            "KB",
            lambda: _kb_a_client(bench, subscribed=True),
        ),
        "channels": (
            f"growth from {3 * FULL_CACHE} to {6 * FULL_CACHE} channels seen",
            "MB",
            lambda: _growth_mb(bench),
        ),
    }
    for key, (title, unit, measure) in cases.items():
        values = bench.alternate({"bccnd": measure}, report.faults).get("bccnd")
        if values:
            report.figures.append(Figure(f"memory/{key}", title, unit, Series("bccnd", values)))
    if bench.soak_seconds:
        _soak(bench, report)
    return report


def start_and_idle(bench: Bench) -> Report:
    report = Report("Start and idleness")
    contenders = (bench.ours, *bench.brokers)
    took = bench.alternate({each.name: partial(_start_ms, bench, each) for each in contenders}, report.faults)
    report.charts = [Bars("start", "From the start to the first connection taken", "ms", {"": took})]
    for broker in bench.brokers:
        report.compare(f"start/{broker.name}", "start to the first answer", "ms", took, "bccnd", broker.name)
    if "bccnd" in took:
        report.figures.append(
            Figure("start", "start to the first answer", "ms", Series("bccnd", took["bccnd"]))
        )
    used = bench.alternate({"bccnd": partial(_idle_percent, bench)}, report.faults).get("bccnd")
    if used:
        title = f"idle with {CLIENTS // 10} clients, % of a core"
        report.figures.append(Figure("idle/cpu", title, "%", Series("bccnd", used)))
    return report


def _idle_mb(bench: Bench, contender: Contender) -> float:
    with bench.folder() as folder, contender.start(folder) as relay:
        return resident_kib(relay.pid) / 1024


def _kb_a_client(bench: Bench, *, subscribed: bool) -> float:
    count = CLIENTS // 10 if bench.quick else CLIENTS
    with bench.folder() as folder, bench.ours.start(folder) as relay, ExitStack() as connected:
        # What only the first ones need is there already.
        connected.enter_context(clients_of(relay, 10, subscribed=subscribed))
        before = resident_kib(relay.pid)
        connected.enter_context(clients_of(relay, count, subscribed=subscribed))
        return (resident_kib(relay.pid) - before) / count


def _growth_mb(bench: Bench) -> float:
    """All channels are new ones, and the cache is full long before the first look."""
    channels = FULL_CACHE // 64 if bench.quick else FULL_CACHE
    with bench.folder() as folder, bench.ours_packed.start(folder) as relay, clients_of(relay, 1, 1):
        sizes = []
        for part in range(6):
            _publish(bench, relay, f"{CHANNEL}/{part}", channels)
            sizes.append(resident_kib(relay.pid))
    return (sizes[5] - sizes[2]) / 1024


def _publish(bench: Bench, relay: Relay, channel: str, channels: int) -> None:
    command = words(
        "packets-publish",
        address=relay.address,
        channel=channel,
        channels=channels,
        count=channels,
        size=16,
        packed=True,
    )
    with LoadProcess([bench.programs.load, *command]) as sending:
        sending.tally()
        relay.status()  # answered by a daemon that has read what came before, or soon will
        while relay.status()["counters"]["published"] % channels:
            time.sleep(0.01)


def _start_ms(bench: Bench, contender: Contender) -> float:
    with bench.folder() as folder:
        begun = time.monotonic()
        with contender.start(folder):
            return (time.monotonic() - begun) * 1000


def _idle_percent(bench: Bench) -> float:
    seconds = 1.0 if bench.quick else 10.0
    with bench.folder() as folder, bench.ours.start(folder) as relay, clients_of(relay, CLIENTS // 10):
        time.sleep(min(1.0, seconds))  # what the clients' coming has left to do
        before, begun = cpu_seconds(relay.pid), time.monotonic()
        time.sleep(seconds)
        return (cpu_seconds(relay.pid) - before) / (time.monotonic() - begun) * 100


def _soak(bench: Bench, report: Report) -> None:
    """Steady traffic over many channels, churn, and clients that come and go: how memory develops."""
    messages = int(SOAK_RATE * bench.soak_seconds) // STEP * STEP
    load, below = bench.programs.load, f"{CHANNEL}/>"
    samples: dict[float, list[float]] = {}
    with bench.folder() as folder, bench.ours.start(folder) as relay, ExitStack() as running:
        common = {"address": relay.address, "size": 100}
        taking = words("packets-subscribe", **common, channel=below, count=messages, block=True)
        receiving = running.enter_context(LoadProcess([load, *taking]))
        receiving.await_ready()
        running.enter_context(
            LoadProcess([load, *words("churn", address=relay.address, rate=100, tail="/*")])
        )
        sending = words(
            "packets-publish", **common, channel=CHANNEL, channels=100_000, count=messages, rate=SOAK_RATE
        )
        publishing = running.enter_context(LoadProcess([load, *sending]))
        begun = time.monotonic()
        while (since := time.monotonic() - begun) < bench.soak_seconds:
            with clients_of(relay, 20, 20):
                samples[round(since / 60, 2)] = [resident_kib(relay.pid) / 1024]
            time.sleep(bench.soak_seconds / SOAK_SAMPLES)
        tally = publishing.tally()
        if receiving.tally().count != tally.count:
            raise MeasurementError("the soak has lost messages")
    values = [value for (value,) in samples.values()]
    tenth = max(1, len(values) // 10)
    growth = median(values[-tenth:]) - median(values[tenth : 2 * tenth])
    title = f"growth in a soak of {bench.soak_seconds / 60:.3g} minutes, after its first tenth"
    report.figures.append(Figure("memory/soak", title, "MB", Series("bccnd", [growth])))
    report.charts.append(
        Lines("soak", "Memory during a soak", "minutes", "MB", {"bccnd": samples}, logarithmic=False)
    )
