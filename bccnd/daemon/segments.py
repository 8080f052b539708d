"""The network side: the sockets to the segment, what comes in by them and what goes out.

Rules
- The segment is read further at a turn than a client, since its kernel buffer is the one that loses when it is full.
- Every datagram goes out on every way; the slowest way decides whether the ways out are congested.
"""

import socket
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from bccnd.net.broadcast import Segment, SegmentReader, SegmentWriter, send_slots
from bccnd.net.egress import Egress
from bccnd.net.mmsg import BATCH, Arena
from bccnd.relay.core import Relay
from bccnd.wire.bccn1 import RECEIVE_LIMIT, SEND_LIMIT

SEGMENT_BATCHES = 4  # read in one turn: 256 datagrams, about a millisecond of work

log = structlog.get_logger()


class Segments:
    """``settle``: called after each batch; ``on_relief``: when the ways out are no longer congested."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        relay: Relay,
        segments: Sequence[Segment],
        arena: Arena,
        *,
        copies: int,
        spread: float,
        settle: Callable[[], None],
        on_relief: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._relay = relay
        self._segments = segments
        self._reader = SegmentReader(arena, RECEIVE_LIMIT)
        self._settle = settle
        self._on_relief = on_relief
        self._before = 0, 0  # sent and unsent by predecessors
        slots = send_slots(arena, SEND_LIMIT)
        self._egresses = [
            Egress(loop, SegmentWriter(arena, segment, slots), self._relieved, copies=copies, spread=spread)
            for segment in segments
        ]

    # -- the loop

    def watch(self) -> None:
        for segment in self._segments:
            self._loop.add_reader(segment.fileno(), self._read, segment)

    def unwatch(self) -> None:
        for segment in self._segments:
            self._loop.remove_reader(segment.fileno())

    def _read(self, segment: Segment) -> None:
        for _ in range(SEGMENT_BATCHES):
            try:
                starts, ends = self._reader.read(segment)
            except OSError as error:
                log.warning("segment not readable", interface=segment.interface, error=error.strerror)
                return
            if starts:
                self._relay.from_segment(starts, ends, self._reader.peer, self._loop.time(), time.time_ns())
                self._settle()
            if len(starts) < BATCH:
                return

    # -- the way out

    def send(self, datagrams: list[bytes]) -> None:
        """Send and empty the list."""
        for egress in self._egresses:
            egress.send(datagrams)
        datagrams.clear()

    @property
    def congested(self) -> bool:
        return any(egress.congested for egress in self._egresses)

    @property
    def busy(self) -> bool:
        return any(egress.busy for egress in self._egresses)

    @property
    def errors(self) -> set[int]:
        """What the network says against what is sent now (errno)."""
        return {egress.error for egress in self._egresses if egress.error}

    def set_copies(self, copies: int, spread: float) -> None:
        for egress in self._egresses:
            egress.set_copies(copies, spread)

    def pause(self) -> None:
        for egress in self._egresses:
            egress.pause()

    def resume(self) -> None:
        for egress in self._egresses:
            egress.resume()

    def close(self) -> None:
        for segment, egress in zip(self._segments, self._egresses, strict=True):
            self._loop.remove_reader(segment.fileno())
            egress.close()
            segment.close()

    def _relieved(self) -> None:
        if not self.congested:
            self._on_relief()

    # -- who and what

    def sockets(self) -> list[socket.socket]:
        """Those that are open."""
        return [segment.socket for segment in self._segments]

    def rows(self) -> list[dict[str, Any]]:
        """For ``status``."""
        return [
            {"address": segment.address, "port": segment.port, "interface": segment.interface}
            for segment in self._segments
        ]

    def state(self) -> list[tuple[int, str | None, dict[str, Any]]]:
        """What waits on each way, in plain values, for a successor."""
        return [
            (segment.port, segment.interface, egress.state())
            for segment, egress in zip(self._segments, self._egresses, strict=True)
        ]

    def inherit(self, state: list[tuple[int, str | None, dict[str, Any]]]) -> None:
        """To be followed by ``resume``. What waited on a way that there is no more is given up."""
        counters = self._relay.counters
        left = {(port, interface): kept for port, interface, kept in state}
        for segment, egress in zip(self._segments, self._egresses, strict=True):
            if kept := left.pop((segment.port, segment.interface), None):
                egress.restore(kept)
        counters.unsent += sum([len(kept["pending"]) for kept in left.values()])
        self._before = counters.sent, counters.unsent

    def count(self) -> None:
        """Bring the relay's counters up to date."""
        sent, unsent = self._before
        self._relay.counters.sent = sent + sum([egress.sent for egress in self._egresses])
        self._relay.counters.unsent = unsent + sum([egress.unsent for egress in self._egresses])
