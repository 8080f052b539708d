"""How a sub-command ends: exit codes, and lines on stderr."""

import os

import bccn

DONE, FAULT, USAGE, TIMED_OUT, REFUSED, UNAVAILABLE, NOBODY_LISTENS = range(7)  # of bccnd and bccn alike


def exit_code(error: bccn.BccnError) -> int:
    """What a script is told about ``error``."""
    match error:
        case bccn.UnavailableError():
            return UNAVAILABLE
        case bccn.TimedOutError():
            return TIMED_OUT
        case bccn.NobodyListensError():
            return NOBODY_LISTENS
        case bccn.RejectedError(code="refused" | "name-taken" | "limit"):
            return REFUSED
        case bccn.RejectedError() | bccn.InvalidError():
            return USAGE
    return FAULT


def complain(text: str) -> None:
    """A line on stderr; stdout is for messages alone."""
    os.write(2, f"bccn: {text}\n".encode("utf-8", "backslashreplace"))
