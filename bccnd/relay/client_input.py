"""What comes from the local bus: packets of one client at a time, as spans of the memory they were read into.

Rules
- Consecutive messages with one route are published together. Only the first on each channel is looked up, and asked
  for rights. What comes between messages (SUB, CMSG, ...) sees everything before it done.
- Reading stops early, with packets ``left``, when the datagrams of this call fill their region, and when a request
  needs the caller (``Effects.asked``). The caller takes the effects and comes back with the same packets.
- What is retained is handed over as soon as the pattern it matches is in force, and before anything newer.
- A wrong packet is answered and counted, and costs nothing else; only a broken framing closes the client.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bccnd.errors import DeniedError, FramingError, PacketError, WireError
from bccnd.relay.answers import Answers
from bccnd.relay.control import Control
from bccnd.relay.delivery import Delivery
from bccnd.relay.effects import Effects, Outgoing, Spans
from bccnd.relay.moment import Moment
from bccnd.relay.publisher import LOCAL_PEER, Origin, Publisher
from bccnd.relay.retained import Kept
from bccnd.relay.router import HEARTBEATS, NOTICES, Route
from bccnd.relay.segment_input import OK, SegmentInput
from bccnd.relay.session import Format, Session
from bccnd.relay.state import State
from bccnd.wire import sbus
from bccnd.wire.bccn1 import CHAN_LIMIT, SEND_LIMIT, valid_chan
from bccnd.wire.native import alike, unpack
from bccnd.wire.sbus import PACK, Cmsg, Memory


class Packets:
    """Packets of one client, read with one call, as spans of the memory. Those from ``at`` on are not done yet.

    ``left``: the relay is to read on, once its effects are carried out.
    """

    at = 0
    left = True
    unpacked = False
    broken = False  # a PACK that cannot be taken apart comes after the last of them

    def __init__(self, starts: list[int], ends: list[int]) -> None:
        self.starts = starts
        self.ends = ends

    def unpack(self, memory: Memory) -> None:
        """Take every PACK apart, up to the first that is broken."""
        starts, ends = self.starts[: self.at], self.ends[: self.at]
        for start, end in zip(self.starts[self.at :], self.ends[self.at :], strict=True):
            if memory[start : start + len(PACK)] == PACK and end - start >= len(PACK):
                inside = unpack(memory, start, end)
                if inside is None:
                    self.broken = True
                    break
                starts += inside[0]
                ends += inside[1]
            else:
                starts.append(start)
                ends.append(end)
        self.starts, self.ends, self.unpacked = starts, ends, True

    def forget(self) -> None:
        """What follows cannot be trusted."""
        self.at, self.broken = len(self.starts), False


@dataclass(eq=False)
class ClientInput:
    """``segment``: judges what a bridge brings as if it came from there."""

    _memory: Memory
    _state: State
    _publisher: Publisher
    _delivery: Delivery
    _control: Control
    _segment: SegmentInput
    _answers: Answers
    _effects: Effects
    _outgoing: Outgoing

    def __post_init__(self) -> None:
        self._rules = self._state.rules
        self._router = self._state.router
        self._retained = self._state.retained
        self._counters = self._state.counters
        self._refusals = self._state.refusals

    def read(self, session: Session, packets: Packets, moment: Moment) -> None:
        """Packets of one client, read with one call. Some may be ``left`` for when the effects are carried out."""
        published_before = session.published
        count = self._unpack(session, packets) if session.packed else len(packets.starts)
        while packets.at < count:
            index = packets.at
            try:
                width, end = self._header(session, packets.starts[index], packets.ends[index])
                if width:
                    packets.ends[index] = end  # without the end of a typed line
                    self._publish(session, packets, width, moment)
                    if packets.at < count and not self._outgoing.room:
                        break
                else:
                    packets.at += 1
                    self._publisher.flush(moment)
                    self._other(session, packets.starts[index], end, moment)
                    count = self._unpack(session, packets)  # agreed to by this very packet
                    if self._effects.asked:
                        break
            except FramingError as error:
                self._refuse(session, error, moment)
                packets.forget()
            except PacketError as error:
                packets.at = index + 1
                self._refuse(session, error, moment)
        self._publisher.flush(moment)
        self._counters.published += session.published - published_before
        if packets.broken and packets.at == count and not self._effects.asked:
            packets.forget()
            text = "packet: PACK with a length that reaches beyond it"
            self._refuse(session, FramingError("bad-packet", text), moment)
        self._effects.packets_left = packets.left = packets.broken or packets.at < count

    def _unpack(self, session: Session, packets: Packets) -> int:
        """Take PACKs apart once the client has agreed to them. How many packets there are then."""
        if session.packed and not packets.unpacked:
            packets.unpack(self._memory)
        return len(packets.starts)

    def _publish(self, session: Session, packets: Packets, width: int, moment: Moment) -> None:
        """Publish a MSG packet, and those that follow it with the same route."""
        memory, starts, ends, first = self._memory, packets.starts, packets.ends, packets.at
        chan = memory[starts[first] + 4 : starts[first] + width - 1]
        route, longest = self._publishable(session, chan, width, ends[first] - starts[first])
        after, count = first + 1, len(starts)
        if after < count:
            routes = self._router.cached if route.open and session.rights.publish_all else {chan: route}
            if route.local or count - first <= self._outgoing.room:
                after = alike(memory, (starts, ends), after, routes, route, longest)
            else:
                # No further than there is room: each part of many messages would cost as much as all of them.
                near = slice(first, max(after, first + self._outgoing.room))
                after = first + alike(memory, (starts[near], ends[near]), 1, routes, route, longest)
        packets.at = after
        session.published += after - first
        spans = starts, ends
        if first or after < count:
            spans = starts[first:after], ends[first:after]
        self._publisher.publish(session, route, spans, session, moment)
        if route.noted:
            self._note(session, spans, moment)

    def _note(self, session: Session, spans: Spans, moment: Moment) -> None:
        """Messages of a client that the daemon itself makes something of."""
        for start, end in zip(*spans, strict=True):
            chan, _, payload = self._memory[start + 4 : end].partition(b"\0")
            if not chan.startswith(HEARTBEATS):
                self._answers.request(session.name, chan, payload, moment)

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
        if route.local:
            limit = rules.options.limits.local_payload
            if size - width > limit:
                text = f"MSG {chan.decode()}: {size - width} bytes of payload, at most {limit}"
                raise PacketError("too-large", text)
            return route, (rules.packet_limit, limit)
        # Beside the envelope and "<src>:<seq>:" a datagram has as many bytes as the packet but for "MSG ".
        around = rules.integrity.overhead + len(b"%b:%d:" % (session.name, session.seq)) - len(b"MSG ")
        if size + around > SEND_LIMIT:
            text = f"MSG {chan.decode()}: {size + around} bytes on the wire, at most {SEND_LIMIT}"
            raise PacketError("too-large", text)
        return route, (SEND_LIMIT - around, SEND_LIMIT)

    def _permitted(self, session: Session, chan: bytes) -> Route:
        """The route of ``chan``, which may be no channel, and not the client's to publish on."""
        route = self._router.known(chan)
        if route is None and not valid_chan(chan):
            shown = chan[:64].decode("ascii", "backslashreplace")
            raise PacketError(
                "bad-channel", f"MSG {shown}: 1 to {CHAN_LIMIT} ASCII characters, no white space, ':', '|'"
            )
        if not session.rights.may_publish(chan):
            raise DeniedError("publish", f"MSG {chan.decode()}: no right to publish there")
        if chan.startswith(NOTICES):
            raise DeniedError("publish", f"MSG {chan.decode()}: only the daemon publishes there")
        return route or self._router.route(chan)

    def _other(self, session: Session, start: int, end: int, moment: Moment) -> None:
        """Anything but MSG."""
        match sbus.parse(self._memory[start:end]):
            case sbus.Sub(pattern, typed):
                with _naming(b"SUB " + pattern):
                    self._subscribe(session, pattern, typed, moment)
            case sbus.Unsub(pattern):
                with _naming(b"UNSUB " + pattern):
                    self._router.unsubscribe(session, pattern)
            case Cmsg(key) as request:
                with _naming(b"CMSG " + key):
                    self._control.answer(session, request, moment)
            case sbus.Datagram(datagram):
                self._bridge(session, datagram, start, end, moment)
            case sbus.Pack() if session.packed:
                raise FramingError("bad-packet", "packet: one PACK inside another")
            case sbus.Pack():
                raise PacketError("not-agreed", "packet: PACK has to be agreed on by CMSG pack")
            case _:
                raise PacketError("bad-packet", "packet: RECV is what the daemon sends")

    def _subscribe(self, session: Session, pattern: bytes, typed: bool, moment: Moment) -> None:
        limit = self._rules.options.limits.subscriptions
        if len(session.subscriptions) >= limit:
            raise PacketError("limit", f"at most {limit} patterns a client")
        if typed and not session.format_chosen and session.format is not Format.LINES:
            session.format = Format.LINES  # a person at a terminal
            self._router.service_changed()
        if not session.rights.may_subscribe(pattern, session.separator):
            raise DeniedError("subscribe", "no right to all that it matches")
        missed = [
            (chan, message)
            for chan, message in self._retained.matching(pattern, session.separator)
            if not self._router.reaches(session, chan)
        ]
        self._router.subscribe(session, pattern)
        if missed and not session.tap:
            self._hand_over_retained(session, missed, moment)

    def _hand_over_retained(
        self, session: Session, messages: list[tuple[bytes, Kept]], moment: Moment
    ) -> None:
        """Give a client the last values of the channels that its new pattern is the first to match."""
        match session.format:
            case Format.FULL:
                packets = [message.recv().serialize() for _, message in messages]
            case Format.LINES:
                packets = [message.msg(chan).serialize_line() for chan, message in messages]
            case Format.PLAIN:
                packets = [message.msg(chan).serialize() for chan, message in messages]
        self._delivery.send(session, packets, None, moment.monotonic)

    def _bridge(self, session: Session, datagram: bytes, start: int, end: int, moment: Moment) -> None:
        """A datagram from elsewhere: judged like one from the segment, then relayed there as it is."""
        if not session.rights.bridge:
            raise DeniedError("bridge", "packet: no right to bridge datagrams")
        if len(datagram) > SEND_LIMIT:
            text = f"packet: {len(datagram)} bytes on the wire, at most {SEND_LIMIT}"
            raise PacketError("too-large", text)
        try:
            opened = self._rules.integrity.open(datagram)
        except WireError as error:
            raise PacketError("bad-datagram", f"packet: {error.verdict}") from None
        src, seq, chan = opened[:3]
        if not session.rights.may_publish(chan):  # before it leaves a trace in the table of sources
            raise DeniedError("publish", "packet: no right to publish on the channel of the datagram")
        route = self._router.route(chan)
        verdict, _ = self._segment.judge(src, seq, route, 1, lambda _: LOCAL_PEER, 0, moment)
        if verdict is not OK:
            raise PacketError("bad-datagram", f"packet: {verdict}")
        self._outgoing.add(datagram)
        first = self._segment.make_message(opened, start)
        self._segment.deliver(Origin([datagram]), 0, src, chan, route, ([first], [end]), moment, session)

    def _refuse(self, session: Session, error: PacketError, moment: Moment) -> None:
        self._publisher.flush(moment)
        self._counters.errors += 1
        if isinstance(error, DeniedError):
            error.text += self._state.rules.access.missed(session.peer)
            first = error.right not in session.refused
            self._refusals.count(session.name, session.peer, error.right, error.text, first=first)
            session.refused.add(error.right)
        text = str(error).encode("ascii", "backslashreplace")
        self._delivery.answer(session, Cmsg(b"error", text), moment.monotonic)
        if isinstance(error, FramingError):
            self._delivery.close(session, "framing")


@contextmanager
def _naming(packet: bytes) -> Iterator[None]:
    """Have a refusal name the packet that it answers."""
    try:
        yield
    except PacketError as error:
        shown = packet[:80].decode("ascii", "backslashreplace")
        error.text = f"{shown}: {error.text}"
        raise
