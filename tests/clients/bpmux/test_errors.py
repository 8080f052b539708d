"""``bpmux.errors``."""

from bpmux.errors import BpmuxError


def test_a_fault_names_its_rule_and_what_broke_it() -> None:
    error = BpmuxError("credit", "9 bytes for 3")
    assert (error.rule, str(error)) == ("credit", "credit: 9 bytes for 3")
