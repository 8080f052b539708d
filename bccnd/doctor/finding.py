"""One result of a check of the bus: how bad it is, and what to do."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

# Of a list of names; how many more there are is said.
NAMES_SHOWN = 3


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """``what``: the subject, in a word or two; ``remedy``: what to do, empty if there is nothing to do."""

    level: Level
    what: str
    finding: str
    remedy: str = ""


def ok(what: str, finding: str) -> Finding:
    return Finding(Level.OK, what, finding)


def warning(what: str, finding: str, remedy: str) -> Finding:
    return Finding(Level.WARNING, what, finding, remedy)


def problem(what: str, finding: str, remedy: str) -> Finding:
    return Finding(Level.PROBLEM, what, finding, remedy)


def names_of(names: Iterable[str]) -> str:
    """The first of them, and how many more."""
    listed = list(names)
    more = f" and {len(listed) - NAMES_SHOWN} more" if len(listed) > NAMES_SHOWN else ""
    return ", ".join(listed[:NAMES_SHOWN]) + more


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """The row that ``bccn doctor --json`` prints, and a door answers with."""
    counts = Counter(finding.level for finding in findings)
    totals = {"problems": counts[Level.PROBLEM], "warnings": counts[Level.WARNING]}
    return totals | {"findings": [asdict(finding) for finding in findings]}
