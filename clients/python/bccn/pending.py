"""Something that is waited for: what the session promises and a driver waits for."""

from __future__ import annotations

from collections.abc import Callable

from bccn.errors import BccnError


class Pending:
    """``wakers`` are called once ``done`` is true; ``error``: why it ended in another way."""

    __slots__ = ("done", "error", "wakers")

    def __init__(self) -> None:
        self.done = False
        self.error: BccnError | None = None
        self.wakers: list[Callable[[], None]] = []

    def finish(self, error: BccnError | None = None) -> None:
        self.error, self.done = error, True
        for wake in self.wakers:
            wake()
