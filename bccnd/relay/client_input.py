"""What comes from the local bus: packets of one client at a time, as places in the memory they were read into.

Rules
- A publish on a channel that is not local takes the next sequence number of its source. Local channels count apart,
  or the other hosts would take their numbers for losses.
- Consecutive packets with the same header are looked up, and asked for rights, once. What comes between messages
  (SUB, CMSG, ...) sees everything before it done.
- What is retained is handed over as soon as the pattern it matches is in force, and before anything newer.
- A wrong packet is answered and counted, and costs nothing else; only a broken framing closes the client.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bccnd.errors import DeniedError, FramingError, PacketError
from bccnd.relay import control
from bccnd.relay.delivery import Run
from bccnd.relay.retained import Kept
from bccnd.relay.router import NOTICES, Audience
from bccnd.relay.segment_input import LOCAL_PEER, REFUSED, SegmentInput
from bccnd.relay.session import Format, Session
from bccnd.wire import sbus
from bccnd.wire.bccn1 import CHAN_LIMIT, SEND_LIMIT, valid_chan
from bccnd.wire.sbus import PACK, Cmsg, Recv

if TYPE_CHECKING:
    from bccnd.relay.core import Relay


class ClientInput:
    """``segment``: judges what a bridge brings as if it came from there."""

    def __init__(self, relay: "Relay", segment: SegmentInput) -> None:
        self._relay = relay
        self._memory = relay.memory
        self._segment = segment

    def read(self, session: Session, starts: list[int], ends: list[int], now: float, unix_ns: int) -> None:
        """Packets of one client, read with one call, as places in the memory."""
        broken = None
        unpacking = session.packed
        if unpacking:
            starts, ends, broken = self._unpacked(starts, ends)
        memory, delivery = self._memory, self._relay.delivery
        run = Run()
        head: bytes | None = None  # b"MSG <chan> NUL" of the packet before
        width = longest = 0
        shown = encoded = False
        places = zip(starts, ends, strict=True)
        for start, end in places:
            if memory[start : start + width] != head or not width <= end - start <= longest:
                try:
                    width, end = self._header(session, start, end)
                    if not width:
                        head = None
                        delivery.hand_over(run, session)
                        if session.packed and not unpacking:  # agreed to among these very packets
                            starts, ends = map(list, zip((start, end), *places, strict=True))
                            self.read(session, starts, ends, now, unix_ns)
                            return
                        if self._other(session, start, end, now, unix_ns):
                            continue
                        broken = None  # it has been told
                        break
                    head = memory[start : start + width]
                    audience, longest = self._publishable(session, head[4:-1], end - start)
                except PacketError as error:
                    head = None
                    delivery.hand_over(run, session)
                    self._answer_error(session, error)
                    continue
                if audience is not run.audience:
                    delivery.hand_over(run, session)
                    run.audience = audience
                shown = bool(audience.full or delivery.taps)
                encoded = shown or audience.retained or not audience.local
            run.starts.append(start)
            run.ends.append(end)
            session.published += 1
            if encoded:
                payload = memory[start + width : end]
                datagram = self._encode(session, audience, head[4:-1], payload, unix_ns)
                if shown:
                    run.full.append(Recv(LOCAL_PEER, unix_ns, b"ok", datagram).serialize())
                self._answer_request(session, run, head[4:-1], payload, now)
        delivery.hand_over(run, session)
        if broken:
            self._answer_error(session, broken)

    def _unpacked(
        self, starts: list[int], ends: list[int]
    ) -> tuple[list[int], list[int], FramingError | None]:
        """The same packets with every PACK taken apart, up to the first that is broken."""
        flat_starts: list[int] = []
        flat_ends: list[int] = []
        for start, end in zip(starts, ends, strict=True):
            if self._memory[start : start + len(PACK)] == PACK and end - start >= len(PACK):
                try:
                    sbus.unpack(self._memory, start, end, flat_starts, flat_ends)
                except FramingError as error:
                    return flat_starts, flat_ends, error
            else:
                flat_starts.append(start)
                flat_ends.append(end)
        return flat_starts, flat_ends, None

    def _header(self, session: Session, start: int, end: int) -> tuple[int, int]:
        """How long ``MSG <chan> NUL`` is, 0 for another packet; and where the packet ends."""
        memory = self._memory
        if end - start < 4 or memory[start : start + 4] != b"MSG ":
            return 0, end
        nul = memory.find(b"\0", start + 4, end)
        if nul < 0 and session.format is Format.LINES:
            message = sbus.Msg.parse_line(memory[start + 4 : end])
            nul = start + 4 + len(message.chan)
            memory[nul : nul + 1] = b"\0"
            end = nul + 1 + len(message.payload)
        if nul < 0:
            raise PacketError("bad-packet", "packet: MSG needs a NUL between channel and payload")
        return nul + 1 - start, end

    def _publishable(self, session: Session, chan: bytes, size: int) -> tuple[Audience, int]:
        """The audience of ``chan`` and the longest MSG packet that the client may send there."""
        audience = self._relay.router.known(chan)
        if audience is None and not valid_chan(chan):
            shown = chan[:64].decode("ascii", "backslashreplace")
            raise PacketError(
                "bad-channel", f"MSG {shown}: 1 to {CHAN_LIMIT} ASCII characters, no white space, ':', '|'"
            )
        if not session.rights.may_publish(chan):
            raise DeniedError("publish", f"MSG {chan.decode()}: no right to publish there")
        if chan.startswith(NOTICES):
            raise DeniedError("publish", f"MSG {chan.decode()}: only the daemon publishes there")
        audience = audience or self._relay.router.audience(chan)
        header = len(b"MSG ") + len(chan) + 1
        if audience.local:
            around, limit, unit = 0, self._relay.limits.local_payload, "bytes of payload"
        else:
            around = self._relay.integrity.overhead + len(b"%b:%d:%b|" % (session.name, session.seq, chan))
            limit, unit = SEND_LIMIT, "bytes on the wire"
        payload = size - header
        if payload + around > limit:
            raise PacketError("too-large", f"MSG {chan.decode()}: {payload + around} {unit}, at most {limit}")
        return audience, header + limit - around

    def _answer_request(self, session: Session, run: Run, chan: bytes, payload: bytes, now: float) -> None:
        """If the message that ends the run is for the daemon, deliver it and answer."""
        if run.audience is not None and run.audience.noted and chan.startswith(b"!"):
            self._relay.delivery.hand_over(run, session)
            self._relay.answers.request(session.name, payload, now)

    def _encode(
        self, session: Session, audience: Audience, chan: bytes, payload: bytes, unix_ns: int
    ) -> bytes:
        """The datagram of a message; it is kept and goes to the segment where that is wanted."""
        if audience.local:
            body = b"%b:%d:%b|%b" % (session.name, session.local_seq, chan, payload)
            session.local_seq += 1
            datagram = b"BCCN1[%d]%b" % (len(body), body)
        else:
            body = b"%b:%d:%b|%b" % (session.name, session.seq, chan, payload)
            session.seq += 1
            datagram = self._relay.integrity.seal(body)
            self._relay.outgoing.append(datagram)
        if audience.retained:
            self._relay.retained.keep(chan, Kept(LOCAL_PEER, unix_ns, datagram, len(datagram) - len(payload)))
        return datagram

    def _other(self, session: Session, start: int, end: int, now: float, unix_ns: int) -> bool:
        """Anything but MSG; False when what follows cannot be trusted."""
        try:
            match sbus.parse(self._memory[start:end]):
                case sbus.Sub(pattern, typed):
                    with _naming(b"SUB " + pattern):
                        self._subscribe(session, pattern, typed)
                case sbus.Unsub(pattern):
                    with _naming(b"UNSUB " + pattern):
                        self._relay.router.unsubscribe(session, pattern)
                case Cmsg(key) as request:
                    with _naming(b"CMSG " + key):
                        answer = control.answer(self._relay, session, request, now)
                    self._relay.delivery.answer(session, answer)
                case sbus.Datagram(datagram):
                    self._bridge(session, datagram, start, end, now, unix_ns)
                case sbus.Pack() if session.packed:
                    raise FramingError("bad-packet", "packet: one PACK inside another")
                case sbus.Pack():
                    raise PacketError("not-agreed", "packet: PACK has to be agreed on by CMSG pack")
                case _:
                    raise PacketError("bad-packet", "packet: RECV is what the daemon sends")
        except PacketError as error:
            self._answer_error(session, error)
            return not isinstance(error, FramingError)
        return True

    def _subscribe(self, session: Session, pattern: bytes, typed: bool) -> None:
        if len(session.subscriptions) >= self._relay.limits.subscriptions:
            raise PacketError("limit", f"at most {self._relay.limits.subscriptions} patterns a client")
        if typed and not session.format_chosen and session.format is not Format.LINES:
            session.format = Format.LINES  # a person at a terminal
            self._relay.router.service_changed()
        if not session.rights.may_subscribe(pattern, session.separator):
            raise DeniedError("subscribe", "no right to all that it matches")
        missed = [
            (chan, message)
            for chan, message in self._relay.retained.matching(pattern, session.separator)
            if not self._relay.router.reaches(session, chan)
        ]
        self._relay.router.subscribe(session, pattern)
        if missed and not session.tap:
            self._hand_over_retained(session, missed)

    def _hand_over_retained(self, session: Session, messages: list[tuple[bytes, Kept]]) -> None:
        """Give a client the last values of the channels that its new pattern is the first to match."""
        match session.format:
            case Format.FULL:
                packets = [message.recv().serialize() for _, message in messages]
            case Format.LINES:
                packets = [message.msg(chan).serialize_line() for chan, message in messages]
            case Format.PLAIN:
                packets = [message.msg(chan).serialize() for chan, message in messages]
        self._relay.delivery.send(session, packets, None)

    def _bridge(
        self, session: Session, datagram: bytes, start: int, end: int, now: float, unix_ns: int
    ) -> None:
        """A datagram from elsewhere: judged like one from the segment, then relayed there as it is."""
        if not session.rights.bridge:
            raise DeniedError("bridge", "packet: no right to bridge datagrams")
        if len(datagram) > SEND_LIMIT:
            text = f"packet: {len(datagram)} bytes on the wire, at most {SEND_LIMIT}"
            raise PacketError("too-large", text)
        judged = self._segment.judge(datagram, now, lambda _: LOCAL_PEER, 0, session.rights)
        if judged == REFUSED:
            raise DeniedError("publish", "packet: no right to publish on the channel of the datagram")
        if isinstance(judged, str):
            raise PacketError("bad-datagram", f"packet: {judged}")
        self._relay.outgoing.append(datagram)
        run = Run()
        run.audience = self._relay.router.audience(judged[2])
        if run.audience.retained:
            self._relay.retained.keep(judged[2], Kept(LOCAL_PEER, unix_ns, datagram, judged[4]))
        self._segment.place(run, judged, start, end)
        if run.audience.full or self._relay.delivery.taps:
            run.full.append(Recv(LOCAL_PEER, unix_ns, b"ok", datagram).serialize())
        noted = run.audience.noted
        self._relay.delivery.hand_over(run, session)
        if noted:
            self._segment.note(judged, datagram, now)

    def _answer_error(self, session: Session, error: PacketError) -> None:
        self._relay.counters.errors += 1
        if isinstance(error, DeniedError):
            first = error.right not in session.refused
            self._relay.refusals.count(session.name, session.peer, error.right, error.text, first=first)
            session.refused.add(error.right)
        text = str(error).encode("ascii", "backslashreplace")
        self._relay.delivery.answer(session, Cmsg(b"error", text))
        if isinstance(error, FramingError):
            self._relay.delivery.close(session, "framing")


@contextmanager
def _naming(packet: bytes) -> Iterator[None]:
    """Have a refusal name the packet that it answers."""
    try:
        yield
    except PacketError as error:
        shown = packet[:80].decode("ascii", "backslashreplace")
        error.text = f"{shown}: {error.text}"
        raise
