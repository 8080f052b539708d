"""What comes from the local bus: packets of one client at a time, as spans of the memory they were read into.

Rules
- Consecutive messages with one route are published together. Only the first on each channel is looked up, and asked
  for rights. What comes between messages (SUB, CMSG, ...) sees everything before it done.
- Reading stops early when the datagrams of this call fill their region, and when a request needs the caller
  (``Effects.asked``). The caller takes the effects and comes back with the packets that are left.
- What is retained is handed over as soon as the pattern it matches is in force, and before anything newer.
- A wrong packet is answered and counted, and costs nothing else; only a broken framing closes the client.
"""

from dataclasses import dataclass

from bccnd.errors import DeniedError, FramingError, PacketError, WireError
from bccnd.relay.answers import Answers, asked_about, calls_a_daemon
from bccnd.relay.control import Control
from bccnd.relay.delivery import Delivery
from bccnd.relay.effects import Spans
from bccnd.relay.moment import Moment
from bccnd.relay.publisher import Origin, Publisher
from bccnd.relay.retained import Kept
from bccnd.relay.router import HEARTBEATS, NOTICES, Route
from bccnd.relay.segment_input import OK, SegmentInput
from bccnd.relay.session import Format, Session
from bccnd.relay.state import State
from bccnd.wire import sbus
from bccnd.wire.bccn1 import CHAN_LIMIT, SEND_LIMIT, valid_chan
from bccnd.wire.native import alike, unpack
from bccnd.wire.sbus import PACK, SECRET, Cmsg

# Packets of one client that are left: their spans, the index of the first, and whether their PACKs are taken apart.
Left = tuple[Spans, int, bool]


@dataclass(eq=False)
class ClientInput:
    """``segment``: judges what a bridge brings as if it came from there."""

    _state: State
    _publisher: Publisher
    _delivery: Delivery
    _control: Control
    _segment: SegmentInput
    _answers: Answers

    def __post_init__(self) -> None:
        self._memory = self._state.memory
        self._rules = self._state.rules
        self._router = self._state.router
        self._outgoing = self._state.outgoing
        self._counters = self._state.counters

    def read(
        self, session: Session, moment: Moment, packets: Spans, at: int = 0, unpacked: bool = False
    ) -> Left | None:
        """Packets of one client, read with one call, as spans of the memory.

        Returns those that are left: the caller carries out the effects and gives them back.
        """
        outgoing, published_before = self._outgoing, session.published
        if not unpacked and _may_hold_several(session):
            packets, unpacked = self._unpacked(session, *packets), True
        starts, ends = packets
        count = len(starts)
        while at < count:
            index = at
            try:
                width, end = self._header(session, starts[at], ends[at])
                if width:
                    ends[at] = end  # without the end of a typed line
                    at = self._publish(session, packets, at, width, moment)
                    if at < count and not outgoing.room:
                        break
                else:
                    at += 1
                    self._publisher.flush(moment)
                    if self._is_typed_ahead(session, starts[index], end):
                        starts, ends = packets = self._line_by_line(starts[index:], ends[index:])
                        index, at, count, unpacked, end = 0, 1, len(starts), True, ends[0]
                    self._other(session, starts[index], end, moment)
                    if not unpacked and _may_hold_several(session):  # by this very packet
                        starts, ends = packets = self._unpacked(session, starts[at:], ends[at:])
                        at, count, unpacked = 0, len(starts), True
                    if outgoing.asked:
                        break
            except PacketError as error:
                at = count if isinstance(error, FramingError) else index + 1  # what follows cannot be trusted
                self._refuse(session, error, moment)
        self._publisher.flush(moment)
        self._counters.published += session.published - published_before
        outgoing.packets_left = at < count
        return (packets, at, unpacked) if at < count else None

    def _unpacked(self, session: Session, starts: list[int], ends: list[int]) -> Spans:
        """The same packets with every PACK taken apart, up to the first that is broken, which is the last of them;
        and with each line a packet, for a client in that format.
        """
        memory = self._memory
        if session.format is Format.LINES:
            starts, ends = self._line_by_line(starts, ends)
        if not session.packed:
            return starts, ends
        flat_starts: list[int] = []
        flat_ends: list[int] = []
        for start, end in zip(starts, ends, strict=True):
            is_pack = memory[start : start + len(PACK)] == PACK and end - start >= len(PACK)
            inside = unpack(memory, start, end) if is_pack else None
            flat_starts += inside[0] if inside else [start]
            flat_ends += inside[1] if inside else [end]
            if is_pack and not inside:
                break
        return flat_starts, flat_ends

    def _is_typed_ahead(self, session: Session, start: int, end: int) -> bool:
        """Whether the first packet of a shell goes on with other lines behind its SUB."""
        if session.format_chosen or session.packed or session.format is Format.LINES:
            return False
        packet = self._memory[start:end]
        return packet.startswith(b"SUB ") and len(sbus.lines(packet)) > 1

    def _line_by_line(self, starts: list[int], ends: list[int]) -> Spans:
        """What a shell writes at once is read at once: each line is a packet."""
        spans = [
            (start + first, start + last)
            for start, end in zip(starts, ends, strict=True)
            for first, last in sbus.lines(self._memory[start:end])
        ]
        return [start for start, _ in spans], [end for _, end in spans]

    def _publish(self, session: Session, packets: Spans, first: int, width: int, moment: Moment) -> int:
        """Publish a MSG packet, and those that follow it with the same route. Returns the index of the next."""
        memory, (starts, ends) = self._memory, packets
        chan = memory[starts[first] + 4 : starts[first] + width - 1]
        route, longest = self._publishable(session, chan, width, ends[first] - starts[first])
        after, count = first + 1, len(starts)
        asks = (route.noted or chan[:1] == b"!") and calls_a_daemon(chan)
        if asks:
            self._check_question(session, chan, memory[starts[first] + width : ends[first]])
        if after < count and not asks:
            several = route.open and session.rights.publish_all and not route.noted
            routes = self._router.cached if several else {chan: route}
            if route.local or count - first <= self._outgoing.room:
                after = alike(memory, packets, after, routes, route, longest)
            else:
                # No further than there is room: each part of many messages would cost as much as all of them.
                near = slice(first, max(after, first + self._outgoing.room))
                after = first + alike(memory, (starts[near], ends[near]), 1, routes, route, longest)
        session.published += after - first
        if first or after < count:
            packets = starts[first:after], ends[first:after]
        self._publisher.publish(session, route, packets, session, moment)
        if route.noted:
            for start, end in zip(*packets, strict=True):
                chan, _, payload = memory[start + 4 : end].partition(b"\0")
                if not chan.startswith(HEARTBEATS):
                    self._answers.request(session.name, chan, payload, moment)
        return after

    def _header(self, session: Session, start: int, end: int) -> tuple[int, int]:
        """How long ``MSG <chan> NUL`` is, 0 for another packet; and where the packet ends."""
        memory = self._memory
        if memory[start : start + 4] != b"MSG " or end - start < 4:
            return 0, end
        nul = memory.find(b"\0", start + 4, end)
        if nul >= 0:
            return nul + 1 - start, end
        if session.format is not Format.LINES:
            raise PacketError("bad-packet", "packet: MSG needs a NUL between channel and payload")
        message = sbus.Msg.parse_line(memory[start + 4 : end])
        nul = start + 4 + len(message.chan)
        memory[nul : nul + 1] = b"\0"
        return nul + 1 - start, nul + 1 + len(message.payload)

    def _publishable(
        self, session: Session, chan: bytes, width: int, size: int
    ) -> tuple[Route, tuple[int, int]]:
        """The route of ``chan``, and how long a MSG packet to it, and its payload, may be.

        ``width``, ``size``: of ``MSG <chan> NUL``, and of the whole packet.
        """
        rules = self._rules
        route = self._router.cached.get(chan)
        if route is None or not (route.open and session.rights.publish_all):
            route = self._permitted(session, chan)
        more = "more than " if size > rules.packet_limit else ""  # the rest was cut off when it was read
        if route.local:
            limit = rules.options.limits.local_payload
            if size - width > limit:
                text = f"{more}{size - width - bool(more)} bytes of payload, at most {limit}"
                raise PacketError("too-large", f"MSG {chan.decode()}: {text}")
            return route, (rules.packet_limit, limit)
        # Beside the envelope and "<src>:<seq>:" a datagram has as many bytes as the packet but for "MSG ".
        around = rules.integrity.overhead + len(b"%b:%d:" % (session.name, session.seq)) - len(b"MSG ")
        if size + around > SEND_LIMIT:
            wire = (
                size - bool(more) + around + (size + around - rules.integrity.overhead > 9999)
            )  # a digit more
            text = f"{more}{wire} bytes on the wire, at most {SEND_LIMIT}"
            raise PacketError("too-large", f"MSG {chan.decode()}: {text}")
        return route, (SEND_LIMIT - around, SEND_LIMIT)

    def _permitted(self, session: Session, chan: bytes) -> Route:
        """The route of ``chan``, which may be no channel, and not the client's to publish on."""
        route = self._router.known(chan)
        if route is None and not valid_chan(chan):
            shown = chan[:64].decode("ascii", "backslashreplace")
            raise PacketError(
                "bad-channel", f"MSG {shown}: 1 to {CHAN_LIMIT} ASCII characters, no white space, ':', '|'"
            )
        if chan.startswith(SECRET):
            text = f"MSG {chan.decode()}: a secret key of sbus; nothing on it is delivered or sent"
            raise PacketError("bad-channel", text)
        if not session.rights.may_publish(chan):
            raise DeniedError("publish", f"MSG {chan.decode()}: no right to publish there")
        if chan.startswith(NOTICES):
            raise DeniedError("publish", f"MSG {chan.decode()}: only the daemon publishes there")
        return route or self._router.route(chan)

    def _check_question(self, session: Session, chan: bytes, request: bytes) -> None:
        """Refuse a request to daemons about a channel that the client has no right to ask about."""
        about = asked_about(request)
        if about is not None and (about.startswith(SECRET) or not session.rights.may_publish(about)):
            text = f"MSG {chan.decode()}: no right to publish on {about.decode()}, which it asks about"
            raise DeniedError("publish", text)

    def _other(self, session: Session, start: int, end: int, moment: Moment) -> None:
        """Anything but MSG. A refusal names the packet that it answers."""
        packet, named = sbus.parse(self._memory[start:end]), b"packet"
        try:
            match packet:
                case sbus.Sub(pattern, typed):
                    named = b"SUB " + pattern
                    self._subscribe(session, pattern, typed, moment)
                case sbus.Unsub(pattern):
                    named = b"UNSUB " + pattern
                    self._router.unsubscribe(session, pattern)
                case Cmsg(key):
                    named = b"CMSG " + key
                    self._control.answer(session, packet, moment)
                case sbus.Datagram(datagram):
                    self._bridge(session, datagram, start, end, moment)
                case sbus.Pack() if session.packed:
                    raise FramingError("bad-packet", "one PACK inside another")
                case sbus.Pack():
                    raise PacketError("not-agreed", "PACK has to be agreed on by CMSG pack")
                case _:
                    raise PacketError("bad-packet", "RECV is what the daemon sends")
        except PacketError as error:
            error.text = f"{named[:80].decode('ascii', 'backslashreplace')}: {error.text}"
            raise

    def _subscribe(self, session: Session, pattern: bytes, typed: bool, moment: Moment) -> None:
        limit = self._rules.options.limits.subscriptions
        if len(session.subscriptions) >= limit:
            raise PacketError("limit", f"at most {limit} patterns a client")
        if typed and not session.format_chosen and session.format is not Format.LINES:
            session.format = Format.LINES  # a person at a terminal
            self._router.service_changed(session)
        if not session.rights.may_subscribe(pattern, session.separator):
            raise DeniedError("subscribe", "no right to all that it matches")
        missed = [
            row
            for row in self._state.retained.matching(pattern, session.separator)
            if row and not self._router.reaches(session, row[0])
        ]
        self._router.subscribe(session, pattern)
        if missed and not session.tap:
            packets = [_retained_packet(session.format, chan, message) for chan, message in missed]
            self._delivery.send(session, packets, None, moment.monotonic)

    def _bridge(self, session: Session, datagram: bytes, start: int, end: int, moment: Moment) -> None:
        """A datagram from elsewhere: judged like one from the segment, then relayed there as it is."""
        if not session.rights.bridge:
            raise DeniedError("bridge", "no right to bridge datagrams")
        if len(datagram) > SEND_LIMIT:
            raise PacketError("too-large", f"{len(datagram)} bytes on the wire, at most {SEND_LIMIT}")
        try:
            opened = self._rules.integrity.open(datagram)
        except WireError as error:
            raise PacketError("bad-datagram", str(error.verdict)) from None
        src, seq, chan = opened[:3]
        if chan.startswith(SECRET):
            raise PacketError("bad-channel", "a secret key of sbus is not sent")
        if not session.rights.may_publish(chan):  # before it leaves a trace in the table of sources
            raise DeniedError("publish", "no right to publish on the channel of the datagram")
        route = self._router.route(chan)
        origin = Origin([datagram])
        verdict, _ = self._segment.judge(src, seq, route, 1, origin, 0, moment)
        if verdict is not OK:
            raise PacketError("bad-datagram", str(verdict))
        self._outgoing.add(datagram)
        spans = [self._segment.make_message(opened, start)], [end]
        self._publisher.pass_on(route, spans, session, origin, moment, 0)
        if route.noted:
            self._segment.note(src, chan, spans, origin, 0, moment)

    def _refuse(self, session: Session, error: PacketError, moment: Moment) -> None:
        self._publisher.flush(moment)
        self._counters.errors += 1
        if isinstance(error, DeniedError):
            error.text += self._state.rules.access.missed(session.peer)
            first = error.right not in session.refused
            self._state.refusals.count(session.name, session.peer, error.right, error.text, first=first)
            session.refused.add(error.right)
        text = str(error).encode("ascii", "backslashreplace")
        self._delivery.answer(session, Cmsg(b"error", text), moment)
        if isinstance(error, FramingError):
            self._delivery.close(session, "framing")


def _retained_packet(form: Format, chan: bytes, message: Kept) -> bytes:
    if form is Format.FULL:
        return message.recv().serialize()
    return message.msg(chan).serialize_line() if form is Format.LINES else message.msg(chan).serialize()


def _may_hold_several(session: Session) -> bool:
    """Whether one packet of the client can be several."""
    return session.packed or session.format is Format.LINES
