"""Types of command-line arguments."""

from argparse import ArgumentTypeError
from collections.abc import Callable

import pytest

from bccnd.commands.arguments import count, interval, moment, name, pattern, seconds


def test_count_and_seconds() -> None:
    assert (count("7"), seconds("0"), seconds("1.5"), seconds("1e3")) == (7, 0.0, 1.5, 1000.0)


@pytest.mark.parametrize(
    ("kind", "text"),
    [(count, text) for text in ("", "0", "-1", "1.5", "\N{SUPERSCRIPT TWO}", "x")]
    + [(seconds, text) for text in ("", "-1", "nan", "inf", "x")],
)
def test_refuses_what_is_not_a_number(kind: Callable[[str], float], text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"is not a (whole )?number"):
        kind(text)


def test_intervals_are_long_enough_to_measure() -> None:
    assert interval("0.1") == 0.1
    with pytest.raises(ArgumentTypeError, match="too short"):
        interval("0.09")


def test_a_number_of_too_many_digits_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="5000 characters are too many"):
        count("9" * 5000)


@pytest.mark.parametrize("text", ["", ">", "a/b", "a/*/b", "a/b*", "a/>", "!", "!here/>", "a.*.b", "*"])
def test_patterns_that_can_match_are_taken_as_they_are(text: str) -> None:
    assert pattern(text) == text


@pytest.mark.parametrize("text", ["a*b", "*b", "a/**", "a b", "a:b", "a|b", "a\0", "\xe4", "\udcff"])
def test_patterns_that_can_match_nothing_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="matches nothing"):
        pattern(text)


def test_a_name_is_not_empty() -> None:
    assert name("x") == "x"
    with pytest.raises(ArgumentTypeError, match="the name is empty"):
        name("")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10m", "-10m"),
        ("1h30m", "-1h30m"),
        ("-10m", "-10m"),
        ("1795254013", "1795254013"),
        ("2026-11-21", "2026-11-21"),
    ],
)
def test_a_time_ago_needs_no_sign(text: str, found: str) -> None:
    assert moment(text) == found
    for wrong in ("", "1 2", "\t", "é", "yesterday", "-", "1\n"):
        with pytest.raises(ArgumentTypeError, match="is no time"):
            moment(wrong)
