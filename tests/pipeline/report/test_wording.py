from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.pipeline.report import wording

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(("count", "text"), [(0, "0 messages"), (1, "1 message"), (1204, "1,204 messages")])
def test_counted(count: int, text: str) -> None:
    assert wording.counted(count, "message") == text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (list("abcde"), "a, b, c and 2 more"),
    ],
)
def test_listed(words: list[str], text: str) -> None:
    assert wording.listed(words) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 percent"), (1, "100 percent"), (1e-9, "less than 0.001 percent"), (0.00002, "0.002 percent"),
        (0.001, "0.10 percent"), (0.0314, "3.1 percent"), (0.5, "50.0 percent"), (0.9999, "more than 99.9 percent"),
    ],
)  # fmt: skip
def test_percent(share: float, text: str) -> None:
    assert wording.percent(share) == text


@given(st.floats(0, 1))
def test_percent_never_rounds_to_0_or_100(share: float) -> None:
    text = wording.percent(share, " %")
    assert len(text) <= len("<0.001 %"), "it fits into a field of the matrix"
    assert (text == "0 %") == (share == 0)
    assert (text == "100 %") == (share * 100 == 100)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0"),
        (1e-6, "<0.1%"),
        (0.031, "3.1%"),
        (0.0999, "10%"),
        (0.123, "12%"),
        (0.999, ">99%"),
        (1, "100%"),
    ],
)
def test_brief(share: float, text: str) -> None:
    assert wording.brief(share) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (950, "950"),
        (9999, "9,999"),
        (12_300, "12.3 k"),
        (4_000_000, "4 M"),
        (123_456_789, "123 M"),
        (0.05, "0.05"),
    ],
)
def test_compact(number: float, text: str) -> None:
    assert wording.compact(number) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2 MB")]
)
def test_size(count: int, text: str) -> None:
    assert wording.size(count) == text


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 µs"),
        (85.4, "85 µs"),
        (1234, "1.23 ms"),
        (45_200, "45.2 ms"),
        (200_000, "200 ms"),
        (2.5e6, "2.5 s"),
        (-40, "-40 µs"),
    ],
)
def test_latency(microseconds: float, text: str) -> None:
    assert wording.latency(microseconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "less than a second"), (1, "1 second"), (200, "3 minutes 20 seconds"), (661, "11 minutes"),
        (7500, "2 hours 5 minutes"), (100_800, "1 day 4 hours"), (3600, "1 hour"),
    ],
)  # fmt: skip
def test_duration(seconds: float, text: str) -> None:
    assert wording.duration(seconds) == text


def test_name_is_short_and_printable() -> None:
    assert wording.shown("a/b") == "a/b"
    assert wording.shown("a\u202eb\n\x00") == "a\\u202eb\\u000a\\u0000"
    assert wording.shown("x" * 2000) == "x" * 71 + "…"


def test_clock_of_one_day_omits_dates() -> None:
    clock = wording.Clock(NOON, NOON + timedelta(hours=12))
    assert clock.at(NOON) == "12:00"
    assert clock.at(NOON + timedelta(seconds=5)) == "12:00:05"
    assert clock.period() == "2026-08-01 12:00 to 2026-08-02 00:00"


def test_clock_of_several_days_gives_each_date_once() -> None:
    clock = wording.Clock(NOON, NOON + timedelta(days=1))
    assert clock.between(NOON, NOON + timedelta(hours=1)) == "between 2026-08-01 12:00 and 13:00"
    assert clock.between(NOON, NOON + timedelta(hours=12)) == "between 2026-08-01 12:00 and 24:00"
    assert clock.between(NOON, NOON + timedelta(hours=13)) == "between 2026-08-01 12:00 and 2026-08-02 01:00"


def test_clock_without_a_period() -> None:
    assert wording.Clock(None, None).period() == "no time"
    assert wording.Clock(None, None).at(NOON) == "2026-08-01 12:00"
