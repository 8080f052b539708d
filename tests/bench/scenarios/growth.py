"""How cost grows with subscribers, with the size of messages, and with clients and patterns that do not match."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tests.bench.charts import Lines
from tests.bench.loads import fan_out
from tests.bench.peers import Contender, limit
from tests.bench.results import Report
from tests.bench.rounds import Bench, Flow, rates

SUBSCRIBERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SIZES = (16, 64, 256, 1024, 4096, 16384, 65536)  # bytes; the last is the limit of local channels
CLIENTS = (16, 64, 256, 1024, 4000)
PATTERNS = (16, 256, 1024, 4096, 16384, 65536)
SHORTER = 3  # the runs of a curve are shorter than those of a figure by this: there are many


def run(bench: Bench) -> Report:
    report = Report("How cost grows (charts)")
    ours, packed = bench.ours, bench.ours_packed
    roomy = Contender("limit", limit(bench.programs, 1 << 17))
    curves: Sequence[tuple[str, str, str, str, Sequence[int], Sequence[Contender]]] = (
        (
            "subscribers",
            "Deliveries by subscribers",
            "subscribers",
            "subscribers",
            SUBSCRIBERS,
            (ours, packed, bench.limit),
        ),
        (
            "payload",
            "Deliveries by size of the message, one subscriber",
            "bytes of payload",
            "size",
            SIZES,
            (ours, packed, roomy),
        ),
        (
            "clients",
            "Deliveries to one subscriber by other clients",
            "other clients connected",
            "idle_clients",
            CLIENTS,
            (ours, packed),
        ),
        (
            "patterns",
            "Deliveries to one subscriber by other patterns",
            "other patterns",
            "patterns",
            PATTERNS,
            (ours, packed),
        ),
    )
    for name, title, x, option, points, contenders in curves:
        measured = points[1:2] if bench.quick else points
        series = _curve(bench, report, option, measured, contenders)
        for form in ("unpacked", "packed"):  # apart, or the scale of one would flatten the other
            chosen = {
                each.name: series[each.name] for each in contenders if each.packed == (form == "packed")
            }
            report.charts.append(
                Lines(f"growth-{name}-{form}", f"{title}, {form}", x, "deliveries a second", chosen)
            )
    return report


def _curve(
    bench: Bench, report: Report, option: str, points: Sequence[int], contenders: Sequence[Contender]
) -> dict[str, dict[float, list[float]]]:
    """Contender -> point -> rates; who fails at a point lacks it."""
    series: dict[str, dict[float, list[float]]] = {each.name: {} for each in contenders}
    shorter = replace(bench, seconds=bench.seconds / SHORTER)
    for point in points:
        case: dict[str, Any] = {option: point}
        runs: dict[str, Callable[[int], Flow]] = {
            each.name: partial(fan_out, bench, each, **case) for each in contenders
        }
        deliveries = point if option == "subscribers" else max(1, point // 1024) if option == "size" else 1
        for name, values in rates(shorter.flows(runs, deliveries, report.faults)).items():
            series[name][point] = values
    return series
