"""How a sub-command ends: exit codes, and lines on stderr."""

import os

import bccn

# The same for bccnd and bccn.
DONE, FAULT, USAGE, TIMED_OUT, REFUSED, UNAVAILABLE, NOBODY_LISTENS = range(7)


def exit_code(error: bccn.BccnError) -> int:
    """The exit code for ``error``."""
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
    """Write a line to stderr; stdout is for messages alone."""
    os.write(2, f"bccn: {text}\n".encode("utf-8", "backslashreplace"))
