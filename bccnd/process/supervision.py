"""What systemd learns about the daemon: when it serves, what it does, and whether it makes progress.

Rules
- READY=1 goes out once the socket listens and the loop runs. A successor does not send it, because the service is
  ready already. It sends nothing in its first second, because systemd ignores it until its predecessor has sent
  MAINPID=.
- WATCHDOG=1 proves progress, not that a timer runs. It is sent by a callback that the loop runs because a descriptor
  became readable, as for a client, and only if a tick of the daemon was completed not long ago. A tick gives the
  relay its time, settles everything, keeps sequence numbers and reports counters. So a ping is missing when a
  callback hangs, when the loop no longer polls, when a tick fails, and when a hand-over does not end.
- A manager that reads nothing holds nobody up.
"""

import os
from asyncio import AbstractEventLoop

import structlog

from bccnd.errors import BccndError
from bccnd.process.systemd import notify

# Pings in the time that the watchdog allows.
PINGS = 3

# Seconds after which a tick is overdue; one is due each second.
TICK_SECONDS = 3.0

# Seconds for which a successor is silent. It also sends its status no sooner, with its first tick.
SILENCE_SECONDS = 1.0


log = structlog.get_logger()


class Supervision:
    """``watchdog``: seconds within which systemd wants the next ping, 0 for no watchdog."""

    def __init__(self, loop: AbstractEventLoop, watchdog: float) -> None:
        self._loop = loop
        self._interval = watchdog / PINGS
        self._pulse = -1
        self._ticked = loop.time()
        self._status = ""

    def serving(self, status: str, *, succeeded: bool) -> None:
        """The daemon answers from now on."""
        if not succeeded:
            self._status = status
            notify("READY=1", f"STATUS={status}")
        self._ticked = self._loop.time()
        if self._interval and self._pulse < 0:
            self._pulse = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._loop.add_reader(self._pulse, self._beat)
            self._loop.call_later(min(self._interval, SILENCE_SECONDS) if succeeded else 0, self._ask)

    def ticked(self, status: str) -> None:
        """A tick was completed. Sends the status if it has changed."""
        self._ticked = self._loop.time()
        if status != self._status:
            self._status = status
            notify(f"STATUS={status}")

    def reloading(self) -> None:
        notify("RELOADING=1", f"MONOTONIC_USEC={int(self._loop.time() * 1e6)}")

    def reloaded(self, fault: str = "") -> None:
        """A reload has ended, or has failed with ``fault``, which is the status until the next tick."""
        if fault:
            self._status = f"not reloaded: {fault}"
        notify("READY=1", f"STATUS={self._status}")

    def not_reloaded(self, error: BccndError) -> None:
        """A reload was refused: its log says why, a line for each fault."""
        faults = str(error).splitlines()
        for fault in faults:
            log.error("not reloaded, the old settings stay", fault=fault)
        self.reloaded(faults[0])

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
