"""Text, tables and times for people."""

import pytest

from bccnd.commands.terminal import duration, iso_time, table, unix_time


def test_times_have_microseconds() -> None:
    assert iso_time(1_700_000_000_123_456_789) == "2023-11-14T22:13:20.123456Z"
    assert unix_time(1_700_000_000_000_000_009) == "1700000000.000000009"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3661, "1 h 1 min"),
        (7200, "2 h"),
        (90000, "1 d 1 h"),
        (86405, "1 d"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_tables_align_numbers_right_and_text_left() -> None:
    assert table(["NAME", "N", "UP"], [["a", 1, "1 s"], ["long\n", 1234, "9 s"]]) == [
        "NAME       N  UP",
        "a          1  1 s",
        "long\\n  1234  9 s",
    ]
