"""The driver of the blocking client: every wait is a poll(2) with a deadline, on the caller's thread.

Rules:
1. Waiting for an answer, or for room to send, goes on reading; otherwise client and daemon could wait for each other.
   What is read meanwhile waits in the session.
2. Nothing happens between two calls of the client. A select loop learns from ``Readiness`` when to make one.
"""

from __future__ import annotations

import os
import time

from bccn.connection import Connection
from bccn.session import BACKLOG_LIMIT
from bccn.transport import POLL_LIMIT, READABLE, WRITABLE, Transport

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any, TypeVar

    from bccn.exchange import Pending
    from bccn.readiness import Readiness

    T = TypeVar("T")


def finish(operation: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits in ``BlockingConnection.wait`` only."""
    try:
        operation.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("the operation waits for something else")


class BlockingConnection(Connection):
    _readiness: Readiness | None = None

    async def wait(self, pending: Pending, deadline: float) -> bool:
        # An answer takes the daemon longer than us: a first attempt to read would be in vain.
        if self.transport is not None and not self._queue and not pending.done:
            self.transport.wait(READABLE, min(deadline, self.due))
        while not pending.done:
            if not self.step(deadline):
                return False
        return True

    def step(self, deadline: float) -> bool:
        """Wait until something may have happened; False once ``deadline`` (monotonic seconds) has passed."""
        transport = self.transport
        if transport is None or self.closed or self.pid != os.getpid():
            self.check()
        if self._queue and self.wants_room:
            self.flush()
            if not self.wants_room:
                return True
        reading = self._session.waiting_size < BACKLOG_LIMIT or self._session.asking
        if reading and self.read():
            return True
        transport, until = self.transport, min(deadline, self.due)
        events = READABLE if reading else 0
        if self._queue and self.wants_room:
            events |= WRITABLE
        if transport is None:
            time.sleep(min(max(0.0, until - time.monotonic()), POLL_LIMIT))
        elif transport.wait(events, until):
            return True
        self.advance()
        return time.monotonic() < deadline

    def read_pending(self, limit: int) -> None:
        """Read up to ``limit`` packets that are there already, and do what is due, without waiting."""
        self.advance()
        self.flush()
        while limit > 0 and self.read():
            limit -= 1

    # --- select loops ---

    def fileno(self) -> int:
        self.check()
        if self._readiness is None:
            from bccn.readiness import Readiness

            self._readiness = Readiness()
            if self.transport is not None:
                self._readiness.watch(self.transport.fileno())
        return self._readiness.fileno()

    def attend(self) -> None:
        """At the end of each call: have select loops know how things stand."""
        if self._readiness is not None and not self.closed:
            self._readiness.settle(0.0 if self._session.waiting else self.due, wants_room=self.wants_room)

    def opened(self, transport: Transport) -> None:
        if self._readiness is not None:
            self._readiness.watch(transport.fileno())

    def closing(self) -> None:
        if self._readiness is not None:
            self._readiness.forget()

    def forked(self) -> None:
        """The child's first call makes a connection of its own."""
        self._drop_readiness()
        self.begin_anew()

    def close(self) -> None:
        super().close()
        self._drop_readiness()

    def _drop_readiness(self) -> None:
        readiness, self._readiness = self._readiness, None
        if readiness is not None:
            readiness.close()
