"""What the kernel drops before a UDP socket is read, and how much the receive buffers hold.

    datagram --> filter --> receive buffer --> recvmmsg
                   |              |
                filtered       dropped

Rules
- A socket counts in one number what did not fit its buffer and what its filter refused, together with the few
  datagrams whose UDP checksum is wrong. The network namespace counts the overflows of all its sockets. So what our
  sockets dropped between two looks counts as overflow up to the number that the namespace saw meanwhile, and the
  rest as filtered. That is exact unless another program of the namespace overflows in the same second in which our
  filter refuses something; the error is then too much overflow, never too little.
- The namespace is read before the sockets and, if these have dropped anything, again after them. Its interval
  encloses theirs, so that no overflow falls between two looks.
- SO_MEMINFO gives the number when asked. SO_RXQ_OVFL gives the same, but costs a control message with each datagram.
- A socket is known by its cookie, which no other socket of the host ever has. It stays the same in a successor.
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
# No room in the socket's buffer, and no memory left for UDP as a whole (net.ipv4.udp_mem).
_OVERFLOWS = ("RcvbufErrors", "MemErrors")


class Buffer(NamedTuple):
    """``size`` and ``used`` are bytes by the kernel's account, which doubles what SO_RCVBUF asks for.

    ``drops`` counts since the socket was made, and wraps at 2^32.
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
    """Datagrams that found no room in this network namespace so far. Raises ``OSError`` when /proc hides it."""
    names, values = [line.split() for line in snmp.read_text().splitlines() if line.startswith("Udp:")]
    total = sum([int(value) for name, value in zip(names, values, strict=True) if name in _OVERFLOWS])
    try:
        lines = snmp6.read_text().splitlines()
    except FileNotFoundError:  # a kernel without IPv6
        return total
    wanted = {f"Udp6{name}" for name in _OVERFLOWS}
    return total + sum([int(line.split()[1]) for line in lines if line.split()[0] in wanted])


class KernelDrops:
    """Counts what did not fit (``dropped``) and what was refused (``filtered``), across replacements."""

    def __init__(self, overflows: Callable[[], int] = overflows) -> None:
        self.dropped = self.filtered = 0
        self._overflows = overflows
        self._drops: dict[int, int] = {}  # by cookie, at the last look
        self._before = self._look()

    def sample(self, sockets: Iterable[socket.socket]) -> int:
        """Call this about once a second with the open sockets. Returns how many more datagrams did not fit."""
        before, self._before = self._before, self._look()
        drops = {cookie_of(sock): buffer_of(sock).drops for sock in sockets}
        grown = sum([(now - self._drops.get(cookie, 0)) % _WRAP for cookie, now in drops.items()])
        self._drops = drops
        if not grown:
            return 0
        after = self._look()
        # When /proc hides the number, a needless warning is better than silent loss.
        overflow = grown if before is None or after is None else min(grown, after - before)
        self.dropped += overflow
        self.filtered += grown - overflow
        return overflow

    def state(self) -> dict[str, Any]:
        """In plain values, for a successor, which has the same sockets."""
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
