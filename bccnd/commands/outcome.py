"""How a sub-command ends: exit codes, and lines on stderr."""

import bccn
from bccnd.process import standard_streams

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
    """Write a line to stderr, safe for a terminal; stdout is for messages alone."""
    standard_streams.complain("bccn", text)
