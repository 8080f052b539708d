"""This checkout's daemon beside that of another one, by turns: what a change has made faster or slower.

    sh tests/bench/run.sh --only before --before ../bccnd-before

The other checkout needs its compiled half (``sh tests/run.sh --setup-only`` there); the loads are this one's.
"""

from dataclasses import replace
from functools import partial
from statistics import median

from tests.bench.loads import PAYLOAD, fan_out
from tests.bench.results import Report
from tests.bench.rounds import STEP, Bench, rates
from tests.bench.scenarios import round_trip, segment_in, segment_out
from tests.bench.segment import joined, write_datagrams

NOW, BEFORE = "now", "before"


def run(bench: Bench) -> Report:
    report = Report("This checkout against another")
    if bench.before is None:
        report.faults.append("name the other checkout: --before DIR")
        return report
    trees = {NOW: bench, BEFORE: replace(bench, tree=bench.before)}
    for subscribers in (1, 8):
        for title in ("unpacked", "packed"):
            flows = {
                name: partial(
                    fan_out,
                    each,
                    each.ours_packed if title == "packed" else each.ours,
                    subscribers=subscribers,
                )
                for name, each in trees.items()
            }
            measured = rates(bench.flows(flows, subscribers, report.faults))
            _compare(report, f"fan-out to {subscribers}, {title}", "/s", measured)
    trips = bench.alternate({name: partial(_round_trip, each) for name, each in trees.items()}, report.faults)
    _compare(report, "round trip, p50", "us", trips)
    with joined() as hosts, bench.folder() as folder:
        count = max(STEP * 4, int(segment_out.PER_SECOND * bench.seconds)) // 4 // STEP * STEP
        for packed in (True, False):
            runs = {
                name: partial(segment_out.through_daemon, each, *hosts, packed, count)
                for name, each in trees.items()
            }
            measured = rates(bench.alternate(runs, report.faults))
            _compare(report, f"to the segment, {'packed' if packed else 'unpacked'}", "/s", measured)
        for sources in (1, segment_in.SOURCES):
            datagrams = folder / str(sources)
            write_datagrams(
                datagrams, max(2000, int(segment_in.PER_SECOND * bench.seconds)), PAYLOAD, sources=sources
            )
            channel = segment_in.CHANNEL if sources == 1 else f"{segment_in.CHANNEL}/>"
            intakes = {
                name: partial(
                    segment_in.through_daemon,
                    segment_in.Place(each, *hosts, datagrams, channel),
                    1,
                    packed=True,
                )
                for name, each in trees.items()
            }
            taken = bench.alternate(intakes, report.faults)
            _compare(
                report,
                f"from the segment, {sources} source{'s' * (sources > 1)}",
                "/s",
                {name: [intake.rate for intake in each] for name, each in taken.items()},
            )
    return report


def _round_trip(bench: Bench) -> float:
    return median(round_trip.microseconds(bench, bench.ours))


def _compare(report: Report, title: str, unit: str, measured: dict[str, list[float]]) -> None:
    report.compare(f"before/{title.replace(', ', '-').replace(' ', '-')}", title, unit, measured, NOW, BEFORE)
