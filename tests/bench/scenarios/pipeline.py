"""How the pipeline grows: records of 200 hosts, from five to fifty million messages, beside DuckDB.

All traffic is generated (``tests/pipeline/network.py``): bursts of loss, duplicates, reordering, restarts. A size
gives figures only if the pipeline, the queries by hand (``by_hand.py``) and the generator agree on how many messages
each pair sent and lost, and how many of each source each receiver received, lost and got twice.

The command runs as people run it, with the start of Spark. DuckDB answers two questions from the records. The figures
compare it with the steps of ``analyse`` that answer the same, and show all of ``ingest`` and ``analyse`` beside.
"""

import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import linear_regression

import pyarrow.parquet as pq

from tests.bench import family
from tests.bench.charts import Lines
from tests.bench.family import Usage
from tests.bench.machine import Others
from tests.bench.programs import MeasurementError
from tests.bench.results import Figure, Report, Series
from tests.bench.rounds import Bench
from tests.pipeline import network

SIZES = (5_000_000, 10_000_000, 25_000_000, 50_000_000)
QUICK_SIZES = (20_000,)
HOSTS, QUICK_HOSTS = 200, 6
BYTES_A_ROW = 200  # on disk at the same time: recorded 14, taken over 13, and what Spark writes aside
MASTER = "local[2]"
# The steps of ``analyse`` that answer what DuckDB is asked.
SAME_ANSWERS = (
    "rows",
    "coverage",
    "sources",
    "minutes",
)
Answers = dict[tuple[str, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Measured:
    rows: int
    ingest: Usage
    analyse: Usage
    same_seconds: float
    by_hand: Usage


def run(bench: Bench) -> Report:
    report = Report("The pipeline by the number of messages, 200 hosts, two cores")
    done: list[Measured] = []
    for rows in QUICK_SIZES if bench.quick else SIZES:
        try:
            with Others() as others:
                measured = _measured(bench, rows)
                others.ours += sum(each.descendants_busy_seconds for each in _usages(measured).values())
        except MeasurementError as error:
            report.faults.append(f"{rows:,} messages: {error}")
            continue
        bench.disturbance.shares.append(others.share)
        done.append(measured)
        _figures(report, measured)
        _say(report.figures[-4:])
    if len(done) > 1:
        growth(report, done)
    report.charts = _charts(done) if done else []
    return report


def _measured(bench: Bench, rows: int) -> Measured:
    free = shutil.disk_usage(bench.work).free
    if free < rows * BYTES_A_ROW:
        raise MeasurementError(f"{bench.work} has {free >> 20} MB free, it takes {rows * BYTES_A_ROW >> 20}")
    with bench.folder() as folder:
        recorded, output, by_hand = folder / "recorded", folder / "output", folder / "by-hand"
        by_hand.mkdir()
        truth = network.write(network.of_size(rows, QUICK_HOSTS if bench.quick else HOSTS), recorded)
        command = [sys.executable, "-m", "bccnd.pipeline.cli"]
        flags = ["--output", str(output), "--master", MASTER]
        said = folder / "said"
        ingest = family.run([*command, "ingest", "--input", str(recorded), *flags], said)
        analyse = family.run([*command, "analyse", *flags], said)
        hand = family.run([sys.executable, "-m", "tests.bench.by_hand", str(recorded), str(by_hand)], said)
        taken = dict(re.findall(r"analyse(?: \d+/\d+)?: (\w+)  ([\d.]+) s", analyse.said))
        _compare(output / "tables", by_hand, truth)
        same = sum(float(taken[name]) for name in SAME_ANSWERS)
        return Measured(truth.rows, ingest, analyse, same, hand)


def _compare(tables: Path, by_hand: Path, truth: network.Truth) -> None:
    pairs, sources = ("sender", "receiver"), ("receiver", "src")
    delivered = _answers(tables / "delivery", pairs, "sent", "lost")
    _same("delivery by hand", _answers(by_hand / "delivery.parquet", pairs, "sent", "lost"), delivered)
    put_in: Answers = {pair: (sent, truth.lost[pair]) for pair, sent in truth.sent.items()}
    _same("delivery as generated", put_in, delivered)
    counts = ("received", "lost", "duplicates")
    _same(
        "sources by hand",
        _answers(by_hand / "sources.parquet", sources, *counts),
        _answers(tables / "sources", sources, *counts),
    )


def _answers(path: Path, key: tuple[str, str], *names: str) -> Answers:
    """All hours together."""
    table = (
        pq.read_table(path, columns=[*key, *names]).group_by(key).aggregate([(name, "sum") for name in names])
    )
    columns = [table[column].to_pylist() for column in (*key, *(f"{name}_sum" for name in names))]
    return {row[:2]: row[2:] for row in zip(*columns, strict=True)}


def _same(what: str, expected: Answers, found: Answers) -> None:
    if expected == found:
        return
    other = next(key for key in expected | found if expected.get(key) != found.get(key))
    raise MeasurementError(f"{what}: {other} is {expected.get(other)}, the pipeline has {found.get(other)}")


# -- figures


def _usages(measured: Measured) -> dict[str, Usage]:
    return {"ingest": measured.ingest, "analyse": measured.analyse, "DuckDB, two answers": measured.by_hand}


def _size(rows: int) -> str:
    return f"{rows / 1e6:.0f}M" if rows >= 1e6 else f"{rows / 1e3:.0f}k"


def _figures(report: Report, measured: Measured) -> None:
    size = _size(measured.rows)
    for name, used in list(_usages(measured).items())[:2]:
        note = (
            f"{used.seconds:.1f} s, {used.busy_seconds:.0f} s of processor time, "
            f"{1e6 * used.seconds / measured.rows:.1f} us a message; JVM and Python at most {used.peak_mb:.0f} MB"
        )
        rate = Series("bccnd", [measured.rows / used.seconds])
        report.figures.append(Figure(f"pipeline/{name}/{size}", f"{size}: {name}", "/s", rate, note=note))
    hand = measured.by_hand
    ours = Series("bccnd", [measured.same_seconds]), Series("bccnd", [measured.analyse.peak_mb])
    theirs = Series("duckdb", [hand.seconds]), Series("duckdb", [hand.peak_mb])
    same = f"the same answers: rows, coverage, sources and minutes of analyse; DuckDB used {hand.busy_seconds:.0f} s"
    report.figures += [
        Figure(
            f"pipeline/answers/{size}", f"{size}: loss by pair and by source", "s", ours[0], theirs[0], same
        ),
        Figure(f"pipeline/memory/{size}", f"{size}: memory of analyse", "MB", ours[1], theirs[1]),
    ]


def growth(report: Report, done: list[Measured]) -> None:
    """The exponent k of time ~ rows**k, fitted, and, as what starting takes keeps that low, what one more message
    costs among many against what it costs among few.
    """
    for name in ("ingest", "analyse"):
        for what, seconds in (("time", _seconds), ("processor time", _busy)):
            points = [(float(each.rows), seconds(_usages(each)[name])) for each in done]
            key, of = f"pipeline/{name}/{what.replace(' ', '-')}", f"{name}: {what}"
            exponent = _slope([(log(rows), log(taken)) for rows, taken in points])
            report.figures.append(
                Figure(f"{key}/exponent", f"{of}, exponent", "", Series("bccnd", [exponent]))
            )
            if len(points) > 2:
                middle = len(points) // 2
                many, few = _slope(points[middle:]), _slope(points[: middle + 1])
                title, note = (
                    f"{of} of one more",
                    f"{1e6 * few:.1f} us among few, {1e6 * many:.1f} us among many",
                )
                report.figures.append(
                    Figure(f"{key}/one-more", title, "", Series("bccnd", [many / few]), note=note)
                )


def _slope(points: Sequence[tuple[float, float]]) -> float:
    return linear_regression(*zip(*points, strict=True)).slope


def _seconds(used: Usage) -> float:
    return used.seconds


def _busy(used: Usage) -> float:
    return used.busy_seconds


def _charts(done: list[Measured]) -> list[Lines]:
    def lines(name: str, title: str, unit: str, value: Callable[[Usage], float]) -> Lines:
        series: dict[str, dict[float, list[float]]] = {}
        for each in done:
            for contender, used in _usages(each).items():
                series.setdefault(contender, {})[each.rows / 1e6] = [value(used)]
        return Lines(name, title, "million messages", unit, series, logarithmic=False)

    return [
        lines("pipeline-time", "Time by the number of messages", "seconds", _seconds),
        lines("pipeline-busy", "Processor time by the number of messages", "seconds", _busy),
        lines("pipeline-memory", "Memory by the number of messages", "MB", lambda used: used.peak_mb),
    ]


def _say(figures: list[Figure]) -> None:
    """A size takes minutes: its figures at once."""
    for figure in figures:
        print(f"  {figure.title}: {' | '.join(figure.row(None)[1:4])}  {figure.note}", flush=True)
