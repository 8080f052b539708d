"""UDP sockets to the segment, one for each binding: they receive what is sent to the port, and send from it.

Rules
- Each socket is bound to any address and to its interface, with SO_REUSEADDR, so that other BCCN programs of the host
  share the port and all hear every broadcast. Datagrams are sent from the same port.
- They are sent by a second socket, which is connected: so the kernel looks up the route once, not for each datagram.
  It keeps the source address as well, so the caller connects it anew when addresses of the host change. Where the
  kernel does not report these, and where it does not connect, the first socket sends. The second one hears nothing:
  nobody sends from a broadcast address or a group.
- A multicast group (IPv4, or IPv6 ``ff02::/16``) is joined on the interface. Nothing sent to it passes a router
  (TTL 1), and the other programs of this host hear it, too.
- No datagram is lost silently: the caller gets back, or counts, those that the network did not take. There is one
  exception, the queue of a device (tc) that is shorter than the socket's send buffer. Linux reports its drops only to
  sockets with IP_RECVERR, and those also get errors that other hosts cause.
"""

import socket
from collections.abc import Sequence
from dataclasses import replace
from errno import EACCES, EADDRINUSE, EAGAIN, ENOBUFS, ENODEV, ENOMEM, EPERM
from ipaddress import ip_address
from itertools import accumulate
from struct import pack

from bccnd.errors import RefusedError, UnavailableError
from bccnd.net.bindings import Binding
from bccnd.net.mmsg import BATCH, VECTOR, Arena, ReceiveTable, SendTable

# Sets a receive buffer above net.core.rmem_max; needs CAP_NET_ADMIN.
_SO_RCVBUFFORCE = 33

# Turned off, so that a socket does not hear groups that other programs joined.
_IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 49, 29

# There is no room at the moment: the same datagram can be sent later.
_NO_ROOM = frozenset({EAGAIN, ENOBUFS, ENOMEM})


class SegmentSocket:
    """The open socket of a binding."""

    def __init__(
        self, binding: Binding, *, receive_bytes: int, inherited: socket.socket | None = None
    ) -> None:
        """``inherited``: the same socket of a predecessor."""
        self.binding = binding
        self._sender: socket.socket | None = None
        if inherited is not None:
            self.socket = inherited
            self._size(receive_bytes)
            self.connect()
            return
        self.socket = socket.socket(
            socket.AF_INET if binding.family == 4 else socket.AF_INET6,
            socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
        )
        try:
            self._open(receive_bytes)
        except BaseException:
            self.socket.close()
            raise
        self.connect()

    def _open(self, receive_bytes: int) -> None:
        made, binding = self.socket, self.binding
        self._size(receive_bytes)
        try:
            what, needed = f"interface {binding.interface}", "CAP_NET_RAW (before Linux 5.7)"
            self._set_up(made)
            what, needed = f"port {binding.port}/udp", "CAP_NET_BIND_SERVICE, or a port from 1024 on"
            # To any address: only such sockets hear broadcasts.
            made.bind(("" if binding.family == 4 else "::", binding.port))
            if binding.group:
                self._join(ip_address(binding.group).packed)
        except OSError as error:
            if error.errno == EADDRINUSE:
                text = f"port {binding.port}/udp is taken by a program that does not share it (see: ss -ulnp)"
                raise UnavailableError(text) from None
            if error.errno == ENODEV:
                raise UnavailableError(f"interface {binding.interface}: has gone (see: ip link)") from None
            if error.errno in (EACCES, EPERM):
                raise RefusedError(f"{what}: not permitted to bind to it; needs root or {needed}") from None
            raise
        self.binding = replace(binding, port=made.getsockname()[1])

    def _set_up(self, made: socket.socket) -> None:
        """What a socket that sends to the segment needs before it is bound."""
        binding, index = self.binding, pack("=i", self.binding.index)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if binding.interface:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, binding.interface.encode() + b"\0")
        if binding.family == 6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 1)
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
        elif binding.group:
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, bytes(8) + index)  # struct ip_mreqn
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)

    def _join(self, group: bytes) -> None:
        made, index = self.socket, pack("=i", self.binding.index)
        if self.binding.family == 4:
            made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + bytes(4) + index)
            made.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        else:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + index)
            made.setsockopt(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)

    def connect(self) -> None:
        """Send by a socket with the route and the source address that hold now."""
        self._disconnect()
        if not self.binding.index:
            return
        made = socket.socket(
            self.socket.family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        )
        try:
            # It may hear something before it is connected.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            self._set_up(made)
            made.bind(self.socket.getsockname())
            made.connect((self.binding.address, self.binding.port))
        except OSError:
            made.close()
        else:
            self._sender = made

    def _disconnect(self) -> None:
        if self._sender:
            self._sender.close()
            self._sender = None

    def _size(self, receive_bytes: int) -> None:
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, receive_bytes)
        except PermissionError:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)

    def fileno(self) -> int:
        return self.socket.fileno()

    def sender(self) -> int:
        """The descriptor that datagrams are sent by."""
        return (self._sender or self.socket).fileno()

    def destination(self) -> bytes:
        """The address that they go to, as a sockaddr_in or sockaddr_in6; empty where ``sender`` is connected."""
        if self._sender:
            return b""
        address, port = ip_address(self.binding.address).packed, self.binding.port.to_bytes(2, "big")
        if self.binding.family == 4:
            return pack("=H", socket.AF_INET) + port + address + bytes(8)
        return pack("=H", socket.AF_INET6) + port + bytes(4) + address + pack("=I", self.binding.index)

    def close(self) -> None:
        self._disconnect()
        self.socket.close()


class SegmentReader:
    """Reads datagrams into the arena. One reader serves all sockets in turn."""

    def __init__(self, arena: Arena, limit: int) -> None:
        # A byte more than a datagram may have, so that a longer one is seen to be too long.
        self._table = ReceiveTable(arena, limit + 1, addresses=True)
        self._interface: str | None = None
        # The last socket address and its text: the next datagram mostly has the same.
        self._last = b"", b""

    @staticmethod
    def needs(limit: int) -> tuple[int, int]:
        """The (count, size) of slots in the arena, for datagrams of at most ``limit`` bytes."""
        return ReceiveTable.needs(limit + 1)

    def read(self, segment: SegmentSocket) -> tuple[list[int], list[int]]:
        """Where up to BATCH datagrams begin and end in the arena; empty when there are none. Raises ``OSError``."""
        if segment.binding.interface != self._interface:
            self._interface = segment.binding.interface
            self._last = b"", b""
        return self._table.read(segment.fileno())

    def peer(self, index: int) -> bytes:
        """``ip:port`` or ``[ip%interface]:port`` of the sender of the ``index``-th datagram of the last read."""
        name, (last, text) = self._table.name(index), self._last
        if name != last:
            text = self._written(*self._table.peer(index))
            self._last = name, text
        return text

    def same_peer(self, index: int, count: int) -> int:
        """How many of ``count`` datagrams from ``index`` on have the peer of the first, where that is easily seen."""
        return self._table.same_name(index, count)

    def _written(self, packed: bytes, port: int) -> bytes:
        if len(packed) == 4:
            return b"%d.%d.%d.%d:%d" % (*packed, port)
        scope = f"%{self._interface}" if self._interface else ""
        return f"[{ip_address(packed)}{scope}]:{port}".encode()


class SegmentWriter:
    """Sends datagrams to one segment from where they lie in the arena, as long as it is not connected anew.

    ``region``: where in the arena ``send_bytes`` lays up to BATCH datagrams side by side (``gather_bytes``).
    """

    def __init__(self, arena: Arena, segment: SegmentSocket, region: int) -> None:
        self.segment = segment
        self._memory = arena.memory
        self._region = region
        self._table = SendTable(arena, VECTOR, to=segment.destination())

    def send(self, starts: list[int], ends: list[int]) -> tuple[int, int, int]:
        """Send the datagrams at these spans, in order. Returns ``(done, refused, errno)``.

        ``done``: how many were sent or refused; the rest must wait for room. ``refused``: how many of these the
        network refused. ``errno``: why it refused the last of these, or 0 if it did not.
        """
        table, descriptor = self._table, self.segment.sender()
        refused = error = 0
        for begin in range(0, len(starts), VECTOR):
            count = min(VECTOR, len(starts) - begin)
            if count == len(starts):
                table.point(starts, ends)
            else:
                table.point(starts[begin : begin + count], ends[begin : begin + count])
            done = 0
            while done < count:
                went = table.send(descriptor, count, done)
                if went > 0:
                    done += went
                    error = 0
                elif -went in _NO_ROOM:
                    return begin + done, refused, error
                else:
                    done += 1
                    refused += 1
                    error = -went
        return len(starts), refused, error

    def send_bytes(self, datagrams: Sequence[bytes]) -> tuple[int, int, int]:
        """The same for datagrams outside the arena."""
        refused = error = 0
        for begin in range(0, len(datagrams), BATCH):
            part = datagrams[begin : begin + BATCH]
            edges = list(accumulate(map(len, part), initial=self._region))
            self._memory[self._region : edges[-1]] = b"".join(part)
            done, more_refused, error = self.send(edges[:-1], edges[1:])
            refused += more_refused
            if done < len(part):
                return begin + done, refused, error
        return len(datagrams), refused, error

    def as_bytes(self, starts: list[int], ends: list[int]) -> list[bytes]:
        """Copy the datagrams at these spans out of the arena."""
        return [self._memory[start:end] for start, end in zip(starts, ends, strict=True)]


def gather_bytes(limit: int) -> int:
    """The size of the region of ``send_bytes``, for datagrams of at most ``limit`` bytes. All writers share one."""
    return BATCH * limit
