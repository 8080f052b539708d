"""What a program is told of its connection without having asked."""

from __future__ import annotations

from bccn.errors import RejectedError

# Notices that wait to be passed on; the oldest give way. The daemon can send a refusal for every message.
NOTICES_LIMIT = 1024


class Notice:
    """Something that happened to the connection; ``str()`` is a line for a person.

    kind          what                                                         count
    lost          the daemon dropped messages because this client reads slowly how many
    rejected      the daemon rejected something published, or wanted again     how often; ``error`` says why
    revoked       a right was taken back, and what rested on it has ended      1
    closing       the daemon says that it closes the connection, and why       0
    disconnected  the connection ended                                         published, perhaps not taken
    reconnected   there is one again, with every subscription in force         0
    unclaimed     messages to all or to us had no callback (AsyncClient)       how many
    """

    __slots__ = ("count", "error", "kind", "text")

    def __init__(self, kind: str, text: str, count: int = 0, error: RejectedError | None = None) -> None:
        self.kind, self.text, self.count, self.error = kind, text, count, error

    def __str__(self) -> str:
        return self.text if self.error is None or self.count == 1 else f"{self.text}, {self.count} times"

    def __repr__(self) -> str:
        return f"Notice({self.kind!r}, {self.text!r}, count={self.count})"


def log_notice(notice: Notice) -> None:
    """Where nobody else looks; without logging configured Python shows warnings on stderr."""
    import logging

    logging.getLogger("bccn").warning("%s", notice)
