"""One descriptor for select, poll and epoll loops that stays the same while connections come and go.

It is an epoll descriptor (readable when something in it is) over the socket and an eventfd. The eventfd is
rung when messages already read wait in the client, and, by a timer thread, when it is time to connect again.
"""

from __future__ import annotations

import os
import select
import threading


class Readiness:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._rung = False
        self._lock = threading.Lock()  # the timer must not ring a descriptor that has been closed
        self._closed = False
        self._timer: threading.Timer | None = None

    def fileno(self) -> int:
        return self._epoll.fileno()

    def watch(self, fd: int) -> None:
        """A new connection. A closed descriptor leaves an epoll set by itself."""
        self._cancel()
        self._epoll.register(fd, select.EPOLLIN)

    def settle(self, *, pending: bool) -> None:
        """Ready without the socket, or no longer."""
        with self._lock:
            if pending and not self._rung:
                os.eventfd_write(self._bell, 1)
            elif not pending and self._rung:
                os.eventfd_read(self._bell)
            self._rung = pending

    def ring_in(self, seconds: float) -> None:
        """Ready in a while, or when an earlier timer says so: who then finds nothing to do asks again."""
        if self._timer is not None and self._timer.is_alive():
            return
        self._timer = threading.Timer(seconds, self._ring)
        self._timer.daemon = True
        self._timer.start()

    def _ring(self) -> None:
        with self._lock:
            if not self._closed and not self._rung:
                os.eventfd_write(self._bell, 1)
                self._rung = True

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def abandon(self) -> None:
        """In a child of fork: the timer's thread is not here, and may have held the lock."""
        self._epoll.close()
        os.close(self._bell)

    def close(self) -> None:
        self._cancel()
        with self._lock:
            self._closed = True
            self._epoll.close()
            os.close(self._bell)
