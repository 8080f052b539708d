"""Fan-out of a backbone over UDP: one publisher, nothing lost, against a loop in C that decides nothing, and NATS."""

from contextlib import ExitStack
from functools import partial
from statistics import median

from tests.bench import loads
from tests.bench.charts import Bars
from tests.bench.loads import PAYLOAD
from tests.bench.machine import cpu_seconds
from tests.bench.peers import Contender, backbone, bare
from tests.bench.programs import LoadProcess, MeasurementError, words
from tests.bench.results import Report
from tests.bench.rounds import Bench, Flow, rates

SUBSCRIBERS = (1, 8, 64)
LINE = 64  # bytes, of the file by which publisher and subscribers know how far each is (load/fyrehose.c)


def run(bench: Bench) -> Report:
    report = Report("A backbone's fan-out over UDP, 100-byte messages, deliveries a second")
    shown: dict[str, dict[str, list[float]]] = {}
    own = Contender("backbone", backbone(bench.tree)), Contender("bare loop", bare(bench.programs))
    for count in SUBSCRIBERS:
        runs = {each.name: partial(fan_out, bench, each, count) for each in own}
        for broker in bench.brokers:
            if broker.name == "nats":
                runs["nats"] = partial(loads.fan_out, bench, broker, subscribers=count)
        flows = bench.flows(runs, count, report.faults)
        measured = rates(flows)
        group = f"{count} subscriber{'s' * (count > 1)}"
        used = [f"{name} {median(flow.busy for flow in each):.0%}" for name, each in flows.items()]
        note = f"of a core used: {', '.join(used)}"
        report.compare(f"backbone/{count}/bare", group, "/s", measured, "backbone", "bare loop", note)
        report.compare(f"backbone/{count}/nats", group, "/s", measured, "backbone", "nats")
        shown[group] = measured
    report.charts = [Bars("backbone", "Fan-out of a backbone", "deliveries a second", shown)]
    return report


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
