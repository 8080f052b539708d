"""What a report says, for programs: as lines, as JSON, and as the exit code of a check.

Rules
- Keys, kinds and exit codes are documented (``bccnd/pipeline/README.md``, "Monitoring"), and stay as they are.
- A check is never green for want of knowledge: no record, or an old one, is UNKNOWN.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from bccnd.pipeline.report.findings import Finding, Level
from bccnd.pipeline.report.rows import Totals
from bccnd.pipeline.report.wording import counted, duration
from bccnd.pipeline.status import Status
from bccnd.process.standard_streams import printable

# Of the JSON object. It rises when a key goes or changes its meaning, not when one is added.
FORMAT = 1
LEVELS = {
    Level.PROBLEM: "Problem", Level.WARNING: "Warning", Level.GOOD: "Good", Level.UNKNOWN: "Unknown",
    Level.NOTE: "Note",
}  # fmt: skip


class Said(NamedTuple):
    """``page``: its path; ``span``: the time that the tables cover, None if nothing was recorded; the ``findings``
    begin with the most important."""

    page: str
    span: tuple[datetime, datetime] | None
    totals: Totals
    findings: Sequence[Finding]

    def lines(self) -> Iterator[str]:
        """The findings, a line each."""
        for finding in self.findings:
            yield printable(f"{LEVELS[finding.level]}: {finding.sentence}")

    def as_json(self) -> str:
        """One line."""
        start, end = self.span or (None, None)
        return json.dumps(
            {
                "format": FORMAT,
                "page": self.page,
                "from": start and start.isoformat(),
                "until": end and end.isoformat(),
                "hosts": self.totals.hosts,
                "sent": self.totals.sent,
                "lost": self.totals.lost,
                "repaired": self.totals.repaired,
                "findings": [
                    {
                        "level": finding.level.value,
                        "kind": finding.kind,
                        "about": finding.about,
                        "text": finding.sentence,
                        "link": f"#{finding.link}" if finding.link else "",
                    }
                    for finding in self.findings
                ],
            }
        )

    def status(self, now: datetime, oldest: timedelta) -> Status:
        """The worst of what it says; UNKNOWN if it does not know of the time since ``oldest`` before now."""
        levels = {finding.level for finding in self.findings}
        if Level.PROBLEM in levels:
            return Status.CRITICAL
        if Level.WARNING in levels:
            return Status.WARNING
        return Status.OK if self.totals.sent and not self._is_old(now, oldest) else Status.UNKNOWN

    def summary(self, now: datetime, oldest: timedelta) -> str:
        """The first line of a check: the status, how much was found, and numbers to be drawn after ``|``."""
        status = self.status(now, oldest)
        problems, warnings = (
            counted(sum(finding.level == level for finding in self.findings), level.value)
            for level in (Level.PROBLEM, Level.WARNING)
        )
        said = f"BCCND {status.name} - {problems}, {warnings}"
        if not self.totals.sent:
            said += ", loss is unknown"
        if self._is_old(now, oldest) and self.span:
            said += f", the record ends {duration((now - self.span[1]).total_seconds())} ago"
        totals = self.totals
        return (
            f"{said} | sent={totals.sent} lost={totals.lost} hosts={totals.hosts} repaired={totals.repaired}"
        )

    def _is_old(self, now: datetime, oldest: timedelta) -> bool:
        return self.span is None or now - self.span[1] > oldest
