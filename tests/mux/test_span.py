"""Times as people write them, and what a REPLAY asks for."""

import pytest

from bccnd.mux.span import LATEST_NS, SECOND_NS, Span, parse, parse_time

NOW = 1_795_254_013 * SECOND_NS


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("-10m", 1_795_253_413),
        ("-1h30m", 1_795_248_613),
        ("-0.5s", 1_795_254_012.5),
        ("-2d", 1_795_081_213),
        ("1795254013", 1_795_254_013),
        ("1795254013.25", 1_795_254_013.25),
        ("0", 0),
        ("-99999d", 0),
        ("2026-11-21T09:40:13Z", 1_795_254_013),
        ("2026-11-21T09:40:13", 1_795_254_013),
        ("2026-11-21T10:40:13.5+01:00", 1_795_254_013.5),
        ("2026-11-21", 1_795_219_200),
    ],
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert parse_time(text, NOW) == int(seconds * 100) * SECOND_NS // 100


def test_nanoseconds_are_kept_and_far_times_are_the_last() -> None:
    assert parse_time("1795254013.123456789", NOW) == NOW + 123_456_789
    assert parse_time("9999-01-01", NOW) == parse_time("999999999999", NOW) == LATEST_NS


@pytest.mark.parametrize(
    "text", ["", "now", "-", "10m", "-10", "-m", "1e9", "1795254013s", "2026-13-01", "-1h 2m", "٣"]
)
def test_what_is_no_time_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"\Abad-value .*: must be ISO 8601[^\n]*\Z"):
        parse_time(text, NOW)


def test_a_replay_has_a_begin_perhaps_an_end_and_a_pattern() -> None:
    assert parse("0  a/>", NOW) == Span(0, None, "a/>")
    assert parse("-1s -0s >", NOW) == Span(NOW - SECOND_NS, NOW, ">")
    assert parse("2030-01-01  a", NOW) == Span(NOW, None, "a"), "what is to come begins now"
    assert parse("0 2030-01-01 a", NOW) == Span(0, NOW, "a"), "nothing is recorded of what is to come"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("0 a/>", "bad-packet REPLAY needs"),
        ("0 1 2 a", "bad-packet"),
        (" 1 a", "bad-packet"),
        ("0 1 ", "bad-pattern"),
        ("0 1 !", "bad-pattern"),
        ("0  !>", "bad-pattern"),
        ("2 1 a", "bad-value 2 is later than 1"),
        ("yesterday  a", "bad-value yesterday: must be"),
    ],
)
def test_what_is_no_replay_is_refused(asked: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}"):
        parse(asked, NOW)
