"""Local fan-out: one publisher, nothing lost; unpacked against the limit, packed against brokers."""

from functools import partial
from statistics import median

from tests.bench.charts import Bars
from tests.bench.loads import fan_out
from tests.bench.results import Report
from tests.bench.rounds import Bench, rates

SUBSCRIBERS = (1, 8, 64)


def run(bench: Bench) -> Report:
    report = Report("Local fan-out, 100-byte messages, deliveries a second")
    unpacked: dict[str, dict[str, list[float]]] = {}
    packed: dict[str, dict[str, list[float]]] = {}
    for count in SUBSCRIBERS:
        group = f"{count} subscriber{'s' * (count > 1)}"
        contenders = [bench.ours, bench.limit, bench.ours_packed, *bench.brokers]
        runs = {each.name: partial(fan_out, bench, each, subscribers=count) for each in contenders}
        flows = bench.flows(runs, count, report.faults)
        measured = rates(flows)
        key = f"fan_out/{{}}/{count}/{{}}"
        used = [
            f"{name} {median(flow.busy for flow in flows[name]):.0%}"
            for name in ("bccnd", "limit")
            if name in flows
        ]
        note = f"of a core used: {', '.join(used)}"
        report.compare(
            key.format("unpacked", "limit"), f"unpacked, {group}", "/s", measured, "bccnd", "limit", note
        )
        for broker in bench.brokers:
            report.compare(
                key.format("packed", broker.name),
                f"packed, {group}",
                "/s",
                measured,
                "bccnd packed",
                broker.name,
            )
        unpacked[group] = {name: measured[name] for name in ("bccnd", "limit") if name in measured}
        packed[group] = {name: each for name, each in measured.items() if name not in unpacked[group]}
    report.charts = [
        Bars("fan-out-unpacked", "Local fan-out, a packet a message", "deliveries a second", unpacked),
        Bars("fan-out-packed", "Local fan-out, packed, and brokers pipelined", "deliveries a second", packed),
    ]
    return report
