"""Fan-out of a backbone over UDP: one publisher, nothing lost, against a loop in C that decides nothing, and NATS.

The bare loop sends each datagram by itself. The same loop "divided" hands a batch to the kernel as one datagram for
each subscriber, as the backbone does. From the processor time of a message with FITTED subscribers follow what it
costs to take one, and each copy; CHECKED says how well that holds in between (``tests/bench/model.py``).
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from statistics import median

from tests.backbone.process import PlainClient
from tests.bench import loads, model
from tests.bench.charts import Bars
from tests.bench.loads import PAYLOAD
from tests.bench.machine import cpu_seconds
from tests.bench.peers import Contender, backbone, bare
from tests.bench.programs import LoadProcess, MeasurementError, words
from tests.bench.results import Figure, Report, Series
from tests.bench.rounds import Bench, Flow, rates

SUBSCRIBERS = (1, 8, 64)
FITTED = (1, 64)
CHECKED = (8, 16, 32)
# Many short rounds: what disturbs one of them moves a median less.
ROUNDS, PART = 2, 3
KEEPALIVES = 5000
LINE = 64  # bytes, of the file by which publisher and subscribers know how far each is (load/fyrehose.c)
OURS, BARE, DIVIDED, NATS = "backbone", "bare loop", "bare loop, divided", "nats"


def run(bench: Bench) -> Report:
    report = Report("A backbone's fan-out over UDP, 100-byte messages, deliveries a second")
    if not bench.quick:
        bench = replace(bench, runs=ROUNDS * bench.runs, seconds=bench.seconds / PART)
    shown: dict[str, dict[str, list[float]]] = {}
    costs: dict[str, dict[int, list[float]]] = {}
    own = (
        Contender(OURS, backbone(bench.tree)),
        Contender(BARE, bare(bench.programs)),
        Contender(DIVIDED, bare(bench.programs, "divided")),
    )
    counts = SUBSCRIBERS if bench.quick else sorted({*SUBSCRIBERS, *CHECKED})
    for count in counts:
        runs = {
            each.name: partial(fan_out, bench, each, count)
            for each in (own if count in SUBSCRIBERS else own[:1])
        }
        for broker in bench.brokers:
            if broker.name == NATS and count in SUBSCRIBERS:
                runs[NATS] = partial(loads.fan_out, bench, broker, subscribers=count)
        flows = bench.flows(runs, count, report.faults)
        for name, each in flows.items():
            costs.setdefault(name, {})[count] = [flow.busy * count / flow.rate for flow in each]
        if count not in SUBSCRIBERS:
            continue
        measured = rates(flows)
        group = f"{count} subscriber{'s' * (count > 1)}"
        used = [f"{name} {median(flow.busy for flow in each):.0%}" for name, each in flows.items()]
        note = f"of a core used: {', '.join(used)}"
        report.compare(f"backbone/{count}/bare", group, "/s", measured, OURS, BARE, note)
        report.compare(f"backbone/{count}/divided", group, "/s", measured, OURS, DIVIDED)
        report.compare(f"backbone/{count}/nats", group, "/s", measured, OURS, NATS)
        shown[group] = measured
    report.charts = [Bars("backbone", "Fan-out of a backbone", "deliveries a second", shown)]
    keepalives = bench.alternate({OURS: partial(_keepalive, bench, own[0])}, report.faults)
    _show_costs(report, costs, keepalives.get(OURS, []))
    return report


def _show_costs(
    report: Report, costs: Mapping[str, Mapping[int, Sequence[float]]], keepalives: Sequence[float]
) -> None:
    """What the model is made of, in microseconds of a processor."""
    for name, by_count in costs.items():
        if not all(by_count.get(count) for count in FITTED):
            continue
        few, many = ([1e6 * cost for cost in by_count[count]] for count in FITTED)
        fits = [model.fit(FITTED, pair) for pair in zip(few, many, strict=True)]
        taken, copy = Series(name, [a for a, _ in fits]), Series(name, [b for _, b in fits])
        key = f"backbone/cost/{name.replace(', ', '-').replace(' ', '-')}"
        report.figures.append(Figure(f"{key}/taken", f"{name}: a message taken", "us", taken))
        report.figures.append(Figure(f"{key}/copy", f"{name}: a copy of it", "us", copy))
        for count in CHECKED:
            if runs := by_count.get(count):
                said = Series("model", [taken.median + count * copy.median] * len(runs))
                title = f"{name}: a message to {count}"
                found = Series(name, [1e6 * cost for cost in runs])
                report.figures.append(Figure(f"{key}/{count}", title, "us", found, said))
    if keepalives:
        each = Series(OURS, [1e6 * cost for cost in keepalives])
        report.figures.append(Figure("backbone/cost/keepalive", f"{OURS}: a KEEPALIVE", "us", each))


def fan_out(bench: Bench, contender: Contender, subscribers: int, messages: int) -> Flow:
    """One publisher to some subscribers, which keep up with it: what they all have got, at full speed."""
    load = bench.programs.load
    with bench.folder() as folder, contender.start(folder) as relay, ExitStack() as running:
        progress = folder / "progress"
        progress.write_bytes(bytes((subscribers + 1) * LINE))
        common = {"port": relay.address.removeprefix("udp:"), "progress": progress, "count": messages}
        receiving = running.enter_context(
            LoadProcess([load, *words("fyrehose-subscribe", **common, copies=subscribers)])
        )
        receiving.await_ready()
        cpu = cpu_seconds(relay.pid)
        with LoadProcess([load, *words("fyrehose-publish", **common, size=PAYLOAD)]) as sending:
            begun, received = sending.tally(), receiving.tally()
            cpu = cpu_seconds(relay.pid) - cpu
    seconds = received.last - begun.first
    if received.count != messages * subscribers or seconds <= 0:
        raise MeasurementError(f"{received.count} deliveries of {messages * subscribers}")
    return Flow(received.count / seconds, seconds, cpu / seconds)


def _keepalive(bench: Bench, contender: Contender) -> float:
    """Seconds of processor time that a KEEPALIVE takes, with its ACK."""
    count = KEEPALIVES if not bench.quick else 50
    with bench.folder() as folder, contender.start(folder) as relay:
        client = PlainClient(("127.0.0.1", int(relay.address.removeprefix("udp:"))))
        with client.socket:
            cpu = cpu_seconds(relay.pid)
            for _ in range(count):
                client.keepalive()
            return (cpu_seconds(relay.pid) - cpu) / count
