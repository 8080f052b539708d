"""UDP: peers at one socket, each known by its address. A datagram holds one or more whole frames.

Rules
- A datagram with anything but whole frames is dropped and counted. Unlike on a stream, nothing after it is lost.
- A stranger must begin with a handshake, from a network that is accepted. Anything else from a stranger is dropped
  before it costs a link.
- Dialling a broadcast address means speaking to all peers that hear it, and hearing them (``Medium``).
- READS datagrams are read in a turn of the loop. While a link is held, its datagrams are lost: they have nowhere to
  wait.
- A frame goes out as one datagram. It is lost if it is longer than DATAGRAM_BYTES, or if the socket has no room.
"""

import socket
from asyncio import AbstractEventLoop
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol, Self

from bccnd.dndm.handshake import BUS_PARAM
from bccnd.dndm.tcp import bound, endpoint
from bccnd.errors import DndmError
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm import peers
from bccnd.wire.dndm.frame import Frame, Reader
from bccnd.wire.dndm.messages import decode
from bccnd.wire.dndm.peers import Peer

READS = 64
# Bytes of the longest datagram of IPv4.
DATAGRAM_BYTES = 65_507
BUFFER_BYTES = 1 << 20
# Speakers that are known at a broadcast address: more gateways than ever share one.
SPEAKERS = 256


class Owner(Protocol):
    def add(
        self,
        carrier_of: "Callable[[int], Correspondent | Medium]",
        scheme: str,
        dialled: Peer | None,
        *,
        whence: Peer,
        broadcast: bool = False,
    ) -> None: ...

    def admits(self, address: str) -> bool: ...

    def wants(self, number: int, route: str) -> bool: ...

    def heard(self, number: int, data: bytes) -> None: ...

    def ended(self, number: int, reason: str) -> None: ...


class Correspondent:
    """One peer at the socket: a carrier (``carriers.py``) on which nothing ever waits."""

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
    """``remote``: the one peer that the socket is connected to; None if any peer may come.

    ``dropped``: dropped datagrams, by reason.
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

    def begin(self, peer: Peer, bus: str = "") -> None:  # noqa: ARG002 - as of a medium
        """Make a link to the one peer."""
        self._owner.add(lambda number: self._correspondent(number, self._remote), "udp", peer, whence=peer)

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

    def stop(self) -> None:
        """Read nothing more; peers can still be sent something."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)

    def close(self) -> None:
        self.stop()
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
            except OSError as error:  # the error of an earlier datagram
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
            whence = stranger("udp", address[0])
            self._owner.add(lambda number: self._correspondent(number, address), "udp", None, whence=whence)
            peer = self._peers.get(address)
        if peer is None or peer.is_held:
            self.dropped["held"] += 1
        else:
            self._owner.heard(peer.number, data)

    def _failed(self, address: Any, reason: str) -> None:
        """End the link to a dialled peer. A peer that came ends by its silence."""
        peer = self._peers.get(address)
        if peer is not None and self._remote is not None:
            self.forget(peer)
            self._owner.ended(peer.number, reason)


class Medium:
    """A broadcast address: one link (``Link.broadcast``) to all peers that hear it and speak there.

    Rules
    - Each speaker first says by a handshake who it is. Frames of others are dropped, and so are those of gateways of
      the same bus, which has their messages already. SPEAKERS are known at a time; the oldest goes.
    - A message without any interest is dropped before the core sees it.
    """

    def __init__(self, loop: AbstractEventLoop, address: Any, owner: Owner) -> None:
        self.waiting = 0
        self.dropped: Counter[str] = Counter()
        self._loop = loop
        self._owner = owner
        self._number = 0
        self._bus = ""
        # Address -> the bus whose gateway the speaker is, or nothing.
        self._speakers: dict[Any, str] = {}
        self._out = socket.socket(
            socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        self._in = socket.socket(
            socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        try:
            self._out.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            self._out.connect(address)
            self._in.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._in.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            self._in.bind(address)
        except OSError:
            self._out.close()
            self._in.close()
            raise

    def begin(self, peer: Peer, bus: str = "") -> None:
        """``bus``: the name of this gateway's bus."""
        self._bus = bus

        def numbered(number: int) -> "Medium":
            self._number = number
            return self

        self._loop.add_reader(self._in, self._on_readable)
        self._owner.add(numbered, "udp", peer, whence=peer, broadcast=True)

    def send(self, data: bytes) -> None:
        try:
            if len(data) <= DATAGRAM_BYTES:
                self._out.send(data)
            else:
                self.dropped["too large"] += 1
        except OSError:  # no room, or no network: the next one may go
            self.dropped["not sent"] += 1

    def hold(self) -> None:
        self._loop.remove_reader(self._in)

    def read_on(self) -> None:
        if self._in.fileno() >= 0:
            self._loop.add_reader(self._in, self._on_readable)

    def close(self) -> None:
        if self._in.fileno() >= 0:
            self.hold()
            self._in.close()
            self._out.close()

    def _on_readable(self) -> None:
        for _ in range(READS):
            try:
                data, address = self._in.recvfrom(DATAGRAM_BYTES + 1)
            except OSError:  # nothing more; or closed meanwhile
                return
            if address != self._out.getsockname() and self._owner.admits(address[0]):
                self._came(whole(data), address)

    def _came(self, frames: list[Frame], address: Any) -> None:
        if not frames:
            self.dropped["frame"] += 1
        for frame in frames:
            try:
                header, message = decode(frame)
            except DndmError:
                self.dropped["frame"] += 1
                continue
            if isinstance(message, pb.Handshake):
                self._introduced(message, address)
            bus = self._speakers.get(address)
            if bus is None:
                self.dropped["stranger"] += 1
            elif bus and bus == self._bus:
                self.dropped["bus"] += 1
            elif isinstance(message, bytes) and not self._owner.wants(self._number, header.route):
                self.dropped["nobody is interested"] += 1
            else:
                self._owner.heard(self._number, frame.serialize())

    def _introduced(self, said: pb.Handshake, address: Any) -> None:
        try:
            bus = peers.parse(said.me).param(BUS_PARAM)
        except DndmError:
            return
        if address not in self._speakers and len(self._speakers) >= SPEAKERS:
            del self._speakers[next(iter(self._speakers))]
        self._speakers[address] = bus


def whole(data: bytes) -> list[Frame]:
    """The frames in a datagram; none if it holds anything else."""
    reader = Reader()
    frames = reader.feed(data)
    return [] if reader.fault is not None or reader.waiting else frames


def stranger(scheme: str, host: str) -> Peer:
    """The name of a host whose peer is not known yet: it may come from another port each time."""
    return Peer(scheme, host, text=f"{scheme}://[{host}]" if ":" in host else f"{scheme}://{host}")


def greets(frame: Frame) -> bool:
    """Whether a frame is a handshake."""
    try:
        return isinstance(decode(frame)[1], pb.Handshake)
    except DndmError:
        return False


async def dial_datagrams(loop: AbstractEventLoop, peer: Peer, owner: Owner) -> "Datagrams | Medium":
    """A socket connected to a peer, which may not be there, or to a broadcast address. Raises ``OSError``."""
    host, port = endpoint(peer)
    failure = OSError("has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        made = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
        try:
            made.connect(address)
        except PermissionError:
            made.close()
            return Medium(loop, address, owner)
        except OSError as error:
            made.close()
            failure = error
        else:
            return Datagrams(loop, made, owner, remote=address)
    raise failure
