"""Types of command-line arguments. What they raise argparse reports in a line, with exit code 2."""

from argparse import ArgumentTypeError


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:  # also false for nan
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def interval(text: str) -> float:
    value = seconds(text)
    if value < 0.1:
        raise ArgumentTypeError(f"{text} s is too short: the interval is at least 0.1 s")
    return value
