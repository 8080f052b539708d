"""The one path of a message to its subscribers, wherever it comes from: a client, the segment, the daemon itself.

    client_input ---.                     .--> retained
    segment_input --+--> pass_on(route) --+--> RECV packets, for clients of the format ``full`` and taps
    publish --------'                     '--> delivery, a group at a time

Rules
- Messages of one route and one sender are a group and are handed over together; ``pass_on`` gathers them, ``flush``
  hands them over. Whoever changes what a route means, or uses the memory again, flushes first.
- A message of this host takes the next number of its source. Local channels are numbered apart, or the other hosts
  would take their numbers for losses, and only those that somebody sees whole.
- Whole datagrams are copied only for those who want them: ``Origin`` makes them when asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bccnd.relay.delivery import Delivery, Group
from bccnd.relay.effects import Outgoing, Sealed, Spans, as_bytes
from bccnd.relay.identity import LocalSource
from bccnd.relay.moment import Moment
from bccnd.relay.retained import Kept, Retained
from bccnd.relay.router import Route, Router
from bccnd.relay.session import Session
from bccnd.relay.state import LOCAL_PEER, Rules
from bccnd.wire.bccn1 import Integrity
from bccnd.wire.native import codec_of
from bccnd.wire.sbus import NOWHERE, Memory, Recv
from bccnd.wire.verdict import Verdict

# The longest packet the daemon writes itself: a presence notice with names of 128 bytes, escaped.
OWN_BYTES = 4096


class Origin:
    """Whole datagrams of messages, for those who want them: from whom they are, and by which interface they came."""

    __slots__ = ("_peer", "_sealed", "interface")

    def __init__(self, sealed: Sealed, peer: bytes = LOCAL_PEER, interface: bytes = NOWHERE) -> None:
        """``peer``: who sent them all; ``interface``: NOWHERE for those of this host."""
        self._sealed = sealed
        self._peer = peer
        self.interface = interface

    def datagrams(self, memory: Memory, first: int, count: int) -> list[bytes]:
        """Copies of so many datagrams."""
        sealed = self._sealed if isinstance(self._sealed, list) else as_bytes(memory, *self._sealed)
        return sealed[first : first + count]

    def peers(self, _first: int, count: int) -> list[bytes]:
        """Who sent them, as RECV names it."""
        return [self._peer] * count


@dataclass(eq=False)
class Publisher:
    """``own``: a region of the memory for packets that the daemon writes itself, OWN_BYTES long."""

    _memory: Memory
    _own: int
    _rules: Rules
    _router: Router
    _retained: Retained
    _taps: list[Session]
    _delivery: Delivery
    _outgoing: Outgoing

    def __post_init__(self) -> None:
        self._unsigned = codec_of(Integrity())  # for what never leaves the host
        self._group = Group()

    def pass_on(
        self,
        route: Route,
        spans: Spans,
        sender: Session | None,
        origin: Origin | None,
        moment: Moment,
        first: int = 0,
    ) -> None:
        """Messages with one route, as MSG packets at these spans.

        ``sender``: the local client, None for the segment and for the daemon's own words; ``origin``: None when
        nobody wants whole datagrams (``wants_whole``); ``first``: the index of the first message in its origin.
        """
        group = self._group
        if route is not group.route or sender is not group.sender:
            self.flush(moment)
            group.route, group.sender = route, sender
        if origin is not None and self.wants_whole(route):
            self._keep_and_show(route, spans, origin, moment, first)
        if route.size or (self._taps and not route.private):
            group.starts += spans[0]
            group.ends += spans[1]
        if route.noted:
            self.flush(moment)

    def wants_whole(self, route: Route) -> bool:
        """Whether somebody wants the datagrams of messages with this route."""
        return route.whole or (bool(self._taps) and not route.private)

    def flush(self, moment: Moment) -> None:
        """Hand over what has been gathered."""
        group = self._group
        if group.starts:
            self._delivery.hand_over(group, moment.monotonic)
            if group.full or group.placed:
                self._show_taps(moment)
            group.starts, group.ends = [], []

    def publish(
        self, source: LocalSource, route: Route, spans: Spans, sender: Session | None, moment: Moment
    ) -> None:
        """Number the messages at these spans, send them to the segment unless their route is local, pass them on."""
        count, origin = len(spans[0]), None
        if not route.local:
            seq, source.seq = source.seq, source.seq + count
            sealed = self._outgoing.seal(self._rules.codec, source.name, seq, spans)
            origin = Origin(sealed) if route.whole or self._taps else None
        elif route.whole or (self._taps and not route.private):
            seq, source.local_seq = source.local_seq, source.local_seq + count
            origin = Origin(self._unsigned.datagrams(source.name, seq, self._memory, *spans))
        self.pass_on(route, spans, sender, origin, moment)

    def say(self, source: LocalSource, chan: bytes, payload: bytes, moment: Moment) -> None:
        """Publish something the daemon says itself, in its own name or in that of a client."""
        self.flush(moment)
        packet = b"MSG %b\0%b" % (chan, payload)
        start, end = self._own, self._own + len(packet)
        if len(packet) > OWN_BYTES:
            raise ValueError(f"{chan!r}: {len(packet)} bytes of the daemon's own, at most {OWN_BYTES}")
        self._memory[start:end] = packet
        self.publish(source, self._router.route(chan), ([start], [end]), None, moment)
        self.flush(moment)

    def show_dropped(self, origin: Origin, first: int, count: int, verdict: Verdict, moment: Moment) -> None:
        """Show datagrams that go to nobody to the taps."""
        self.flush(moment)
        datagrams = origin.datagrams(self._memory, first, count)
        self._group.route = self._group.sender = None
        self._show(origin, first, datagrams, verdict, moment, plainly=False)
        self._show_taps(moment)

    def _keep_and_show(self, route: Route, spans: Spans, origin: Origin, moment: Moment, first: int) -> None:
        datagrams = origin.datagrams(self._memory, first, len(spans[0]))
        if route.retained:
            peers = origin.peers(first, len(datagrams))
            for start, end, peer, datagram in zip(*spans, peers, datagrams, strict=True):
                nul = self._memory.find(b"\0", start, end)
                kept = Kept(peer, moment.unix_ns, datagram, len(datagram) - (end - nul - 1))
                self._retained.keep(self._memory[start + 4 : nul], kept)
        if route.full or (self._taps and not route.private):
            self._show(origin, first, datagrams, Verdict.OK, moment, plainly=bool(route.full))

    def _show(
        self,
        origin: Origin,
        first: int,
        datagrams: list[bytes],
        verdict: Verdict,
        moment: Moment,
        *,
        plainly: bool,
    ) -> None:
        """Add RECV packets to the group, in each form somebody wants: ``plainly`` for clients of the format."""
        group, peers = self._group, origin.peers(first, len(datagrams))
        forms = {tap.tap_interface for tap in self._taps}
        if plainly or False in forms:
            group.full += _recv(peers, moment.unix_ns, verdict, b"", datagrams)
        if True in forms:
            group.placed += _recv(peers, moment.unix_ns, verdict, origin.interface, datagrams)

    def _show_taps(self, moment: Moment) -> None:
        group = self._group
        if not (group.route and group.route.private):
            for tap in self._taps:
                self._delivery.send(tap, group.shown_to(tap), group.sender, moment.monotonic)
        group.full, group.placed = [], []


def _recv(
    peers: Sequence[bytes], unix_ns: int, verdict: Verdict, interface: bytes, datagrams: Sequence[bytes]
) -> list[bytes]:
    """RECV packets. Most have the head of the one before."""
    packets = []
    last, head = None, b""
    for peer, datagram in zip(peers, datagrams, strict=True):
        if peer != last:
            last, head = peer, Recv(peer, unix_ns, verdict.encode(), b"", interface).head
        packets.append(head + datagram)
    return packets
