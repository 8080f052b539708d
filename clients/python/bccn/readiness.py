"""One descriptor for select, poll and epoll loops that stays the same while connections come and go.

It is an epoll descriptor with the socket in it and a timerfd, which is readable when the client has something to do
besides reading: at once, when messages wait in it, or when the next attempt to connect is due.
"""

import ctypes
import os
import select
import time
import weakref

# The flags of timerfd_create(2) have the values of those of open(2); that of timerfd_settime(2) is 1.
FLAGS, ABSOLUTE = os.O_NONBLOCK | os.O_CLOEXEC, 1
# Seconds from the start of the clock: a timer set to this is readable at once; one set to zero never is.
AT_ONCE, NEVER = 1e-9, 0.0

_libc = ctypes.CDLL(None, use_errno=True)


class Readiness:
    """Closed with the last reference. A child of fork closes copies: what they watch for its parent stays watched."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._timer = _checked(_libc.timerfd_create(time.CLOCK_MONOTONIC, FLAGS))
        weakref.finalize(self, os.close, self._timer)
        self._epoll.register(self._timer, select.EPOLLIN)
        self._due, self._watched = NEVER, (-1, 0)
        self.fileno = self._epoll.fileno

    def watch(self, socket: int, events: int = 0) -> None:
        """Be readable when these events come. -1: the socket is about to be closed, and leaves the epoll set: a child
        of fork may keep it open."""
        if self._watched != (socket, events):
            if self._watched[0] != -1:
                self._epoll.unregister(self._watched[0])
            if socket != -1:
                self._epoll.register(socket, events)
            self._watched = socket, events

    def set_timer(self, due: float) -> None:
        """Be readable from ``due`` on (monotonic seconds; infinity: never)."""
        due = NEVER if due == float("inf") else max(due, AT_ONCE)
        if due != self._due:
            seconds, fraction = divmod(due, 1)
            timer = (ctypes.c_long * 4)(0, 0, int(seconds), max(1, int(fraction * 1e9)) if due else 0)
            _checked(_libc.timerfd_settime(self._timer, ABSOLUTE, timer, None))
            self._due = due


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(error := ctypes.get_errno(), os.strerror(error))
    return result
