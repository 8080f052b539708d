"""The UDP side: sockets that hear every broadcast on the port and send to the segment.

Rules
- Each socket is bound to 0.0.0.0 with SO_REUSEADDR, so that other BCCN programs of the host live on the same port and
  all hear every broadcast; what is sent comes from that port.
- Without an interface the routing table chooses the way out. With interfaces there is one socket for each, bound
  to it.
- Nothing here loses a datagram silently: what the network did not take is given back or counted by the caller. Out of
  sight is only the queue of a device (tc) that is set shorter than the socket's send buffer: what that drops, Linux
  reports to sockets with IP_RECVERR alone, which would bring in errors of other hosts' making as well.
"""

import socket
from collections.abc import Sequence
from errno import EACCES, EADDRINUSE, EAGAIN, ENOBUFS, ENODEV, ENOMEM, EPERM
from ipaddress import IPv4Address
from struct import pack

from bccnd.errors import ConfigError, RefusedError, UnavailableError
from bccnd.net.mmsg import BATCH, Arena, ReceiveTable, SendTable

_SO_RCVBUFFORCE = 33  # beyond net.core.rmem_max, for who may
_NO_ROOM = frozenset({EAGAIN, ENOBUFS, ENOMEM})  # for the moment: the same datagram again, later


class Segment:
    """One way to the segment: a socket, and the address to send to."""

    def __init__(
        self,
        address: str,
        port: int,
        interface: str | None,
        *,
        receive_bytes: int,
        inherited: socket.socket | None = None,
    ) -> None:
        """``inherited``: the same socket of a predecessor."""
        self.address = address
        self.port = port
        self.interface = interface
        if inherited is not None:
            self.socket = inherited
            self._size(receive_bytes)
            return
        self.socket = socket.socket(
            socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        )
        try:
            self._open(receive_bytes)
        except BaseException:
            self.socket.close()
            raise

    def _open(self, receive_bytes: int) -> None:
        made = self.socket
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        self._size(receive_bytes)
        try:
            what, needed = f"interface {self.interface}", "CAP_NET_RAW"
            if self.interface:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self.interface.encode() + b"\0")
            what, needed = f"port {self.port}/udp", "CAP_NET_BIND_SERVICE, or a port from 1024 on"
            made.bind(("0.0.0.0", self.port))  # noqa: S104 - broadcasts reach only sockets bound to any address
        except OSError as error:
            if error.errno == EADDRINUSE:
                text = f"port {self.port}/udp is taken by a program that does not share it (see: ss -ulnp)"
                raise UnavailableError(text) from None
            if error.errno == ENODEV:
                raise ConfigError(
                    f"interface {self.interface}: there is none of that name (see: ip link)"
                ) from None
            if error.errno in (EACCES, EPERM):
                raise RefusedError(f"{what}: not permitted to bind to it; needs root or {needed}") from None
            raise
        self.port = made.getsockname()[1]

    def _size(self, receive_bytes: int) -> None:
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, receive_bytes)
        except PermissionError:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)

    def fileno(self) -> int:
        return self.socket.fileno()

    def destination(self) -> bytes:
        """The address as a sockaddr_in."""
        port = self.port.to_bytes(2, "big")
        return pack("=H", socket.AF_INET) + port + IPv4Address(self.address).packed + bytes(8)

    def close(self) -> None:
        self.socket.close()


class SegmentReader:
    """Reads datagrams into the arena; one serves all sockets, one after the other."""

    def __init__(self, arena: Arena, limit: int) -> None:
        # A byte more than a datagram may have, so that a longer one is seen to be too long.
        self._table = ReceiveTable(arena, limit + 1, addresses=True)
        self.peer = self._table.peer

    def read(self, segment: Segment) -> tuple[list[int], list[int]]:
        return self._table.read(segment.fileno())


class SegmentWriter:
    """Sends datagrams to one segment, as many at once as the arena has slots."""

    def __init__(self, arena: Arena, segment: Segment, slots: list[int]) -> None:
        self.segment = segment
        self._arena = arena
        self._slots = slots
        self._table = SendTable(arena, len(slots), to=segment.destination())

    def send(self, datagrams: Sequence[bytes]) -> tuple[int, int, int]:
        """``(done, refused, errno)``: how many are dealt with, in order (the rest has to wait for room); how many
        of those the network refused; and why, if the last of them was refused, else 0.
        """
        memory, slots = self._arena.memory, self._slots
        refused = error = 0
        for begin in range(0, len(datagrams), len(slots)):
            part = datagrams[begin : begin + len(slots)]
            starts = slots[: len(part)]
            ends = [slot + len(datagram) for slot, datagram in zip(starts, part, strict=True)]
            for start, end, datagram in zip(starts, ends, part, strict=True):
                memory[start:end] = datagram
            self._table.point(starts, ends)
            done = 0
            while done < len(part):
                went = self._table.send(self.segment.fileno(), len(part), done)
                if went > 0:
                    done += went
                    error = 0
                elif -went in _NO_ROOM:
                    return begin + done, refused, error
                else:
                    done += 1
                    refused += 1
                    error = -went
        return len(datagrams), refused, error


def send_slots(arena: Arena, limit: int) -> list[int]:
    """Places for the datagrams on their way out, shared by all writers: each copies them in afresh."""
    return arena.slots(BATCH, limit)
