"""A fyrehose backbone as the carrier of an uplink: the socket, the time and the name of a ``fyrehose.Client``.

Rules
- The socket is bound to one port and not connected, since other clients answer from their own addresses. ``Client``
  judges what they and the backbone send.
- A wakeup reads a bounded number of packets; then the rest of the loop has its turn.
- When the socket takes nothing, a bounded number of packets wait. Packets that are dropped then, or refused by the
  network (no route, a firewall), count as lost on the way: the client repeats what matters.
- While the backbone does not answer, its name is looked up again: it may have moved.
"""

import asyncio
import contextlib
import os
import random
import socket
from collections import deque
from errno import EAGAIN, ENOBUFS, ENOMEM

from bccnd.net.mmsg import Arena, ReceiveTable
from bccnd.uplink.carrier import Archive, Facts, Hearer
from bccnd.uplink.fyrehose import Client, Options
from bccnd.wire.fyrehose import PACKET_LIMIT, Address

# Batches of 64 packets that one wakeup reads.
BATCHES = 4
# Bytes that the kernel holds for the socket, each way. Without CAP_NET_ADMIN net.core.rmem_max and wmem_max bound it.
BUFFER_BYTES = 4 << 20
# Packets that wait while the socket takes none: a full window, and answers; and seconds until the next try.
WAITING_LIMIT, STALL_SECONDS = 4096, 0.005
# Seconds between two look-ups of a backbone that does not answer, and after a look-up that failed.
RESOLVE_SECONDS, RETRY_SECONDS = 5.0, 1.0

_NO_ROOM = frozenset({EAGAIN, ENOBUFS, ENOMEM})
_FORCED = ((33, socket.SO_RCVBUF), (32, socket.SO_SNDBUF))


class FyrehoseCarrier:
    """A ``Carrier`` over the backbone at this host name, or IPv4 address, and UDP port.

    ``unsent``: packets that the socket did not take, since the start.
    """

    def __init__(
        self, host: str, port: int, hearer: Hearer, archive: Archive, options: Options | None = None
    ) -> None:
        self._host, self._port = host, port
        self._client = Client(options or Options(), hearer, archive, random.random, os.urandom(16))
        self._reason = ""
        self._place: tuple[Address, Address] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: socket.socket | None = None
        self._arena = Arena.holding(ReceiveTable.needs(PACKET_LIMIT))
        self._memory = memoryview(self._arena.memory)
        self._received = ReceiveTable(self._arena, PACKET_LIMIT, addresses=True)
        self._waiting: deque[tuple[bytes, Address]] = deque()
        self._stalled: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = float("inf")
        self.unsent = 0

    # -- the carrier

    @property
    def room(self) -> int:
        return self._client.room

    def publish(self, number: int, datagram: bytes, channel: bytes) -> None:
        del channel  # all links of a backbone are one stream
        self._client.publish(number, datagram, self._now())
        self._went_on()

    def say(self, datagram: bytes) -> None:
        self._client.say(datagram)
        self._went_on()

    def taken(self, position: int) -> None:
        """Nothing to do: the backbone keeps nothing."""

    def facts(self) -> Facts:
        return self._client.facts(
            self._reason
            or f"no answer from {self._host}:{self._port}: it is not there, UDP does not pass, "
            "or backbone_key_file is not its key"
        )

    async def run(self, position: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._client.begin(position)
        try:
            while self._socket is None:
                try:
                    self._socket = _open_socket()
                except OSError as error:
                    self._reason = f"no socket: {error.strerror}"
                    await asyncio.sleep(RETRY_SECONDS)
            self._loop.add_reader(self._socket, self._on_readable, self._socket)
            while True:
                found = self._client.connected or await self._resolve(self._loop, self._socket)
                await asyncio.sleep(RESOLVE_SECONDS if found else RETRY_SECONDS)
        finally:
            self._close()

    # -- the name

    async def _resolve(self, loop: asyncio.AbstractEventLoop, mine: socket.socket) -> bool:
        """Look up the backbone's name, and use the address from now on. Returns whether it was found."""
        try:
            rows = await loop.getaddrinfo(
                self._host, self._port, family=socket.AF_INET, type=socket.SOCK_DGRAM
            )
            own = _own_address(rows[0][4])
        except (OSError, UnicodeError) as error:  # a name with an empty part, or one that is too long
            self._reason = f"{self._host}: {getattr(error, 'strerror', None) or error}"
            return False
        self._reason = ""
        host, port = rows[0][4][:2]
        place = (socket.inet_aton(str(host)), int(port)), (own, mine.getsockname()[1])
        if place != self._place:
            self._place = place
            self._client.move(*place, self._now())
            self._went_on()
        return True

    # -- traffic and time

    def _now(self) -> float:
        return self._loop.time() if self._loop is not None else 0.0

    def _on_readable(self, mine: socket.socket) -> None:
        memory, peer = self._memory, self._received.peer
        for _ in range(BATCHES):
            try:
                starts, ends = self._received.read(mine.fileno())
            except OSError:
                continue  # of a datagram that was sent earlier
            if not starts:
                break
            packets = [
                (bytes(memory[start:end]), peer(index))
                for index, (start, end) in enumerate(zip(starts, ends, strict=True))
            ]
            self._client.receive(packets, self._now())
            self._send()
        self._went_on()

    def _on_deadline(self) -> None:
        self._timer, self._due = None, float("inf")
        self._client.on_deadline(self._now())
        self._went_on()

    def _went_on(self) -> None:
        """Send what there is, and come back when the next thing is due."""
        self._send()
        if self._loop is None or self._socket is None:
            return
        due = self._client.next_deadline()
        if due < self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._due = due
            self._timer = self._loop.call_at(due, self._on_deadline)

    def _send(self) -> None:
        packets = self._client.take()
        space = WAITING_LIMIT - len(self._waiting)
        self._waiting += packets[:space]
        self.unsent += len(packets[space:])
        if self._stalled is None:
            self._flush()

    def _flush(self) -> None:
        self._stalled = None
        waiting, to = self._waiting, self._socket
        while waiting and to is not None:
            packet, (addr, port) = waiting[0]
            try:
                to.sendto(packet, (socket.inet_ntoa(addr), port))
            except OSError as error:
                if error.errno in _NO_ROOM and self._loop is not None:
                    self._stalled = self._loop.call_later(STALL_SECONDS, self._flush)
                    return
                self.unsent += 1
            waiting.popleft()

    def _close(self) -> None:
        for timer in (self._timer, self._stalled):
            if timer is not None:
                timer.cancel()
        self._timer = self._stalled = self._place = None
        self._due = float("inf")
        self._waiting.clear()
        if self._socket is not None and self._loop is not None:
            self._loop.remove_reader(self._socket)
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None
        self._client.leave()


def _open_socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    for forced, plain in _FORCED:
        try:
            made.setsockopt(socket.SOL_SOCKET, forced, BUFFER_BYTES)
        except PermissionError:
            made.setsockopt(socket.SOL_SOCKET, plain, BUFFER_BYTES)
    try:
        made.bind(("0.0.0.0", 0))  # noqa: S104 - who answers comes by any interface
    except OSError:
        made.close()
        raise
    return made


def _own_address(backbone: tuple[object, ...]) -> bytes:
    """The address of this host that the backbone sees, unless it is translated on the way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(backbone)
        return socket.inet_aton(probe.getsockname()[0])
