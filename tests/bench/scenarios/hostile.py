"""What hostile behaviours (``tests/hostile``) cost a bystander: its 99th percentile beside that of one left alone.

A round has one run of the bystander alone, and one beside each behaviour of the suite's quarter. A behaviour that
makes it lose a message gives no figure.
"""

import os
from collections.abc import Callable
from functools import partial

from tests.bench.programs import MeasurementError
from tests.bench.results import Figure, Report, Series
from tests.bench.rounds import Bench
from tests.hostile.behaviour import Behaviour, behaviours
from tests.hostile.judge import RATE, judge
from tests.hostile.known import KNOWN

ALONE = "alone"
QUICK, QUICK_SECONDS = 2, 0.2  # behaviours of a quick run, and how long each goes on


def run(bench: Bench) -> Report:
    report = Report(f"A bystander at {RATE} messages a second beside hostile ones, p99")
    seconds = max(bench.seconds, QUICK_SECONDS)
    judged = {name: each for name, each in behaviours().items() if each.suite and _can_run(each)}
    if bench.quick:
        judged = {name: judged[name] for name in [each for each in judged if each not in KNOWN][:QUICK]}
    alone = Behaviour(ALONE, "", lambda attack: attack.rest())
    runs: dict[str, Callable[[], float]] = {ALONE: partial(_p99, alone, seconds)}
    runs |= {name: partial(_p99, each, seconds) for name, each in judged.items()}
    measured = bench.alternate(runs, report.faults)
    for name in judged:
        key = f"hostile/{name.replace(': ', '/').replace(' ', '-')}"
        report.compare(key, name, "ms", measured, name, ALONE)
    beside = [each for name, each in measured.items() if name != ALONE]
    if beside:
        worst = Series("bystander", [max(each) for each in zip(*beside, strict=True)])
        report.figures.append(Figure("hostile/worst", "the worst of them", "ms", worst))
    return report


def _can_run(behaviour: Behaviour) -> bool:
    return not behaviour.needs or os.geteuid() == 0


def _p99(behaviour: Behaviour, seconds: float) -> float:
    """In milliseconds."""
    outcome = judge(behaviour, seconds)
    if outcome.faults:
        raise MeasurementError("; ".join(outcome.faults))
    return outcome.p99
