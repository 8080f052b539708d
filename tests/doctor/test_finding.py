"""Findings as JSON."""

from bccnd.doctor.finding import Finding, Level, as_json


def test_findings_are_counted_by_level() -> None:
    found = [
        Finding(Level.OK, "clock", "synchronised"),
        Finding(Level.WARNING, "clients", "1 too slow", "let it read faster"),
        Finding(Level.WARNING, "port", "also used"),
    ]
    told = as_json(found)
    assert (told["problems"], told["warnings"]) == (0, 2)
    assert told["findings"][1] == {
        "level": "warning", "what": "clients", "finding": "1 too slow", "remedy": "let it read faster"
    }  # fmt: skip
