"""What the kernel does with datagrams before the daemon reads them: the filter, the receive buffers, what they drop.

Rules
- The filter is on while there is no tap: a tap shows everything that comes to the port, and why it is dropped. The
  filter saves work and protects nothing: a new socket may be without it until the next tick.
- Dropped datagrams are reported in a warning, at most once in REPORT_SECONDS, which says what to set to which value.
  Filtered datagrams belong to other programs and are only counted.
- A buffer smaller than configured is reported once, when its socket is new.
"""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from bccnd.net import filter as bpf
from bccnd.net.drops import Buffer, KernelDrops, buffer_of, cookie_of

# Every version of the protocol begins with it. Datagrams that are wrong after it come in and are counted by reason.
BEGINNING = b"BCCN"

# Seconds between two warnings: longer than it takes to type a remedy.
REPORT_SECONDS = 60.0

# Bytes of buffer that Linux charges for a datagram of 1400 bytes (skb->truesize), rounded up.
DATAGRAM_COST = 2304

# The upper bound of buffers.receive_bytes.
BUFFER_LIMIT = 1 << 30

_RMEM_MAX = Path("/proc/sys/net/core/rmem_max")

log = structlog.get_logger()


class Kernel:
    """``sockets`` returns those that are open; ``receive_bytes`` is the configured buffer of each."""

    def __init__(self, sockets: Callable[[], Sequence[socket.socket]], receive_bytes: int) -> None:
        self._sockets = sockets
        self._receive_bytes = receive_bytes
        self._drops = KernelDrops()
        self._filtering: dict[int, bool] = {}  # by cookie
        self._tapped = False
        self._reported, self._reported_at = 0, float("-inf")
        self._worst = 0  # the most dropped in one second since the last warning

    def tick(self, now: float) -> None:
        """Call this about once a second, and before sockets are closed."""
        self._count()
        self._watch()
        new = self._drops.dropped - self._reported
        if new and now - self._reported_at >= REPORT_SECONDS:
            given = min((buffer.size // 2 for buffer in self.buffers()), default=0)
            wanted = enough(given, self._worst)
            log.warning(
                "kernel dropped datagrams: receive buffer full",
                dropped=new,
                buffer=given,
                wanted=wanted,
                remedy=remedy(wanted, given, self._receive_bytes, _rmem_max()),
            )
            self._reported, self._reported_at, self._worst = self._drops.dropped, now, 0

    def _count(self) -> None:
        self._worst = max(self._worst, self._drops.sample(self._sockets()))

    def _watch(self) -> None:
        """Filter new sockets, and check the buffer that each was given."""
        filtering = {}
        for sock in self._sockets():
            cookie, on = cookie_of(sock), not self._tapped
            if cookie not in self._filtering:
                self._check(buffer_of(sock).size // 2)
            if self._filtering.get(cookie) is not on:
                if on:
                    bpf.attach(sock, BEGINNING)
                else:
                    bpf.detach(sock)
            filtering[cookie] = on
        self._filtering = filtering

    def _check(self, given: int) -> None:
        if given < self._receive_bytes:
            log.warning(
                "receive buffer smaller than configured",
                buffer=given,
                wanted=self._receive_bytes,
                remedy=remedy(self._receive_bytes, given, self._receive_bytes, _rmem_max()),
            )

    def tapped(self, tapped: bool) -> None:
        """Set whether there is a tap from now on. Call this once before anything is read, too."""
        self._tapped = tapped
        self._watch()

    def buffers(self) -> list[Buffer]:
        return [buffer_of(sock) for sock in self._sockets()]

    def status(self) -> dict[str, int]:
        self._count()
        return {"dropped": self._drops.dropped, "filtered": self._drops.filtered}

    def state(self) -> dict[str, Any]:
        """In plain values, for a successor."""
        self._count()
        return self._drops.state() | {"reported": self._reported}

    def restore(self, state: dict[str, Any]) -> None:
        self._drops.restore(state)
        self._reported = state["reported"]


def enough(given: int, lost: int) -> int:
    """Bytes to configure after a burst that did not fit ``given`` bytes and lost ``lost`` datagrams."""
    needed = given + lost * DATAGRAM_COST // 2  # the kernel doubles the configured size
    return min(1 << max(needed - 1, 0).bit_length(), BUFFER_LIMIT)


def remedy(wanted: int, given: int, configured: int, allowed: int | None) -> str:
    """What to do for a buffer of ``wanted`` bytes. ``allowed`` is net.core.rmem_max, None where it is hidden."""
    steps = []
    # A daemon that was given more than allowed has CAP_NET_ADMIN, and no limit.
    if allowed is None or given <= allowed < wanted:
        steps.append(f"sysctl -w net.core.rmem_max={wanted}")
    if wanted > configured:
        steps.append(f"set buffers.receive_bytes = {wanted}")
    if not steps:
        return "the buffer is as large as it can be: give the daemon more CPU, or the segment less to carry"
    return ", then ".join([*steps, "systemctl kill --kill-whom=main -s USR2 bccnd"])


def _rmem_max() -> int | None:
    try:
        return int(_RMEM_MAX.read_text())
    except (OSError, ValueError):
        return None  # only the first network namespace has the file
