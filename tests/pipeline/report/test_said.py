"""``bccnd/pipeline/report/said.py``: what a report says, for programs."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from bccnd.pipeline.report.findings import Finding, Level
from bccnd.pipeline.report.rows import Totals
from bccnd.pipeline.report.said import Said
from bccnd.pipeline.status import Status

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def said(*levels: Level, totals: Totals | None = None, recorded: bool = True) -> Said:
    findings = [Finding(level, f"A {level} of \x1b[2J.") for level in levels]
    return Said(
        "out/report.html",
        (NOON - HOUR, NOON) if recorded else None,
        totals or Totals(3, 6, 1, 100, 7, repaired=5),
        findings,
    )


@pytest.mark.parametrize(
    ("levels", "status"),
    [
        ((), Status.OK),
        ((Level.GOOD, Level.NOTE, Level.UNKNOWN), Status.OK),
        ((Level.WARNING, Level.NOTE), Status.WARNING),
        ((Level.PROBLEM, Level.WARNING), Status.CRITICAL),
    ],
)
def test_status_is_that_of_the_worst_finding(levels: tuple[Level, ...], status: Status) -> None:
    assert said(*levels).status(NOON + HOUR, HOUR) == status


def test_without_a_record_of_today_nothing_is_known() -> None:
    late = NOON + 2 * HOUR
    for one in (said(Level.GOOD, totals=Totals()), said(Level.UNKNOWN, recorded=False, totals=Totals())):
        assert one.status(NOON, HOUR) == Status.UNKNOWN
    assert said(Level.GOOD).status(late, HOUR) == Status.UNKNOWN
    assert said(Level.PROBLEM).status(late, HOUR) == Status.CRITICAL, "what is known to be wrong still is"


def test_a_check_begins_with_one_line_and_its_numbers() -> None:
    summary = said(Level.PROBLEM, Level.PROBLEM, Level.WARNING).summary(NOON, HOUR)
    assert summary == "BCCND CRITICAL - 2 problems, 1 warning | sent=100 lost=7 hosts=3 repaired=5"
    summary = said(Level.GOOD).summary(NOON + 3 * HOUR, HOUR)
    assert summary.startswith("BCCND UNKNOWN - 0 problems, 0 warnings, the record ends 3 hours ago | ")
    summary = said(totals=Totals(), recorded=False).summary(NOON, HOUR)
    assert (
        summary
        == "BCCND UNKNOWN - 0 problems, 0 warnings, loss is unknown | sent=0 lost=0 hosts=0 repaired=0"
    )


def test_json_has_the_keys_that_are_documented() -> None:
    about = {"sender": "a", "receiver": "b"}
    finding = Finding(Level.PROBLEM, "Host b lost.", "loss-12345678", about, "loss")
    whole = said()._replace(findings=[finding, Finding(Level.NOTE, "No more.", kind="loss")])
    text = whole.as_json()
    assert "\n" not in text
    assert json.loads(text) == {
        "format": 1, "page": "out/report.html",
        "from": "2026-01-31T11:00:00+00:00", "until": "2026-01-31T12:00:00+00:00",
        "hosts": 3, "sent": 100, "lost": 7, "repaired": 5,
        "findings": [
            {"level": "problem", "kind": "loss", "about": about, "text": "Host b lost.", "link": "#loss-12345678"},
            {"level": "note", "kind": "loss", "about": {}, "text": "No more.", "link": ""},
        ],
    }  # fmt: skip
    assert json.loads(said(recorded=False).as_json())["until"] is None


def test_no_line_moves_the_cursor() -> None:
    assert [*said(Level.PROBLEM).lines()] == ["Problem: A problem of \\e[2J."]
