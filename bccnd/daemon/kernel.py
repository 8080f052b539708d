"""What the kernel does with datagrams before the daemon reads them: the filter, the receive buffers, what they lose.

Rules
- The filter stands while nobody taps: who taps is to see everything that comes to the port, and why it is dropped.
  It is a matter of cost, not of safety: a socket that appears may be without it until the next second.
- Lost datagrams are a warning, at most one in REPORT_SECONDS, with what to set to which value. Filtered ones are
  other people's, and only counted.
- A buffer smaller than configured is said once, when its socket is first seen.
"""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from bccnd.net import filter as bpf
from bccnd.net.drops import Buffer, KernelDrops, buffer_of, cookie_of

BEGINNING = b"BCCN"  # of every version; what is wrong after it comes in, and is counted by reason
REPORT_SECONDS = 60.0  # between two warnings: longer than a remedy takes to type
DATAGRAM_COST = 2304  # bytes of buffer that Linux charges for a datagram of 1400 (skb->truesize), rounded up
BUFFER_LIMIT = 1 << 30  # as of buffers.receive_bytes

_RMEM_MAX = Path("/proc/sys/net/core/rmem_max")

log = structlog.get_logger()


class Kernel:
    """``sockets``: those open at the moment; ``receive_bytes``: what each was to have, as configured."""

    def __init__(self, sockets: Callable[[], Sequence[socket.socket]], receive_bytes: int) -> None:
        self._sockets = sockets
        self._receive_bytes = receive_bytes
        self._drops = KernelDrops()
        self._filtering: dict[int, bool] = {}  # by cookie
        self._tapped = False
        self._told, self._told_at = 0, float("-inf")
        self._worst = 0  # lost in one second, since last told

    def tick(self, now: float) -> None:
        """To be called about once a second, and before sockets are given up."""
        self._count()
        self._watch()
        new = self._drops.dropped - self._told
        if new and now - self._told_at >= REPORT_SECONDS:
            given = min((buffer.size // 2 for buffer in self.buffers()), default=0)
            wanted = enough(given, self._worst)
            log.warning(
                "kernel dropped datagrams: receive buffer full",
                dropped=new,
                buffer=given,
                wanted=wanted,
                remedy=remedy(wanted, given, self._receive_bytes, _rmem_max()),
            )
            self._told, self._told_at, self._worst = self._drops.dropped, now, 0

    def _count(self) -> None:
        self._worst = max(self._worst, self._drops.sample(self._sockets()))

    def _watch(self) -> None:
        """Filter new sockets, and look at what buffer they were given."""
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
        """Whether anybody taps from now on. To be called once before anything is read, too."""
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
        return self._drops.state() | {"told": self._told}

    def restore(self, state: dict[str, Any]) -> None:
        self._drops.restore(state)
        self._told = state["told"]


def enough(given: int, lost: int) -> int:
    """Bytes to configure so that a burst that found ``given`` too small by ``lost`` datagrams would have fitted."""
    needed = given + lost * DATAGRAM_COST // 2  # the kernel doubles what is asked for
    return min(1 << max(needed - 1, 0).bit_length(), BUFFER_LIMIT)


def remedy(wanted: int, given: int, configured: int, allowed: int | None) -> str:
    """What to do to have ``wanted`` bytes. ``allowed``: net.core.rmem_max, where it can be seen."""
    steps = []
    if (
        allowed is None or given <= allowed < wanted
    ):  # more than allowed was given: CAP_NET_ADMIN, no limit for us
        steps.append(f"sysctl -w net.core.rmem_max={wanted}")
    if wanted > configured:
        steps.append(f"set buffers.receive_bytes = {wanted}")
    if not steps:
        return "the buffer is as large as it may be: give the daemon more CPU, or the segment less to carry"
    return ", then ".join([*steps, "systemctl kill --kill-whom=main -s USR2 bccnd"])


def _rmem_max() -> int | None:
    try:
        return int(_RMEM_MAX.read_text())
    except (OSError, ValueError):
        return None  # another network namespace than the first has no such file
