"""The driver of the asyncio client, on asyncio's own loops and on uvloop.

Rules:
1. The loop watches the raw socket (``add_reader`` and, only while something waits for room, ``add_writer``) and calls
   when an attempt to connect is due. No task of its own is needed.
2. Reading pauses while more than READ_AHEAD_LIMIT bytes of messages wait to be received (then the daemon's queue for
   this client fills, and its policy decides), but never while an answer is awaited.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import get_running_loop
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from bccn.connection import FOREVER, Connection
from bccn.errors import ProtocolError
from bccn.exchange import Pending
from bccn.transport import MEMORY_PAUSE

READ_AHEAD_LIMIT = 1024 * 1024
# Packets read in one turn of the loop.
READ_LIMIT = 64


class AsyncConnection(Connection):
    """``on_news`` is called when something was read, and when the connection came, went or was closed."""

    on_news: Callable[[], None]
    reading = _writing = False
    _timer: asyncio.TimerHandle | None = None
    _timer_due = FOREVER

    async def wait(self, pending: Pending, deadline: float) -> bool:
        self.attend()
        if pending.done:
            return True
        loop = get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        wake = partial(_wake, woken)
        pending.wakers.append(wake)
        timer = None if deadline == FOREVER else loop.call_later(deadline - time.monotonic(), wake)
        try:
            await woken
        finally:
            pending.wakers.remove(wake)
            if timer is not None:
                timer.cancel()
        return pending.done

    async def give_way(self) -> None:
        await asyncio.sleep(0)

    def attend(self) -> None:
        """Have the loop watch what matters now."""
        transport, due = self.transport, self.due
        if transport is not None:
            reading = self._session.waiting_size <= READ_AHEAD_LIMIT or self._session.asking
            if reading != self.reading:
                self.reading = reading
                if reading:
                    get_running_loop().add_reader(transport.fileno(), self._on_readable)
                else:
                    get_running_loop().remove_reader(transport.fileno())
            writing = self.wants_room and not transport.lacks_memory
            if writing != self._writing:
                self._writing = writing
                if writing:
                    get_running_loop().add_writer(transport.fileno(), self._on_room)
                else:
                    get_running_loop().remove_writer(transport.fileno())
            if transport.lacks_memory:
                due = min(due, time.monotonic() + MEMORY_PAUSE)
        if due != self._timer_due:
            self._timer_due = due
            if self._timer is not None:
                self._timer.cancel()
            delay = due - time.monotonic()
            self._timer = None if due == FOREVER else get_running_loop().call_later(delay, self._on_due)

    def closing(self) -> None:
        if self.transport is None:
            return
        loop = get_running_loop()
        if self.reading:
            loop.remove_reader(self.transport.fileno())
        if self._writing:
            loop.remove_writer(self.transport.fileno())
        self.reading = self._writing = False

    def _report(self) -> None:
        super()._report()
        self.on_news()
        self.attend()

    def _on_readable(self) -> None:
        with suppress(ProtocolError):  # the connection has ended with it, and a notice says so
            for _ in range(READ_LIMIT):
                if not self.read():
                    break
        self.on_news()
        self.attend()

    def _on_room(self) -> None:
        self.flush()
        self.attend()

    def _on_due(self) -> None:
        self._timer, self._timer_due = None, FOREVER
        self.advance()
        if self.transport is not None:
            self.transport.lacks_memory = False
        self.flush()
        self.attend()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
