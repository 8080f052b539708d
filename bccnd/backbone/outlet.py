"""The UDP socket of the backbone: packets in by batches, and each message out to every subscriber.

Rules
- If the network refuses a datagram to one address (no route, a firewall, an ICMP error of an earlier one), that is
  counted, and the others are sent: a dead subscriber harms nobody else.
- While the socket has no room, nothing more is read, for STALL_SECONDS at most; pushes wait in the receive buffer.
  After that the rest of the batch is dropped and counted.
"""

import contextlib
import socket
from collections.abc import Collection, Sequence
from errno import EACCES, EADDRINUSE, EADDRNOTAVAIL, EAGAIN, EHOSTUNREACH, ENETUNREACH, ENOBUFS, ENOMEM, EPERM

from bccnd.errors import ConfigError, RefusedError, UnavailableError
from bccnd.net.fan import FanTable, divides
from bccnd.net.mmsg import Arena, ReceiveTable
from bccnd.wire.fyrehose import PACKET_LIMIT, Address

# A device takes a full buffer in this time, at 100 Mb/s and more.
STALL_SECONDS = 0.05

# There is no room at the moment: the same datagram can be sent later.
_NO_ROOM = frozenset({EAGAIN, ENOBUFS, ENOMEM})
# There is no way to the address, whatever the datagram.
_NO_WAY = frozenset({EACCES, EHOSTUNREACH, ENETUNREACH})

# Set a buffer above net.core.rmem_max and wmem_max; need CAP_NET_ADMIN.
_FORCED = ((33, socket.SO_RCVBUF), (32, socket.SO_SNDBUF))


def open_socket(endpoint: tuple[str, int], buffer_bytes: int) -> socket.socket:
    """Raises ``UnavailableError``, ``RefusedError`` or ``ConfigError``, which name the address."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    where = "{}:{}".format(*endpoint)
    try:
        size_buffers(made, buffer_bytes)
        made.bind(endpoint)
    except OSError as error:
        made.close()
        if error.errno == EADDRINUSE:
            raise UnavailableError(f"{where}/udp is taken by another program (see: ss -ulnp)") from None
        if error.errno == EADDRNOTAVAIL:
            raise ConfigError(f"{where}: is no address of this host (see: ip address)") from None
        if error.errno in (EACCES, EPERM):
            raise RefusedError(f"{where}/udp: not permitted; take a port from 1024 on") from None
        raise
    return made


def size_buffers(made: socket.socket, buffer_bytes: int) -> None:
    for forced, plain in _FORCED:
        try:
            made.setsockopt(socket.SOL_SOCKET, forced, buffer_bytes)
        except PermissionError:
            made.setsockopt(socket.SOL_SOCKET, plain, buffer_bytes)


class Outlet:
    """``delivered``, ``unsent``: datagrams so far; ``pending``: whether a batch waits for room."""

    def __init__(self, made: socket.socket) -> None:
        self.socket = made
        self._arena = Arena.holding(ReceiveTable.needs(PACKET_LIMIT))
        self._received = ReceiveTable(self._arena, PACKET_LIMIT, addresses=True)
        self.memory = memoryview(self._arena.memory)
        self.senders = self._received.peers
        self._divides = divides(made)
        self._fan: FanTable | None = None
        self._version = -1
        self._at = self._total = 0
        self.delivered = self.unsent = 0

    def read(self) -> tuple[list[int], list[int]]:
        """Where the packets of a batch lie in ``memory``; empty when there are none, or an error was read."""
        try:
            return self._received.read(self.socket.fileno())
        except OSError:
            return [], []  # of a datagram that was sent earlier; the next call reads on

    @property
    def pending(self) -> bool:
        return self._at < self._total

    def deliver(
        self, starts: Sequence[int], ends: Sequence[int], to: Collection[Address], version: int
    ) -> None:
        """Begin to send these packets, each to all of ``to``. ``version`` changes whenever ``to`` does."""
        if not to:
            return
        if self._fan is None or version != self._version:
            self._fan = FanTable(self._arena, list(to), divide=self._divides)
            self._version = version
        self._at, self._total = 0, self._fan.point(starts, ends)
        self.go_on()

    def go_on(self) -> None:
        """Send what is pending, as far as there is room."""
        while self._fan is not None and self._at < self._total:
            went = self._fan.send(self.socket.fileno(), self._at)
            if went > 0:
                self.delivered += went
                self._at += went
            elif -went in _NO_ROOM:
                return
            else:
                # Anybody can forge a KEEPALIVE of an unreachable address: such an address is tried once a run.
                lost = self._fan.alike(self._at) if -went in _NO_WAY else 1
                self.unsent += lost
                self._at += lost

    def give_up(self) -> None:
        """Drop what is pending."""
        self.unsent += self._total - self._at
        self._at = self._total

    def reply(self, packet: bytes, address: Address) -> None:
        """Send one packet, or count it."""
        addr, port = address
        try:
            self.socket.sendto(packet, (socket.inet_ntoa(addr), port))
        except OSError:
            self.unsent += 1

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()
