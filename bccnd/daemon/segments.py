"""The network side: the sockets to the segment, what comes in by them and what goes out.

Rules
- Every datagram goes out by every binding. The network side is congested while one of them is. Without any binding a
  datagram counts as unsent.
- Bindings come and go (``follow``). A binding that stays keeps its socket and its queue. When a binding goes, what
  its socket has received is still read, and its queue is given up. Opening a binding is tried until it succeeds; each
  reason for a failure is reported once.
- The counters include bindings that have gone.
"""

import os
import socket
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from dataclasses import astuple
from errno import ENETDOWN
from typing import Any

import structlog

from bccnd import report
from bccnd.daemon.turns import TURN_NS
from bccnd.errors import BccndError
from bccnd.net.bindings import Binding
from bccnd.net.broadcast import SegmentReader, SegmentSocket, SegmentWriter, gather_bytes
from bccnd.net.egress import Egress
from bccnd.net.mmsg import BATCH, Arena
from bccnd.process import fatal
from bccnd.relay.core import Relay
from bccnd.relay.moment import Moment
from bccnd.wire.bccn1 import RECEIVE_LIMIT, SEND_LIMIT
from bccnd.wire.sbus import NOWHERE

# Batches read from a binding in one turn: 256 datagrams, about a millisecond of work.
SEGMENT_BATCHES = 4

# Batches read from a binding that goes: 4,096 datagrams, about 20 ms of work.
LAST_BATCHES = 64

log = structlog.get_logger()


class Segments:
    """``open`` is the list of open sockets; it begins as ``segments``.

    ``copies``, ``spread``: those of each ``Egress``; ``settle``: called after each batch that was read;
    ``on_relief``: called when the network side is no longer congested; ``end_turn``: called after each turn with the
    time at which it began (``Bus.end_turn``).
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        relay: Relay,
        segments: list[SegmentSocket],
        arena: Arena,
        *,
        receive_bytes: int,
        copies: int,
        spread: float,
        settle: Callable[[], object],
        on_relief: Callable[[], None],
        end_turn: Callable[[int], object],
    ) -> None:
        self._loop = loop
        self._relay = relay
        self.open = segments
        self._arena = arena
        self._receive_bytes = receive_bytes
        self._reader = SegmentReader(arena, RECEIVE_LIMIT)
        self._settle = settle
        self._on_relief = on_relief
        self._end_turn = end_turn
        self._copies, self._spread = copies, spread
        self._gather_region = arena.slots(1, gather_bytes(SEND_LIMIT))[0]
        self._watched = False
        # Sent and unsent by predecessors, and on bindings that have gone.
        self._before = 0, 0
        self._failing: dict[Binding, str] = {}
        self._egresses = [self._egress(segment) for segment in segments]

    @staticmethod
    def needs() -> list[tuple[int, int]]:
        """The (count, size) of slots in the arena: to read into, and to gather queued datagrams for sending."""
        return [SegmentReader.needs(RECEIVE_LIMIT), (1, gather_bytes(SEND_LIMIT))]

    def _egress(self, segment: SegmentSocket) -> Egress:
        writer = SegmentWriter(self._arena, segment, self._gather_region)
        return Egress(self._loop, writer, self._relieved, copies=self._copies, spread=self._spread)

    # -- bindings come and go

    def follow(self, bindings: Iterable[Binding]) -> None:
        """Open these bindings as far as they are not open, and close all others. Not to be called during a pause."""
        wanted = {binding.hears: binding for binding in bindings}
        for segment, egress in list(zip(self.open, self._egresses, strict=True)):
            binding = wanted.pop(segment.binding.hears, None)
            if binding is None:
                self._leave(segment, egress)
            elif binding != segment.binding:
                segment.binding = binding
                self._connect(segment, egress)
        for binding in wanted.values():
            self._enter(binding)
        self._failing = {
            binding: error for binding, error in self._failing.items() if binding.hears in wanted
        }

    @property
    def failing(self) -> bool:
        """Whether the last ``follow`` could not open a binding."""
        return bool(self._failing)

    def _enter(self, binding: Binding) -> None:
        try:
            segment = SegmentSocket(binding, receive_bytes=self._receive_bytes)
        except (BccndError, OSError) as error:
            reason = str(error)
            if self._failing.get(binding) != reason:
                self._failing[binding] = reason
                log.warning("segment not opened, trying again", **_named(binding), reason=reason)
            return
        self.open.append(segment)
        self._egresses.append(self._egress(segment))
        if self._watched:
            self._loop.add_reader(segment.fileno(), self._read, segment)
        log.info("segment opened", **_named(binding))

    def _leave(self, segment: SegmentSocket, egress: Egress) -> None:
        self._loop.remove_reader(segment.fileno())
        for _ in range(LAST_BATCHES):
            if not self._read_batch(segment):
                break
        at = self.open.index(segment)
        del self.open[at], self._egresses[at]
        egress.close()
        segment.close()
        sent, unsent = self._before
        self._before = sent + egress.sent, unsent + egress.unsent
        log.info("segment closed", **_named(segment.binding))
        self._relieved()

    def set_addresses(self, addresses: frozenset[bytes]) -> None:
        """The addresses of this host, as the peers of its datagrams are written."""
        self._relay.set_addresses(addresses)
        for segment, egress in zip(self.open, self._egresses, strict=True):
            self._connect(segment, egress)

    def _connect(self, segment: SegmentSocket, egress: Egress) -> None:
        segment.connect()
        egress.set_writer(SegmentWriter(self._arena, segment, self._gather_region))

    # -- the loop

    def watch(self) -> None:
        self._watched = True
        for segment in self.open:
            self._loop.add_reader(segment.fileno(), self._read, segment)

    def unwatch(self) -> None:
        self._watched = False
        for segment in self.open:
            self._loop.remove_reader(segment.fileno())

    def _read(self, segment: SegmentSocket) -> None:
        begun = time.time_ns()
        for _ in range(SEGMENT_BATCHES):
            if not self._read_batch(segment) or not 0 <= time.time_ns() - begun < TURN_NS:
                break
        self._end_turn(begun)

    def _read_batch(self, segment: SegmentSocket) -> bool:
        """True when there may be more."""
        try:
            starts, ends = self._reader.read(segment)
        except OSError as error:  # such as ENETDOWN; reading has cleared it
            log.debug("segment not readable", **_named(segment.binding), error=error.strerror)
            return False
        if starts:
            interface = (segment.binding.interface or "").encode(errors="surrogateescape") or NOWHERE
            moment = Moment(self._loop.time(), time.time_ns())
            try:
                reader = self._reader
                self._relay.from_segment(starts, ends, reader.peer, moment, interface, reader.same_peer)
                self._settle()
            except Exception as fault:  # noqa: BLE001 - logged; it costs the batch, which no host can make more of
                fatal.unless_out_of_memory(fault)
                report.fault(fault, "datagrams")
        return len(starts) == BATCH

    # -- datagrams go out

    def send(self, starts: list[int], ends: list[int], beyond: list[bytes]) -> bool:
        """Send the datagrams at these spans of the arena, then those ``beyond`` it. True if ``congested`` now."""
        congested = False
        for egress in self._egresses:
            if starts:
                egress.send(starts, ends)
            if beyond:
                egress.send_bytes(beyond)
            congested |= egress.congested
        if not self._egresses:
            sent, unsent = self._before
            self._before = sent, unsent + len(starts) + len(beyond)
        return congested

    @property
    def congested(self) -> bool:
        return any(egress.congested for egress in self._egresses)

    @property
    def busy(self) -> bool:
        return any(egress.busy for egress in self._egresses)

    @property
    def errors(self) -> set[int]:
        """The errno of each binding that refused its last datagram; ENETDOWN without any binding."""
        return {egress.error for egress in self._egresses if egress.error} if self._egresses else {ENETDOWN}

    def set_copies(self, copies: int, spread: float) -> None:
        self._copies, self._spread = copies, spread
        for egress in self._egresses:
            egress.set_copies(copies, spread)

    def pause(self) -> None:
        for egress in self._egresses:
            egress.pause()

    def resume(self) -> None:
        for egress in self._egresses:
            egress.resume()

    def close(self) -> None:
        for segment, egress in zip(self.open, self._egresses, strict=True):
            self._loop.remove_reader(segment.fileno())
            egress.close()
            segment.close()

    def _relieved(self) -> None:
        if not self.congested:
            self._on_relief()

    # -- status and state

    def sockets(self) -> list[socket.socket]:
        """The sockets of all bindings."""
        return [segment.socket for segment in self.open]

    def rows(self) -> list[dict[str, Any]]:
        """The bindings, as ``CMSG status`` reports them."""
        return [
            {
                "address": segment.binding.address,
                "port": segment.binding.port,
                "interface": segment.binding.interface,
                "family": segment.binding.family,
                "sent": egress.sent,
                "unsent": egress.unsent,
                "error": os.strerror(egress.error) if egress.error else None,
            }
            for segment, egress in zip(self.open, self._egresses, strict=True)
        ]

    @property
    def sent(self) -> int:
        """Datagrams sent since the start. A datagram that went out by two bindings counts twice."""
        return self._before[0] + sum([egress.sent for egress in self._egresses])

    @property
    def unsent(self) -> int:
        """Datagrams given up since the start, counted in the same way."""
        return self._before[1] + sum([egress.unsent for egress in self._egresses])

    def state(self) -> dict[str, Any]:
        """The counters, and what waits on each binding, in plain values, for a successor."""
        waiting = [
            (astuple(segment.binding), egress.state())
            for segment, egress in zip(self.open, self._egresses, strict=True)
        ]
        return {"sent": self.sent, "unsent": self.unsent, "waiting": waiting}

    def inherit(self, state: dict[str, Any]) -> None:
        """Take over the ``state`` of a predecessor, and give up the queues of bindings that have gone.

        The caller then calls ``resume``.
        """
        left = {Binding(*binding).hears: kept for binding, kept in state["waiting"]}
        for segment, egress in zip(self.open, self._egresses, strict=True):
            if kept := left.pop(segment.binding.hears, None):
                egress.restore(kept)
        given_up = sum([len(kept["pending"]) for kept in left.values()])
        self._before = state["sent"], state["unsent"] + given_up


def _named(binding: Binding) -> dict[str, Any]:
    return {"interface": binding.interface, "address": binding.address, "port": binding.port}
