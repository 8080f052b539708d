"""Idle clients, patterns and channels should cost the traffic nothing: each case against the plain one."""

from functools import partial
from typing import Any

from tests.bench.charts import Bars
from tests.bench.loads import CHANNEL, fan_out
from tests.bench.results import Report
from tests.bench.rounds import Bench, rates

CLIENTS, MATCHING = 1000, 10
PATTERNS = 10_000
CHANNELS = 100_000
CHURN = 1000  # pairs of SUB and UNSUB a second


def many_clients(bench: Bench) -> Report:
    """1,000 connected, 10 of which match."""
    report = Report(f"{CLIENTS} connected clients, {MATCHING} of which match, deliveries a second")
    idle = CLIENTS - MATCHING
    for form, contender in (("unpacked", bench.ours), ("packed", bench.ours_packed)):
        alone, crowd = f"{MATCHING} clients", f"{CLIENTS} clients"
        runs = {
            crowd: partial(fan_out, bench, contender, subscribers=MATCHING, idle_clients=idle),
            alone: partial(fan_out, bench, contender, subscribers=MATCHING),
        }
        measured = rates(bench.flows(runs, MATCHING, report.faults))
        report.compare(f"many_clients/{form}", f"{form}, {crowd}", "/s", measured, crowd, alone)
    return report


def patterns(bench: Bench) -> Report:
    """10,000 distinct patterns, 100,000 distinct channels, and both; and what a channel costs at first sight."""
    report = Report("Many patterns and channels, one subscriber, deliveries a second")
    below = f"{CHANNEL}/>"
    channels = 1024 if bench.quick else CHANNELS
    cases: dict[str, dict[str, Any]] = {
        "plain": {},
        f"{PATTERNS} patterns": {"patterns": PATTERNS},
        f"{channels} channels": {"channels": channels, "pattern": below},
        "both": {"patterns": PATTERNS, "channels": channels, "pattern": below},
        f"{channels} new": {"channels": channels, "pattern": below, "passes": 1},
    }
    for form, contender in (("unpacked", bench.ours), ("packed", bench.ours_packed)):
        runs = {name: partial(fan_out, bench, contender, **case) for name, case in cases.items()}
        measured = rates(bench.flows(runs, 1, report.faults))
        for name in list(cases)[1:]:
            key = f"patterns/{form}/{name.split()[-1]}"
            report.compare(key, f"{form}, {name}", "/s", measured, name, "plain")
        report.charts.append(
            Bars(
                f"patterns-{form}",
                f"Many patterns and channels, {form}",
                "deliveries a second",
                {"": measured},
            )
        )
    return report


def churn(bench: Bench) -> Report:
    """A thousand SUB and UNSUB a second during traffic, of exact channels and of wildcards."""
    report = Report(f"Churn of {CHURN} SUB and UNSUB a second, one subscriber, deliveries a second")
    rate = CHURN // 100 if bench.quick else CHURN  # a busy machine must not fail what is not a measurement
    kinds = {"exact": "", "wildcards": "/*/>"}
    for form, contender in (("unpacked", bench.ours), ("packed", bench.ours_packed)):
        runs = {"plain": partial(fan_out, bench, contender)}
        for kind, tail in kinds.items():
            runs[f"churn of {kind}"] = partial(fan_out, bench, contender, churn=(rate, tail))
        many: dict[str, Any] = {"channels": 1000, "pattern": f"{CHANNEL}/>"}
        runs["plain, 1000 channels"] = partial(fan_out, bench, contender, **many)
        runs["churn, 1000 channels"] = partial(
            fan_out, bench, contender, **many, churn=(rate, kinds["wildcards"])
        )
        measured = rates(bench.flows(runs, 1, report.faults))
        for kind in kinds:
            name = f"churn of {kind}"
            report.compare(f"churn/{form}/{kind}", f"{form}, {name}", "/s", measured, name, "plain")
        report.compare(
            f"churn/{form}/channels",
            f"{form}, of wildcards, 1000 channels",
            "/s",
            measured,
            "churn, 1000 channels",
            "plain, 1000 channels",
        )
    return report
