"""Types of command-line arguments. What they raise argparse reports in a line, with exit code 2."""

import re
from argparse import ArgumentTypeError

# Of a number: all of 64 bits. Python itself reads no more than some thousand.
DIGITS = 20
# Characters that no channel and no name has.
_NEVER = set(" \t\n\r\v\f\0:|")


def count(text: str) -> int:
    if len(text) > DIGITS:
        raise ArgumentTypeError(f"{len(text)} characters are too many for a number")
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def pattern(text: str) -> str:
    """A pattern of channels or names. One that can match nothing is a mistake, as it is for the daemon."""
    if not text.isascii() or set(text) & _NEVER:
        raise ArgumentTypeError(f"{text!r} matches nothing: a name is ASCII without white space, ':' and '|'")
    if any(after not in "/." for after in re.findall(r"\*(.)", text)):
        raise ArgumentTypeError(f"{text!r} matches nothing: after '*' comes '/' or the end")
    return text


def name(text: str) -> str:
    """The name of a file or folder."""
    if not text:
        raise ArgumentTypeError("the name is empty")
    return text


def address(text: str) -> str:
    """The address of a door (``clients/python/README.md``, "Through a door")."""
    if text.startswith("unix:") and text != "unix:":
        return text
    host, _, port = text.removeprefix("tls://").rpartition(":")
    if (
        not text.startswith("tls://")
        or not host
        or not re.fullmatch("[0-9]{1,5}", port)
        or int(port) > 65_535
    ):
        raise ArgumentTypeError(f"{text!r} is no address of a door: that is unix:PATH or tls://HOST:PORT")
    return text


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:  # also false for nan
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def moment(text: str) -> str:
    """A time, as the door of a host reads it. ``10m`` is ``-10m``, which looks like an option to people, too."""
    if not re.fullmatch(r"-?[0-9.][!-~]*", text):
        raise ArgumentTypeError(
            f"{text!r} is no time, such as 2026-11-21T10:00:00Z or 10m for 10 minutes ago"
        )
    return f"-{text}" if re.fullmatch(r"([0-9.]+[smhd])+", text) else text


def interval(text: str) -> float:
    value = seconds(text)
    if value < 0.1:
        raise ArgumentTypeError(f"{text} s is too short: the interval is at least 0.1 s")
    return value
