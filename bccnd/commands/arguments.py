"""Types of command-line arguments; argparse makes exit code 2 and a line of what they raise."""

from argparse import ArgumentTypeError


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:  # also false for nan
        raise ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def interval(text: str) -> float:
    value = seconds(text)
    if value < 0.1:
        raise ArgumentTypeError(f"{text} s is too short an interval: 0.1 s at least")
    return value
