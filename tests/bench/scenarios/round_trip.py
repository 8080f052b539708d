"""Request and answer between two programs at a low rate: every process sleeps in between."""

from contextlib import ExitStack
from functools import partial
from statistics import quantiles

from tests.bench.charts import Bars
from tests.bench.loads import PAYLOAD
from tests.bench.peers import Contender
from tests.bench.programs import LoadProcess, words
from tests.bench.results import Report
from tests.bench.rounds import Bench

PAUSE_US = 2000
PERCENTILES = (50, 99)


def run(bench: Bench) -> Report:
    report = Report("Round trip between two programs, microseconds, smaller is better")
    contenders = [bench.ours, bench.limit, *bench.brokers]
    took = bench.alternate(
        {each.name: partial(_microseconds, bench, each) for each in contenders}, report.faults
    )
    for percentile in PERCENTILES:
        measured = {
            name: [quantiles(values, n=100)[percentile - 1] for values in runs] for name, runs in took.items()
        }
        title = f"Round trip of 100 bytes between two programs, p{percentile}"
        report.charts.append(Bars(f"round-trip-p{percentile}", title, "microseconds", {"": measured}))
        for each in contenders[1:]:
            key = f"round_trip/p{percentile}/{each.name}"
            report.compare(key, f"p{percentile} of a round trip", "us", measured, "bccnd", each.name)
    return report


def _microseconds(bench: Bench, contender: Contender) -> list[float]:
    """How long each round trip of a run took, without the first ones, which fill caches."""
    load, count = bench.programs.load, max(50, int(bench.seconds * 1e6 / PAUSE_US))
    with bench.folder() as folder, contender.start(folder) as relay, ExitStack() as running:
        common = {
            "protocol": relay.protocol,
            "address": relay.address,
            "request": "local/request",
            "answer": "local/answer",
        }
        echo = running.enter_context(LoadProcess([load, *words("echo", **common)]))
        echo.await_ready()
        ping = words("ping", **common, count=count + count // 10, size=PAYLOAD, pause=PAUSE_US)
        with LoadProcess([load, *ping]) as asking:
            report = asking.report()
        echo.terminate()
    return [nanoseconds / 1000 for nanoseconds in report["nanoseconds"][count // 10 :]]
