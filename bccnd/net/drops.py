"""What the kernel drops of what comes to UDP sockets, and how much their receive buffers hold.

Rules
- A socket counts in one number what did not fit its buffer and what its filter refused (with the few datagrams whose
  UDP checksum is wrong). The network namespace counts apart what did not fit, for all its sockets. So of what our
  sockets have dropped between two looks, as much is taken for overflow as the namespace saw of it meanwhile, and the
  rest for filtered. That is exact unless another program of the namespace overflows in the same second in which our
  filter refuses something; then it is too much overflow, never too little.
- The namespace is read before the sockets and, if these have dropped anything, again after them: its span encloses
  theirs, so that no overflow falls between two looks.
- SO_MEMINFO tells the number when it is asked for; SO_RXQ_OVFL, which tells the same, costs a control message with
  every datagram.
- Sockets are known by their cookie, which no other socket of the host has or will have: they come and go, and stay
  the same in the hands of a successor.
"""

import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

_SO_MEMINFO = 55
_SO_COOKIE = 57
_MEMINFO = Struct("=9I")  # linux/sock_diag.h: SK_MEMINFO_VARS
_COOKIE = Struct("=Q")
_WRAP = 1 << 32

# Not /proc/net, which the unit's ProcSubset=pid would hide.
_SNMP, _SNMP6 = Path("/proc/self/net/snmp"), Path("/proc/self/net/snmp6")
# No room in the socket's buffer, and none left of what UDP may take altogether (net.ipv4.udp_mem).
_OVERFLOWS = ("RcvbufErrors", "MemErrors")


class Buffer(NamedTuple):
    """``size``, ``used``: bytes as the kernel accounts for them, twice what SO_RCVBUF was asked for; ``drops``: since
    the socket was made, wrapping at 2^32.
    """

    size: int
    used: int
    drops: int


def buffer_of(sock: socket.socket) -> Buffer:
    """The receive buffer of a socket."""
    used, size, *_, drops = _MEMINFO.unpack(sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))
    return Buffer(size, used, drops)


def cookie_of(sock: socket.socket) -> int:
    return int(_COOKIE.unpack(sock.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, _COOKIE.size))[0])


def overflows(snmp: Path = _SNMP, snmp6: Path = _SNMP6) -> int:
    """Datagrams that found no room in this network namespace so far. ``OSError`` where /proc does not tell."""
    names, values = [line.split() for line in snmp.read_text().splitlines() if line.startswith("Udp:")]
    total = sum([int(value) for name, value in zip(names, values, strict=True) if name in _OVERFLOWS])
    try:
        lines = snmp6.read_text().splitlines()
    except FileNotFoundError:  # a kernel without IPv6
        return total
    wanted = {f"Udp6{name}" for name in _OVERFLOWS}
    return total + sum([int(line.split()[1]) for line in lines if line.split()[0] in wanted])


class KernelDrops:
    """The account: ``dropped`` did not fit, ``filtered`` was refused; since the first daemon's start."""

    def __init__(self, overflows: Callable[[], int] = overflows) -> None:
        self.dropped = self.filtered = 0
        self._overflows = overflows
        self._drops: dict[int, int] = {}  # by cookie, at the last look
        self._before = self._look()

    def sample(self, sockets: Iterable[socket.socket]) -> int:
        """To be called about once a second with the sockets that are open; how many more did not fit."""
        before, self._before = self._before, self._look()
        drops = {cookie_of(sock): buffer_of(sock).drops for sock in sockets}
        grown = sum([(now - self._drops.get(cookie, 0)) % _WRAP for cookie, now in drops.items()])
        self._drops = drops
        if not grown:
            return 0
        after = self._look()
        # Where /proc does not tell: rather a warning too much than silent loss.
        overflow = grown if before is None or after is None else min(grown, after - before)
        self.dropped += overflow
        self.filtered += grown - overflow
        return overflow

    def state(self) -> dict[str, Any]:
        """For a successor, who has the same sockets, in plain values."""
        return {
            "dropped": self.dropped,
            "filtered": self.filtered,
            "drops": self._drops,
            "before": self._before,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.dropped, self.filtered = state["dropped"], state["filtered"]
        self._drops, self._before = dict(state["drops"]), state["before"]

    def _look(self) -> int | None:
        try:
            return self._overflows()
        except (OSError, ValueError):
            return None
