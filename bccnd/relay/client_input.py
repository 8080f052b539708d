"""What comes from the local bus: packets of one client at a time, as places in the memory they were read into.

Rules
- A publish on a channel that is not local takes the next sequence number of its source. Local channels count apart,
  or the other hosts would take their numbers for losses.
- Consecutive messages to one audience are a run: delivered together, numbered and sealed together. Only the first on
  each channel is looked up, and asked for rights. What comes between messages (SUB, CMSG, ...) sees everything before
  it done.
- What is retained is handed over as soon as the pattern it matches is in force, and before anything newer.
- A wrong packet is answered and counted, and costs nothing else; only a broken framing closes the client.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bccnd.errors import DeniedError, FramingError, PacketError, WireError
from bccnd.relay import control
from bccnd.relay.delivery import LOCAL_PEER, Run
from bccnd.relay.retained import Kept
from bccnd.relay.router import HEARTBEATS, NOTICES, Audience
from bccnd.relay.segment_input import Batch, SegmentInput
from bccnd.relay.session import Format, Session
from bccnd.wire import sbus
from bccnd.wire.bccn1 import CHAN_LIMIT, SEND_LIMIT, Integrity, valid_chan
from bccnd.wire.native import alike, codec_of, unpack
from bccnd.wire.sbus import PACK, Cmsg, Msg

if TYPE_CHECKING:
    from bccnd.relay.core import Relay

Places = tuple[list[int], list[int]]  # starts, ends


class ClientInput:
    """``segment``: judges what a bridge brings as if it came from there."""

    def __init__(self, relay: "Relay", segment: SegmentInput) -> None:
        self._relay = relay
        self._memory = relay.memory
        self._segment = segment
        self._unsigned = codec_of(Integrity())  # for what never leaves the host

    def read(self, session: Session, starts: list[int], ends: list[int], now: float, unix_ns: int) -> None:
        """Packets of one client, read with one call, as places in the memory."""
        broken = None
        unpacking = session.packed
        if unpacking:
            starts, ends, broken = self._unpacked(starts, ends)
        run, places = Run(), (starts, ends)
        index, count = 0, len(starts)
        while index < count:
            try:
                width, end = self._header(session, starts[index], ends[index])
                if width:
                    ends[index] = end  # without the end of a typed line
                    after = self._publish(session, run, places, index, width, now, unix_ns)
                else:
                    self._hand_over(session, run, now, unix_ns)
                    if session.packed and not unpacking:  # agreed to among these very packets
                        self.read(session, starts[index:], ends[index:], now, unix_ns)
                        return
                    after = index + 1
                    if not self._other(session, starts[index], end, now, unix_ns):
                        return
            except PacketError as error:
                self._hand_over(session, run, now, unix_ns)
                self._answer_error(session, error)
                after = index + 1
            index = after
        self._hand_over(session, run, now, unix_ns)
        if broken:
            self._answer_error(session, broken)

    def _publish(
        self, session: Session, run: Run, places: Places, index: int, width: int, now: float, unix_ns: int
    ) -> int:
        """Add a MSG packet, and those that follow it to the same audience, to the run; the index of the next."""
        starts, ends = places
        router, memory = self._relay.router, self._memory
        chan = memory[starts[index] + 4 : starts[index] + width - 1]
        audience, longest = self._publishable(session, chan, width, ends[index] - starts[index])
        if audience is not run.audience:
            self._hand_over(session, run, now, unix_ns)
            run.audience = audience
        after = index + 1
        if after == len(starts):  # alone: the shortest way
            run.starts.append(starts[index])
            run.ends.append(ends[index])
            session.published += 1
            return after
        routes = router.routes if audience.open and session.rights.publish_all else {chan: audience}
        after = alike(memory, places, index + 1, routes, audience, longest)
        run.starts += starts[index:after]
        run.ends += ends[index:after]
        session.published += after - index
        return after

    def _hand_over(self, session: Session, run: Run, now: float, unix_ns: int) -> None:
        """Deliver a run, and send it, keep it and answer it where that is wanted."""
        audience = run.audience
        if audience is None or not run.starts:
            return
        delivery = self._relay.delivery
        noted = self._copies(run) if audience.noted else []
        shown = bool(audience.full or delivery.taps)
        if shown or audience.retained or not audience.local:
            datagrams = self._encode(session, run, local=audience.local)
            if shown:
                delivery.show_ours(run, unix_ns, datagrams, full=bool(audience.full))
            if audience.retained:
                self._keep(run, datagrams, unix_ns)
        delivery.hand_over(run, session)
        for packet in noted:
            message = Msg.parse(packet[4:])
            if not message.chan.startswith(HEARTBEATS):
                self._relay.answers.request(session.name, message.chan, message.payload, now)

    def _encode(self, session: Session, run: Run, *, local: bool) -> list[bytes]:
        """The datagrams of a run; they go to the segment, unless its channels are local."""
        if local:
            seq, session.local_seq = session.local_seq, session.local_seq + len(run.starts)
            return self._unsigned.seal(session.name, seq, self._memory, run.starts, run.ends)
        seq, session.seq = session.seq, session.seq + len(run.starts)
        datagrams = self._relay.codec.seal(session.name, seq, self._memory, run.starts, run.ends)
        self._relay.outgoing += datagrams
        return datagrams

    def _copies(self, run: Run) -> list[bytes]:
        return [self._memory[start:end] for start, end in zip(run.starts, run.ends, strict=True)]

    def _keep(self, run: Run, datagrams: list[bytes], unix_ns: int) -> None:
        for start, end, datagram in zip(run.starts, run.ends, datagrams, strict=True):
            nul = self._memory.find(b"\0", start, end)
            kept = Kept(LOCAL_PEER, unix_ns, datagram, len(datagram) - (end - nul - 1))
            self._relay.retained.keep(self._memory[start + 4 : nul], kept)

    def _unpacked(
        self, starts: list[int], ends: list[int]
    ) -> tuple[list[int], list[int], FramingError | None]:
        """The same packets with every PACK taken apart, up to the first that is broken."""
        flat_starts: list[int] = []
        flat_ends: list[int] = []
        for start, end in zip(starts, ends, strict=True):
            if self._memory[start : start + len(PACK)] == PACK and end - start >= len(PACK):
                inside = unpack(self._memory, start, end)
                if inside is None:
                    text = "packet: PACK with a length that reaches beyond it"
                    return flat_starts, flat_ends, FramingError("bad-packet", text)
                flat_starts += inside[0]
                flat_ends += inside[1]
            else:
                flat_starts.append(start)
                flat_ends.append(end)
        return flat_starts, flat_ends, None

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
    ) -> tuple[Audience, tuple[int, int]]:
        """The audience of ``chan``, and how long a MSG packet to it, and its payload, may be.

        ``width``, ``size``: of ``MSG <chan> NUL``, and of the whole packet.
        """
        relay = self._relay
        audience = relay.router.routes.get(chan)
        if audience is None or not (audience.open and session.rights.publish_all):
            audience = self._permitted(session, chan)
        if audience.local:
            limit = relay.limits.local_payload
            if size - width > limit:
                text = f"MSG {chan.decode()}: {size - width} bytes of payload, at most {limit}"
                raise PacketError("too-large", text)
            return audience, (relay.packet_limit, limit)
        # Beside the envelope and "<src>:<seq>:" a datagram has as many bytes as the packet but for "MSG ".
        around = relay.integrity.overhead + len(b"%b:%d:" % (session.name, session.seq)) - len(b"MSG ")
        if size + around > SEND_LIMIT:
            text = f"MSG {chan.decode()}: {size + around} bytes on the wire, at most {SEND_LIMIT}"
            raise PacketError("too-large", text)
        return audience, (SEND_LIMIT - around, SEND_LIMIT)

    def _permitted(self, session: Session, chan: bytes) -> Audience:
        """The audience of ``chan``, which may be none, and not the client's to publish on."""
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
        return audience or self._relay.router.audience(chan)

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
        try:
            opened = self._relay.integrity.open(datagram)
        except WireError as error:
            raise PacketError("bad-datagram", f"packet: {error.verdict}") from None
        src, seq, chan, _, payload_at = opened
        if not session.rights.may_publish(chan):  # before it leaves a trace in the table of sources
            raise DeniedError("publish", "packet: no right to publish on the channel of the datagram")
        batch = Batch([start], [end], lambda _: LOCAL_PEER, now, unix_ns)
        reason, _ = self._segment.judge(src, seq, chan, 1, batch, 0)
        if reason:
            raise PacketError("bad-datagram", f"packet: {reason}")
        self._relay.outgoing.append(datagram)
        run = Run()
        run.audience = audience = self._relay.router.audience(chan)
        if audience.retained:
            self._relay.retained.keep(chan, Kept(LOCAL_PEER, unix_ns, datagram, payload_at))
        run.starts, run.ends = [self._segment.place(opened, start)], [end]
        if audience.full or self._relay.delivery.taps:
            self._relay.delivery.show_ours(run, unix_ns, [datagram], full=bool(audience.full))
        self._relay.delivery.hand_over(run, session)
        if audience.noted:
            self._segment.note(src, chan, datagram[payload_at:], now)

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
