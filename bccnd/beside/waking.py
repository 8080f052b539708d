"""Calls a function when something is due, with one timer of the loop."""

import time
from asyncio import AbstractEventLoop, Handle
from collections.abc import Callable
from math import inf

# A timer of the loop may be early by this.
TICK = 0.001


class Waking:
    """``due``: when to call ``on_time``, in monotonic seconds; infinite for never. It may be too early."""

    def __init__(
        self, loop: AbstractEventLoop, due: Callable[[], float], on_time: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._due = due
        self._on_time = on_time
        self._timer: Handle | None = None
        self._set_for = inf

    def schedule(self) -> None:
        """The deadline may be sooner now. One that moves later is checked at the old time."""
        due = self._due()
        if self._timer is not None:
            if due >= self._set_for:
                return
            self._timer.cancel()
        self._set_for, wait = due, due - time.monotonic()
        if wait <= 0:
            self._timer = self._loop.call_soon(self._wake)
        elif wait < inf:
            self._timer = self._loop.call_later(wait + TICK, self._wake)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        self._timer = None
        if self._due() <= time.monotonic():
            self._on_time()
        self.schedule()
