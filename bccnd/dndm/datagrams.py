"""UDP: peers at one socket, each known by its address. A datagram is one frame or several, whole.

Rules
- What is no whole frame is dropped and counted: nothing behind it is lost with it, as on a stream.
- A stranger must begin with a handshake, from a network that is accepted. Everything else of strangers is dropped
  before it costs a link.
- READS datagrams are read in a turn of the loop. While a link is held, what comes by it is lost: nothing could wait.
- A frame goes out as one datagram, or is lost: what is longer than DATAGRAM_BYTES, or has no room in the socket.
"""

import socket
from asyncio import AbstractEventLoop
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol, Self

from bccnd.dndm.tcp import bound, endpoint
from bccnd.errors import DndmError
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.frame import Frame, Reader
from bccnd.wire.dndm.messages import decode
from bccnd.wire.dndm.peers import Peer

READS = 64
# The longest of IPv4.
DATAGRAM_BYTES = 65_507
BUFFER_BYTES = 1 << 20


class Owner(Protocol):
    def add(
        self, carrier_of: "Callable[[int], Correspondent]", scheme: str, dialled: Peer | None
    ) -> None: ...

    def admits(self, address: str) -> bool: ...

    def heard(self, number: int, data: bytes) -> None: ...

    def ended(self, number: int, reason: str) -> None: ...


class Correspondent:
    """One peer at the socket: a carrier (``carriers.py``), of which nothing ever waits."""

    def __init__(self, number: int, address: Any, datagrams: "Datagrams") -> None:
        self.number = number
        self.address = address
        self.waiting = 0
        self.is_held = False
        self._datagrams = datagrams

    def send(self, data: bytes) -> None:
        self._datagrams.send(data, self.address)

    def hold(self) -> None:
        self.is_held = True

    def read_on(self) -> None:
        self.is_held = False

    def close(self) -> None:
        self._datagrams.forget(self)


class Datagrams:
    """``remote``: the one peer that the socket is connected to; None where anybody may come.

    ``dropped``: datagrams that were, by reason.
    """

    def __init__(
        self, loop: AbstractEventLoop, made: socket.socket, owner: Owner, remote: Any = None
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._loop = loop
        self._socket = made
        self._owner = owner
        self._remote = remote
        self._peers: dict[Any, Correspondent] = {}
        loop.add_reader(made, self._on_readable)

    @classmethod
    def listen(cls, loop: AbstractEventLoop, peer: Peer, owner: Owner) -> Self:
        """Raises ``BccndError``."""
        made = bound(peer, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        return cls(loop, made, owner)

    def begin(self, peer: Peer) -> None:
        """Have the one peer as a link."""
        self._owner.add(lambda number: self._correspondent(number, self._remote), "udp", peer)

    def send(self, data: bytes, address: Any) -> None:
        if self._socket.fileno() < 0:
            return
        if len(data) > DATAGRAM_BYTES:
            self.dropped["too large"] += 1
            return
        try:
            if self._remote is not None:
                self._socket.send(data)
            else:
                self._socket.sendto(data, address)
        except BlockingIOError:
            self.dropped["no room"] += 1
        except OSError as error:
            self.dropped["not sent"] += 1
            self._loop.call_soon(self._failed, address, error.strerror or str(error))

    def forget(self, peer: Correspondent) -> None:
        self._peers.pop(peer.address, None)
        if self._remote is not None:
            self.close()

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def _correspondent(self, number: int, address: Any) -> Correspondent:
        made = self._peers[address] = Correspondent(number, address, self)
        return made

    def _on_readable(self) -> None:
        for _ in range(READS):
            if self._socket.fileno() < 0:
                return
            try:
                data, address = self._socket.recvfrom(DATAGRAM_BYTES + 1)
            except BlockingIOError:
                return
            except OSError as error:  # what an earlier datagram met
                if self._remote is not None:
                    self._failed(self._remote, error.strerror or str(error))
                continue
            self._came(data, self._remote if self._remote is not None else address)

    def _came(self, data: bytes, address: Any) -> None:
        frames = whole(data)
        if not frames:
            self.dropped["frame"] += 1
            return
        peer = self._peers.get(address)
        if peer is None:
            if not greets(frames[0]):
                self.dropped["stranger"] += 1
                return
            if not self._owner.admits(address[0]):
                return
            self._owner.add(lambda number: self._correspondent(number, address), "udp", None)
            peer = self._peers.get(address)
        if peer is None or peer.is_held:
            self.dropped["held"] += 1
        else:
            self._owner.heard(peer.number, data)

    def _failed(self, address: Any, reason: str) -> None:
        """Of a peer that was dialled: one that came may have gone, and its silence says so."""
        peer = self._peers.get(address)
        if peer is not None and self._remote is not None:
            self.forget(peer)
            self._owner.ended(peer.number, reason)


def whole(data: bytes) -> list[Frame]:
    """The frames that a datagram is; none if it is anything else."""
    reader = Reader()
    frames = reader.feed(data)
    return [] if reader.fault is not None or reader.waiting else frames


def greets(frame: Frame) -> bool:
    """Whether it is a handshake."""
    try:
        return isinstance(decode(frame)[1], pb.Handshake)
    except DndmError:
        return False


async def dial_datagrams(loop: AbstractEventLoop, peer: Peer, owner: Owner) -> Datagrams:
    """A socket that is connected to a peer, who may not be there. Raises ``OSError``."""
    host, port = endpoint(peer)
    failure = OSError("has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        made = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
        try:
            made.connect(address)
        except OSError as error:
            made.close()
            failure = error
        else:
            return Datagrams(loop, made, owner, remote=address)
    raise failure
