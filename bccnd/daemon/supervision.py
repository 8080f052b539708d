"""What the service manager learns about the daemon: when it serves, what it does, and that it gets on.

Rules
- READY=1 comes once the socket listens and the loop runs. A successor does not say it: the service is ready already.
  It says nothing for its first second, for nobody listens until its predecessor has said MAINPID=.
- WATCHDOG=1 proves progress, not that a timer runs: it is sent only by a callback that the loop makes because a
  descriptor became readable, as for a client, and only if a tick of the daemon (time for the relay, everything
  settled, sequence numbers kept, counters reported) was completed not long ago. A callback that hangs, a loop that
  polls no more, a tick that failed and a hand-over that does not end all lead to a missed ping.
- A manager that reads nothing holds nobody up.
"""

import os
from asyncio import AbstractEventLoop

from bccnd.process.systemd import notify

PINGS = 3  # in the time that the watchdog allows
TICK_SECONDS = 3.0  # since the last tick, which is due each second
SILENCE_SECONDS = 1.0  # of a successor; it is at its first tick, too, that it tells its status


class Supervision:
    """``watchdog``: seconds, 0 for none."""

    def __init__(self, loop: AbstractEventLoop, watchdog: float) -> None:
        self._loop = loop
        self._interval = watchdog / PINGS
        self._pulse = -1
        self._ticked = loop.time()
        self._status = ""

    def serving(self, status: str, *, succeeded: bool) -> None:
        """From here on the daemon answers."""
        if not succeeded:
            self._status = status
            notify("READY=1", f"STATUS={status}")
        self._ticked = self._loop.time()
        if self._interval and self._pulse < 0:
            self._pulse = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._loop.add_reader(self._pulse, self._beat)
            self._loop.call_later(min(self._interval, SILENCE_SECONDS) if succeeded else 0, self._ask)

    def ticked(self, status: str) -> None:
        """The tick was completed; told is what has changed."""
        self._ticked = self._loop.time()
        if status != self._status:
            self._status = status
            notify(f"STATUS={status}")

    def reloading(self) -> None:
        notify("RELOADING=1", f"MONOTONIC_USEC={int(self._loop.time() * 1e6)}")

    def reloaded(self, fault: str = "") -> None:
        """With the ``fault`` that left everything as it was; the next tick shows the ordinary status again."""
        if fault:
            self._status = f"not reloaded: {fault}"
        notify("READY=1", f"STATUS={self._status}")

    def stopping(self) -> None:
        notify("STOPPING=1", "STATUS=delivering what is queued")

    def close(self) -> None:
        if self._pulse >= 0:
            self._loop.remove_reader(self._pulse)
            os.close(self._pulse)
            self._pulse = -1

    def _beat(self) -> None:
        os.eventfd_read(self._pulse)
        if self._loop.time() - self._ticked < max(TICK_SECONDS, self._interval):
            notify("WATCHDOG=1")
        self._loop.call_later(self._interval, self._ask)

    def _ask(self) -> None:
        if self._pulse >= 0:
            os.eventfd_write(self._pulse, 1)
