"""How a sub-command ends: exit codes, and lines on stderr."""

import bccn
from bccnd.process import standard_streams

# The same for bccnd and bccn.
DONE, FAULT, USAGE, TIMED_OUT, REFUSED, UNAVAILABLE, NOBODY_LISTENS = range(7)


# What to do about an UnavailableError, by the first word of its reason; the empty one is for a daemon that is away.
REMEDIES = {
    "": "is bccnd running? --socket PATH or $BCCN_SOCKET names another socket",
    "busy": "it is stuck, or a program connects over and over: journalctl -u bccnd",
    "limit": "end some of its clients (bccn top --clients), or raise the limits in its settings",
    "shutdown": "it stops, or is being replaced: systemctl status bccnd",
    "slow": "read faster, subscribe to less, or have a larger queue: [queue] in its settings",
}
# The same by what the error says of a door.
DOORS = {
    "no door at": "is bccnd-mux running there? --connect ADDRESS or $BCCN_CONNECT names another door",
    "does not prove": "$BCCN_TLS_CA names who signed its certificate, which has the host of --connect as its name",
    "does not take our certificate": "$BCCN_TLS_CERT and $BCCN_TLS_KEY name yours, signed by its authorities",
}


def remedy(error: bccn.BccnError) -> str:
    """What to do, in a line; empty where the error says it, or nobody knows."""
    if not isinstance(error, bccn.UnavailableError | bccn.RefusedError) or isinstance(
        error, bccn.UnconfirmedError
    ):
        return ""
    for said, advice in DOORS.items():
        if said in str(error):
            return advice
    return REMEDIES.get(_cause(error), "") if isinstance(error, bccn.UnavailableError) else ""


def _cause(error: bccn.UnavailableError) -> str:
    return error.reason.partition(":")[0]


def exit_code(error: bccn.BccnError) -> int:
    """The exit code for ``error``."""
    match error:
        case bccn.UnavailableError():
            return REFUSED if _cause(error) == "limit" else UNAVAILABLE
        case bccn.TimedOutError():
            return TIMED_OUT
        case bccn.NobodyListensError():
            return NOBODY_LISTENS
        case bccn.RejectedError(code="refused" | "name-taken" | "limit"):
            return REFUSED
        case bccn.RejectedError() | bccn.InvalidError():
            return USAGE
    return FAULT


class Reporter:
    """Reports on stderr what happens to a connection. What is said again while the daemon is away is said once."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, notice: bccn.Notice) -> None:
        if notice.kind == "reconnected":
            self._said = ""
        if notice.kind != "closing" or str(notice) != self._said:
            complain(str(notice))
        if notice.kind == "closing":
            self._said = str(notice)


def silent(_notice: bccn.Notice) -> None:
    """For a command that says itself what a connection came to."""


def complain(text: str) -> None:
    """Write a line to stderr, safe for a terminal; stdout is for messages alone."""
    standard_streams.complain("bccn", text)
