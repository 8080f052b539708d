"""A connection of a gateway as a descriptor: a socket of TCP, or the device of a serial line.

Rules
- READ_BYTES are read in a turn of the loop, and none while ``hold`` is in force. So each peer has its turn, and one
  that sends faster than the gateway works has to wait.
- A frame is written with one write, as far as there is room: public peers read a frame with one read. The rest waits
  here until there is room.
- The end is reported once, never within a call of the owner, and not after ``close``.
"""

import os
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from typing import Protocol

# With this, a large frame takes a hundred turns, and the smallest ones come a thousand at a time.
READ_BYTES = 32_768

ENDED = "ended by the peer"


class Owner(Protocol):
    def heard(self, number: int, data: bytes) -> None: ...

    def wrote(self, number: int) -> None:
        """Less waits to be written."""

    def ended(self, number: int, reason: str) -> None: ...


class Stream:
    """``shut`` closes the descriptor, which must not block. ``waiting``: bytes that are still to be written."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        number: int,
        descriptor: int,
        shut: Callable[[], object],
        owner: Owner,
    ) -> None:
        self.number = number
        self.waiting = 0
        self._loop = loop
        self._descriptor = descriptor
        self._shut = shut
        self._owner: Owner | None = owner
        self._queue: deque[memoryview] = deque()
        self._reads = False
        self.read_on()

    def send(self, data: bytes) -> None:
        if self._owner is None:
            return
        rest = memoryview(data)
        if not self._queue:
            rest = rest[self._write(rest) :]
            if not rest:
                return
            self._loop.add_writer(self._descriptor, self._on_writable)
        self._queue.append(rest)
        self.waiting += len(rest)

    def hold(self) -> None:
        """Read nothing for now."""
        if self._reads:
            self._reads = False
            self._loop.remove_reader(self._descriptor)

    def read_on(self) -> None:
        if not self._reads and self._owner is not None:
            self._reads = True
            self._loop.add_reader(self._descriptor, self._on_readable)

    def close(self) -> None:
        if self._owner is not None:
            self._let_go()
            self._shut()

    def _let_go(self) -> None:
        self._owner = None
        self.hold()
        self._loop.remove_writer(self._descriptor)
        self._queue.clear()
        self.waiting = 0

    def _on_readable(self) -> None:
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error.strerror or str(error))
            return
        if data and self._owner is not None:
            self._owner.heard(self.number, data)
        else:
            self._end(ENDED)

    def _write(self, data: memoryview) -> int:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._loop.call_soon(self._end, error.strerror or str(error))
            return len(data)

    def _on_writable(self) -> None:
        while self._queue:
            rest = self._queue[0]
            sent = self._write(rest)
            self.waiting -= sent
            if sent < len(rest):
                self._queue[0] = rest[sent:]
                break
            self._queue.popleft()
        else:
            self._loop.remove_writer(self._descriptor)
        if self._owner is not None:
            self._owner.wrote(self.number)

    def _end(self, reason: str) -> None:
        owner = self._owner
        if owner is not None:
            self._let_go()
            self._shut()
            owner.ended(self.number, reason)
