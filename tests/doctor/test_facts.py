"""What is not known is left unknown."""

from dataclasses import fields

from bccnd.doctor.facts import Facts


def test_nothing_is_known_at_first() -> None:
    facts = Facts("0.1.0")
    known = {field.name for field in fields(facts) if getattr(facts, field.name)}
    assert known == {"version", "port", "socket"}
