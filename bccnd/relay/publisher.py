"""The one path of a message to its subscribers, wherever it comes from: a client, the segment, the daemon itself.

    client_input ---.                     .--> retained
    segment_input --+--> pass_on(route) --+--> RECV packets, for clients of the format ``full`` and taps
    publish --------'                     '--> delivery, a group at a time

Rules
- Messages of one route and one sender are a group and are handed over together; ``pass_on`` gathers them, ``flush``
  hands them over. Whoever changes what a route means, or uses the memory again, flushes first. A message that was
  read alone is mostly handed over without a group (``publish_alone``).
- A message of this host takes the next number of its source. Local channels are numbered apart, or the other hosts
  would take their numbers for losses, and only those that somebody sees whole.
- What a client sends to the segment is kept, to be sent again (``sent``).
- Whole datagrams are copied only for those who want them: ``Origin`` makes them when asked.
"""

from collections.abc import Callable
from dataclasses import dataclass

from bccnd.relay.delivery import Delivery, Group, Sender
from bccnd.relay.effects import Sealed, Spans, as_bytes
from bccnd.relay.identity import LocalSource
from bccnd.relay.moment import Moment
from bccnd.relay.retained import Kept
from bccnd.relay.router import Route
from bccnd.relay.session import Session
from bccnd.relay.state import LOCAL_PEER, State
from bccnd.wire.bccn1 import Integrity
from bccnd.wire.native import codec_of
from bccnd.wire.sbus import NOWHERE, Memory, Recv
from bccnd.wire.verdict import Verdict

OK = Verdict.OK

# The longest packet the daemon writes itself: a presence notice with names of 128 bytes, escaped.
OWN_BYTES = 4096


def from_here(_index: int) -> bytes:
    """The peer in RECV of what a client of this host sent."""
    return LOCAL_PEER


def one_by_one(_index: int, _count: int) -> int:
    return 1


@dataclass(slots=True)
class Origin:
    """Datagrams read or sealed together. ``peer(i)``: who sent the i-th; ``same_peer(i, n)``: how many of n from the
    i-th on have its peer, at least; ``interface``: NOWHERE for this host's; ``source``: who of this host brought
    them, None for the segment. ``verdict``: the one on all of them.
    """

    sealed: Sealed
    peer: Callable[[int], bytes] = from_here
    same_peer: Callable[[int, int], int] = one_by_one
    interface: bytes = NOWHERE
    source: LocalSource | None = None
    verdict: Verdict = OK

    def datagrams(self, memory: Memory, part: range) -> list[bytes]:
        """Copies of the datagrams with these indexes."""
        if isinstance(self.sealed, list):
            return self.sealed[part.start : part.stop]
        starts, ends = self.sealed
        return as_bytes(memory, starts[part.start : part.stop], ends[part.start : part.stop])


class Publisher:
    """``own``: a region of the memory for packets that the daemon writes itself, OWN_BYTES long."""

    def __init__(self, state: State, delivery: Delivery, own: int) -> None:
        self._memory = state.memory
        self._rules = state.rules
        self._router = state.router
        self._retained = state.retained
        self._taps = state.taps
        self._outgoing = state.outgoing
        self._sent = state.sent
        self._delivery = delivery
        self._own = own
        self._unsigned = codec_of(Integrity())  # for what never leaves the host
        self._group = Group()

    def pass_on(
        self, route: Route, spans: Spans, sender: Sender, origin: Origin | None, moment: Moment, first: int
    ) -> None:
        """Messages with one route, as MSG packets at these spans, the first of which is the ``first`` of its origin.

        ``origin``: None when nobody wants whole datagrams.
        """
        group = self._group
        shown = self._taps and not route.private
        if route is not group.route or sender is not group.sender:
            if group.starts:
                self.flush(moment)
            group.route, group.sender = route, sender
        if origin is not None and (shown or route.whole):
            part = range(first, first + len(spans[0]))
            datagrams = origin.datagrams(self._memory, part)
            if route.retained:
                self._retain(spans, origin, part, datagrams, moment)
            if route.full or shown:
                self._show(origin, part, datagrams, origin.verdict, moment, bool(route.full))
        if route.size or shown:
            group.starts += spans[0]
            group.ends += spans[1]
        if route.noted:
            self.flush(moment)

    def flush(self, moment: Moment) -> None:
        """Hand over what has been gathered."""
        group = self._group
        if group.starts:
            self._delivery.hand_over(group, moment.monotonic)
            if group.full or group.tapped or group.placed:
                self._show_taps(moment)
            group.starts, group.ends = [], []

    def publish(
        self, source: LocalSource, route: Route, spans: Spans, sender: Sender, moment: Moment
    ) -> None:
        """Number the messages at these spans, send them to the segment unless their route is local, pass them on."""
        count, origin = len(spans[0]), None
        if not route.local:
            seq, source.seq = source.seq, source.seq + count
            sealed = self._outgoing.seal(self._rules.codec, source.name, seq, spans)
            # What the daemon says itself is said again anyway.
            if isinstance(source, Session) and self._sent.on:
                self._sent.keep(source.name, source.peer.uid, seq, sealed, moment.monotonic)
            origin = Origin(sealed, source=source) if route.whole or self._taps else None
        elif route.whole or (self._taps and not route.private):
            seq, source.local_seq = source.local_seq, source.local_seq + count
            origin = Origin(self._unsigned.datagrams(source.name, seq, self._memory, *spans), source=source)
        self.pass_on(route, spans, sender, origin, moment, 0)

    def publish_alone(self, session: Session, route: Route, spans: Spans, moment: Moment) -> None:
        """The same for one message on a simple route, while there are no taps and nothing is gathered."""
        if not route.local:
            seq, session.seq = session.seq, session.seq + 1
            sealed = self._outgoing.seal(self._rules.codec, session.name, seq, spans)
            if self._sent.on:
                self._sent.keep(session.name, session.peer.uid, seq, sealed, moment.monotonic)
        self._delivery.send_spans(route.single, route.single_ports, spans, session, moment.monotonic)

    def say(self, source: LocalSource, chan: bytes, payload: bytes, moment: Moment) -> None:
        """Publish something the daemon says itself, in its own name or in that of a client."""
        self.flush(moment)
        packet = b"MSG %b\0%b" % (chan, payload)
        start, end = self._own, self._own + len(packet)
        if len(packet) > OWN_BYTES:
            raise ValueError(f"{chan!r}: {len(packet)} bytes of the daemon's own, at most {OWN_BYTES}")
        self._memory[start:end] = packet
        route = self._router.route(chan)
        self._outgoing.steps += route.size
        self.publish(source, route, ([start], [end]), None, moment)
        self.flush(moment)

    def show_dropped(self, origin: Origin, part: range, verdict: Verdict, moment: Moment) -> None:
        """Show datagrams that go to nobody to the taps."""
        self.flush(moment)
        self._group.route = self._group.sender = None
        self._show(origin, part, origin.datagrams(self._memory, part), verdict, moment, False)
        self._show_taps(moment)

    def _retain(
        self, spans: Spans, origin: Origin, part: range, datagrams: list[bytes], moment: Moment
    ) -> None:
        user = origin.source.peer.uid if isinstance(origin.source, Session) else None
        for start, end, index, datagram in zip(*spans, part, datagrams, strict=True):
            nul = self._memory.find(b"\0", start, end)
            kept = Kept(origin.peer(index), moment.unix_ns, datagram, len(datagram) - (end - nul - 1))
            self._retained.keep(self._memory[start + 4 : nul], kept, user)

    def _show(
        self,
        origin: Origin,
        part: range,
        datagrams: list[bytes],
        verdict: Verdict,
        moment: Moment,
        full: bool,
    ) -> None:
        """Add RECV packets to the group, in each form somebody wants: ``full`` for clients of the format, to which a
        message that was repaired is a message like any other.
        """
        group = self._group
        forms = [
            (group.placed, verdict, origin.interface) if placed else (group.tapped, verdict, b"")
            for placed in {tap.tap_interface for tap in self._taps}
        ]
        if full:
            forms.append((group.full, OK if verdict is Verdict.REPAIRED else verdict, b""))
        for packets, judged, interface in forms:
            word = judged.encode()
            last, head = None, b""  # most have the head of the one before
            for index, datagram in zip(part, datagrams, strict=True):
                peer = origin.peer(index)
                if peer != last:
                    last, head = peer, Recv(peer, moment.unix_ns, word, b"", interface).head
                packets.append(head + datagram)

    def _show_taps(self, moment: Moment) -> None:
        group = self._group
        if not (group.route and group.route.private):
            for tap in self._taps:
                self._delivery.send(tap, group.shown_to(tap), group.sender, moment.monotonic)
        group.full, group.tapped, group.placed = [], [], []
