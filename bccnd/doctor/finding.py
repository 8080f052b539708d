"""One result of a check of the bus: how bad it is, and what to do."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


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


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """The row that ``bccn doctor --json`` prints, and a door answers with."""
    counts = Counter(finding.level for finding in findings)
    totals = {"problems": counts[Level.PROBLEM], "warnings": counts[Level.WARNING]}
    return totals | {"findings": [asdict(finding) for finding in findings]}
