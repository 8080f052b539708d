"""Figures with what they are compared with and their targets, as a table and as JSON.

A comparison is the median of the ratios of its rounds. In a round each contender has one run, one after the other, so
that whatever slows the machine down for a while slows both sides of a ratio.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.charts import Chart
from tests.bench.machine import Disturbance

TARGETS_FILE = Path(__file__).parent / "targets.toml"
HEADINGS = ("", "measured", "against", "ratio", "lowest .. highest", "target", "reached")


@dataclass(frozen=True)
class Series:
    """What one contender gave, a value a run."""

    contender: str
    values: Sequence[float]

    @property
    def median(self) -> float:
        return median(self.values)


@dataclass(frozen=True)
class Target:
    at_least: float | None = None
    at_most: float | None = None

    def reached(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    def __str__(self) -> str:
        return f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"


@dataclass(frozen=True)
class Figure:
    """``key`` is what it is called in ``targets.toml`` and JSON. Without a peer the value itself is the figure."""

    key: str
    title: str
    unit: str
    ours: Series
    peer: Series | None = None
    note: str = ""

    @property
    def values(self) -> list[float]:
        if self.peer is None:
            return list(self.ours.values)
        return [ours / peer for ours, peer in zip(self.ours.values, self.peer.values, strict=True)]

    def row(self, target: Target | None) -> tuple[str, ...]:
        values = self.values
        return (
            self.title,
            quantity(self.ours.median, self.unit),
            f"{self.peer.contender} {quantity(self.peer.median, self.unit)}" if self.peer else "",
            f"{median(values):.3g}" if self.peer else "",
            f"{min(values):.3g} .. {max(values):.3g}" if len(values) > 1 else "",
            str(target or ""),
            ("yes" if target.reached(median(values)) else "no") if target else "",
        )

    def as_json(self, target: Target | None) -> dict[str, Any]:
        values = self.values
        return {
            "key": self.key,
            "title": self.title,
            "unit": self.unit,
            "value": median(values),
            "lowest": min(values),
            "highest": max(values),
            "target": str(target) if target else None,
            "reached": target.reached(median(values)) if target else None,
            "runs": {side.contender: list(side.values) for side in (self.ours, self.peer) if side},
            "against": self.peer.contender if self.peer else None,
            "note": self.note,
        }


@dataclass
class Report:
    """What a scenario gives. ``faults``: runs that gave no figure, and why."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    disturbance: Disturbance = field(default_factory=Disturbance)

    def compare(
        self,
        key: str,
        title: str,
        unit: str,
        rounds: Mapping[str, Sequence[float]],
        ours: str,
        peer: str,
        note: str = "",
    ) -> None:
        """Add a ratio, if both sides were measured."""
        if ours in rounds and peer in rounds:
            self.figures.append(
                Figure(key, title, unit, Series(ours, rounds[ours]), Series(peer, rounds[peer]), note)
            )


def targets() -> dict[str, Target]:
    return {key: Target(**bounds) for key, bounds in tomllib.loads(TARGETS_FILE.read_text()).items()}


def quantity(value: float, unit: str) -> str:
    """As people say it: 312 k/s, 47.1 us, 33.2 MB."""
    if unit == "/s":
        for size, prefix in ((1e6, "M"), (1e3, "k")):
            if value >= size:
                return f"{value / size:.3g} {prefix}/s"
    return f"{value:.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


def table(report: Report, aims: Mapping[str, Target]) -> list[str]:
    """The lines of one scenario."""
    rows = [figure.row(aims.get(figure.key)) for figure in report.figures]
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    lines = [f"{report.title}  ({report.disturbance})"]
    lines += [_line(HEADINGS, widths)] if rows else []
    for figure, row in zip(report.figures, rows, strict=True):
        lines.append(_line(row, widths))
        lines += [f"      {figure.note}"] if figure.note else []
    lines += [f"  not measured: {fault}" for fault in report.faults]
    return lines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return ("  " + "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))).rstrip()


def write_json(
    path: Path, machine: Mapping[str, Any], settings: Mapping[str, Any], reports: Mapping[str, Report]
) -> None:
    aims = targets()
    scenarios = {
        name: {
            "title": report.title,
            "others": [round(share, 4) for share in report.disturbance.shares],
            "repeated": report.disturbance.repeated,
            "figures": [figure.as_json(aims.get(figure.key)) for figure in report.figures],
            "faults": report.faults,
            "charts": [chart.as_json() for chart in report.charts],
        }
        for name, report in reports.items()
    }
    path.write_text(
        json.dumps({"machine": machine, "settings": settings, "scenarios": scenarios}, indent=1) + "\n"
    )
