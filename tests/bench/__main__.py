"""Measures the relay beside its peers: ``sh tests/bench/run.sh --help``."""

import argparse
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.bench import charts, machine, results
from tests.bench.programs import MeasurementError, build
from tests.bench.results import Report
from tests.bench.rounds import Bench, available
from tests.bench.scenarios import (
    backbone,
    before,
    clients,
    crowds,
    dndm,
    door,
    fan_out,
    growth,
    hostile,
    links,
    pipeline,
    record,
    repair,
    round_trip,
    segment_in,
    segment_out,
    upkeep,
)

SCENARIOS: dict[str, Callable[[Bench], Report]] = {
    "fan-out": fan_out.run,
    "many-clients": crowds.many_clients,
    "patterns": crowds.patterns,
    "churn": crowds.churn,
    "round-trip": round_trip.run,
    "backbone": backbone.run,
    "segment-in": segment_in.run,
    "segment-out": segment_out.run,
    "record": record.run,
    "repair": repair.run,
    "links": links.run,
    "memory": upkeep.memory,
    "start": upkeep.start_and_idle,
    "growth": growth.run,
    "hostile": hostile.run,
    "clients": clients.run,
    "door": door.run,
    "dndm": dndm.run,
    "pipeline": pipeline.run,
    "before": before.run,
}
LONG = {"pipeline", "before"}  # only if asked for
RUNS, SECONDS = 5, 1.5
QUICK_RUNS, QUICK_SECONDS = 1, 0.02
SOAK_SECONDS = 600.0


def main(argv: Sequence[str] | None = None) -> int:
    """0: all was measured, whatever the figures; 1: something was not."""
    options = _options(argv)
    os.environ["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    output = options.output or Path(tempfile.mkdtemp(prefix="bccnd-bench-"))
    output.mkdir(parents=True, exist_ok=True)
    described = machine.described()
    _say(
        f"{described['cores']} cores, {described['processor']}, Linux {described['kernel']}, "
        f"Python {described['python']}; load {described['load']:.2f}"
    )
    brokers, missing = available()
    brokers = [each for each in brokers if options.peers is None or each.name in options.peers]
    for program in missing:
        _say(f"without {program}: not installed")
    reports: dict[str, Report] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="bccnd-bench-") as work:
            bench = Bench(
                programs=build(Path(work) / "programs"),
                work=Path(work),
                runs=options.runs or (QUICK_RUNS if options.quick else RUNS),
                seconds=options.seconds or (QUICK_SECONDS if options.quick else SECONDS),
                quick=options.quick,
                soak_seconds=options.soak or 0.0,
                brokers=tuple(brokers),
                before=options.before,
            )
            _say(f"{bench.runs} rounds, {bench.seconds:g} s a run at full speed; results in {output}")
            for name in options.only or [name for name in SCENARIOS if name not in LONG]:
                reports[name] = _measured(name, bench)
    except MeasurementError as error:
        _say(f"bench: {error}")
        return 1
    finally:
        settings = {name: str(value) for name, value in vars(options).items()}
        results.write_json(output / "results.json", described, settings, reports)
    _draw(reports, output)
    return 1 if any(report.faults for report in reports.values()) else 0


def _measured(name: str, bench: Bench) -> Report:
    """One scenario, shown as soon as it is there."""
    aims = results.targets()
    bench = replace(bench, disturbance=machine.Disturbance())
    try:
        report = SCENARIOS[name](bench)
    except MeasurementError as error:
        report = Report(name, faults=[str(error)])
    report.disturbance = bench.disturbance
    _say("")
    for line in results.table(report, aims):
        _say(line)
    return report


def _draw(reports: dict[str, Report], output: Path) -> None:
    wanted = [chart for report in reports.values() for chart in report.charts]
    if not wanted:
        return
    if not charts.can_draw():
        _say("no charts: matplotlib is not installed (pip install '.[bench]')")
        return
    for chart in wanted:
        charts.draw(chart, output)
    _say(f"\n{len(wanted)} charts in {output}")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sh tests/bench/run.sh", description=__doc__.partition(":")[0] + "."
    )
    parser.add_argument("--quick", action="store_true", help="tiny counts and one run: whether it all works")
    parser.add_argument("--only", type=_names, metavar="NAME,...", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument(
        "--peers",
        type=lambda text: text.split(","),
        metavar="NAME,...",
        help="only these brokers; 'none' for none",
    )
    parser.add_argument("--runs", type=int, help=f"rounds of each comparison (default {RUNS})")
    parser.add_argument("--seconds", type=float, help=f"length of a run at full speed (default {SECONDS})")
    parser.add_argument(
        "--soak",
        type=float,
        nargs="?",
        const=SOAK_SECONDS,
        metavar="SECONDS",
        help=f"memory over a soak, {SOAK_SECONDS:g} s by default",
    )
    parser.add_argument(
        "--before", type=Path, metavar="DIR", help="the checkout that --only before compares this one with"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="for results.json and the charts (default: a new one in /tmp)",
    )
    return parser.parse_args(argv)


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in SCENARIOS:
            raise argparse.ArgumentTypeError(f"{name}: the scenarios are {', '.join(SCENARIOS)}")
    return names


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
