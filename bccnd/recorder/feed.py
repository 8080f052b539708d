"""A raw feed of the bus: packets as the daemon sends them, side by side in memory.

A program that records everything has no time for a message of each packet: one thread does nothing but empty the
socket, and another takes the packets apart.

    connect(): status, queue, pack, then tap or SUBs  ->  fill(block), wait(), fill(block) ... until it is False
        ^                                                                                              |
        `------------------------------------------- pause() <-----------------------------------------'

Rules
- A feed with patterns subscribes to them. A feed without patterns taps everything, which needs the right to tap.
- Every connection asks for everything again (``clients/PROTOCOL.md``, "Control requests"). Of ``queues`` the daemon
  grants the first that its limits allow, or keeps its own.
- ``fill`` does not wait. ``wait`` and ``pause`` do, until ``wake`` is called from a thread or a signal handler.
- A connection that ends is read to its end: nothing that the daemon had sent is lost.
"""

import json
import os
import select
import weakref
from collections.abc import Sequence
from contextlib import suppress
from mmap import mmap
from time import monotonic

from bccn.client import Blocking, finish
from bccn.errors import BccnError, ProtocolError, RefusedError, RejectedError, UnavailableError
from bccn.exchange import Entry
from bccn.protocol import build_control, build_sub
from bccn.transport import PACKET_LIMIT, Transport, pauses


class Block:
    """Memory that a feed fills with packets. ``gap``: bytes left free before each of them."""

    __slots__ = ("ends", "gap", "memory", "starts", "view")

    def __init__(self, size: int, gap: int = 0) -> None:
        self.memory = mmap(-1, size)
        self.view = memoryview(self.memory)
        self.gap = gap
        self.starts: list[int] = []
        self.ends: list[int] = []

    @property
    def used(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def full(self) -> bool:
        """Whether the longest packet would find no room."""
        return self.used + self.gap + PACKET_LIMIT > len(self.memory)

    def put(self, packet: bytes) -> None:
        """Add a packet; the block must not be full."""
        if len(packet) > PACKET_LIMIT:
            raise ProtocolError(f"the daemon sent {len(packet)} bytes, a packet has at most {PACKET_LIMIT}")
        start = self.used + self.gap
        self.starts.append(start)
        self.ends.append(start + len(packet))
        self.memory[start : start + len(packet)] = packet

    def clear(self) -> None:
        self.starts.clear()
        self.ends.clear()


class Feed(Blocking):
    """The packets of the bus, from one connection after the other.

    ``connect`` sets ``host``, the name of the host, ``local``, the patterns of channels that stay there, and
    ``status``, the answer to that request (JSON) that was given before all packets.
    ``path`` is looked up as ``Client`` does. ``timeout``: seconds for the greeting.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, patterns: Sequence[str] = (),
        *, queues: Sequence[str] = (), timeout: float = 5.0,
    ) -> None:  # fmt: skip
        super().__init__(path, reconnect=False, timeout=timeout)
        self.host = self.status = ""
        self.local: tuple[str, ...] = ()
        self._patterns, self._queues = patterns, queues
        self._early: list[bytes] = []  # packets that came before the last answer of the greeting
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._bell)
        self._ready = select.poll()
        self._ready.register(self._bell, select.POLLIN)

    def connect(self) -> None:
        """Make one attempt. Raises UnavailableError, RefusedError or RejectedError."""
        self.close()
        self._transport = transport = Transport(self._path)
        self._due, self._until, self._said = monotonic() + self._timeout, None, ""
        self.connected = self._was_connected = True
        self._unsent = self._held
        try:
            finish(self._greet())
        except BaseException:
            self.close()
            raise
        self._ready.register(transport, select.POLLIN)
        self._pauses = pauses()

    async def _greet(self) -> None:
        try:
            self.status = await self._ask("status", "")
        except RefusedError:
            if not self._patterns:
                await self._ask("tap", "interface")  # refused, too: that is what its user has to be granted
            raise
        status = json.loads(self.status)
        self.host, self.local = str(status["host"]), tuple(status.get("local", ()))
        for queue in self._queues:
            with suppress(RejectedError):
                await self._ask("queue", queue)
                break
        await self._ask("pack", "on")
        if not self._patterns:
            await self._ask("tap", "interface")
            return
        await self._ask("format", "full")
        subscriptions = [build_sub(pattern) for pattern in self._patterns]
        await self._deliver(Entry(*subscriptions, build_control("ping", ""), key="ping"))

    def _feed(self, packet: bytes) -> None:
        """Put aside what comes during the greeting and answers nothing, as it is."""
        awaited = len(self._asked)
        if packet.startswith(b"CMSG "):
            super()._feed(packet)
        if len(self._asked) == awaited:
            self._early.append(packet)
        if self._said:
            raise UnavailableError(f"the daemon closes the connection: {self._said}")

    def close(self) -> None:
        self._let_go(None)
        self._early = []

    def _let_go(self, error: BccnError | None) -> None:
        if self._transport is not None:
            with suppress(KeyError):  # the greeting was not over
                self._ready.unregister(self._transport)
        super()._let_go(error)

    def fill(self, block: Block) -> bool:
        """Read what is there, or as much as fits. False: the connection has ended, and all of it was read.

        Raises ProtocolError for a packet that is too long.
        """
        while self._early and not block.full:
            block.put(self._early.pop(0))
        if self._transport is None:
            return False
        receive_into, view, starts, ends = self._transport.receive_into, block.view, block.starts, block.ends
        used, gap, last = block.used, block.gap, len(block.memory) - block.gap - PACKET_LIMIT
        try:
            while used <= last:
                start = used + gap
                length = receive_into(view[start : start + PACKET_LIMIT])
                if length is None:
                    break
                used = start + length
                starts.append(start)
                ends.append(used)
        except UnavailableError:
            return False
        return True

    def request(self, key: str, value: str) -> None:
        """Ask without waiting; the answer comes among the packets. A daemon that takes nothing now is not asked."""
        if self._transport is not None:
            with suppress(UnavailableError):  # ``fill`` finds that, too, after what is left to read
                self._transport.send(build_control(key, value))

    def wait(self, seconds: float) -> None:
        """Wait until there is something to read, but no longer than this."""
        for descriptor, _ in self._ready.poll(max(0.0, seconds) * 1000):
            if descriptor == self._bell:
                os.eventfd_read(self._bell)

    def pause(self) -> None:
        """Wait before the next attempt to connect: longer each time, up to a second or so."""
        self.wait(next(self._pauses))

    def wake(self) -> None:
        """End the present wait, or else the next."""
        os.eventfd_write(self._bell, 1)
