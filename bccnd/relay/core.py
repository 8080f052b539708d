"""The relay: packets of local clients and datagrams of the segment in, deliveries and datagrams out.

Pure decisions: what was read lies in ``memory`` and is given as offsets, time is given, and what leaves goes through
``Delivery`` (to clients) or into ``outgoing`` (to the segment; the caller takes it after each call).

Rules
- A datagram is judged in this order: envelope, integrity, body, own or foreign, duplicate, local channel. Only then
  is it matched. What is dropped is counted by reason and shown to taps only.
- A publish on a channel that is not local takes the next sequence number of its source. Local channels count apart,
  or the other hosts would take their numbers for losses.
- What is retained is handed over as soon as the pattern it matches is in force, and before anything newer.
- The hot paths, ``from_client`` and ``from_segment``, make no object per message but the datagram itself.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bccnd.errors import DeniedError, FramingError, PacketError, WireError
from bccnd.relay import control
from bccnd.relay.dedup import JUMP, Sources, Verdict
from bccnd.relay.delivery import Delivery, Run, Transport
from bccnd.relay.identity import Names, Peer
from bccnd.relay.outbox import Ledger, Outbox, Policy
from bccnd.relay.retained import Kept, Retained
from bccnd.relay.rights import AccessList, Refusals, Rights, unrestricted
from bccnd.relay.router import Audience, Router
from bccnd.relay.session import Format, Session
from bccnd.wire import sbus
from bccnd.wire.bccn1 import CHAN_LIMIT, SEND_LIMIT, SEQ_LIMIT, UNKNOWN_SRC, Integrity, Opened, valid_chan
from bccnd.wire.sbus import PACK, Cmsg, Memory, Recv

LOCAL_PEER = b"local"  # in RECV, for what a client of this host sent
REVOCATIONS_TOLD = 1000  # to one client at once: a client with too many unread answers would be closed
REFUSED = "refused"  # of a bridged datagram: its channel is not for this bridge


@dataclass(frozen=True, slots=True)
class Limits:
    """What may grow, and how far (settings ``queue``, ``limits``, ``retain`` and ``dedup``)."""

    clients: int = 4096
    subscriptions: int = 1024  # per client
    local_payload: int = 65536  # bytes, on channels that do not leave the host
    channels_cached: int = 65536
    queue_packets: int = 10_000  # per client
    queue_bytes: int = 8 << 20  # per client
    queue_max_packets: int = 100_000  # what a client may ask for
    queue_max_bytes: int = 64 << 20
    queue_total: int = 256 << 20  # bytes, all clients together
    queue_policy: Policy = Policy.DROP_OLDEST
    block_seconds: float = 5.0
    retain_channels: int = 4096
    retain_bytes: int = 4 << 20
    sanity: int = 1000
    sources: int = 65536
    source_seconds: float = 86400.0
    reorder: int = 0
    drop_replays: bool = False
    unknown: str = "deliver"  # what is done with src "?": deliver, by-address, drop


@dataclass(slots=True)
class Counters:
    """Since the start; messages, not calls."""

    published: int = 0  # taken from local clients
    received: int = 0  # datagrams from the segment
    accepted: int = 0  # of those, sound and new
    unwanted: int = 0  # of those, matching nobody here
    errors: int = 0  # packets of clients that were answered with an error
    sent: int = 0  # datagrams to the segment
    unsent: int = 0  # of ``outgoing``, what the network did not take


class Relay:
    """``memory``: where everything that is read lies; ``about``: what ``status`` says of the daemon around it."""

    def __init__(
        self,
        memory: Memory,
        transport: Transport,
        integrity: Integrity,
        *,
        host: bytes,
        local: Sequence[bytes] = (b"local/>",),
        retain: Sequence[bytes] = (),
        limits: Limits | None = None,
        access: AccessList | None = None,
        about: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.memory = memory
        self.integrity = integrity
        self.limits = limits = limits or Limits()
        self.access = access or AccessList(unrestricted([0]))
        self.about = about
        self.packet_limit = self.packet_limit_for(limits)
        self.names: Names[Session] = Names(host)
        self.retained = Retained(retain, channels=limits.retain_channels, size=limits.retain_bytes)
        self.router = Router(
            self.names, local, cache_limit=limits.channels_cached, retained=self.retained.wants
        )
        self.sources = Sources(**_source_rules(limits))
        self.delivery = Delivery(
            memory, transport, Ledger(limits.queue_total), packet_limit=self.packet_limit
        )
        self.counters = Counters()
        self.rejected: Counter[str] = Counter()
        self.refusals = Refusals()
        self.sessions: dict[int, Session] = {}
        self.outgoing: list[bytes] = []
        self.last_number = 0

    @staticmethod
    def packet_limit_for(limits: Limits) -> int:
        """The longest packet that a client may send or is sent, a PACK included."""
        return len(b"MSG ") + CHAN_LIMIT + 1 + limits.local_payload

    def reconfigure(
        self,
        *,
        integrity: Integrity,
        local: Sequence[bytes],
        retain: Sequence[bytes],
        limits: Limits,
        access: AccessList,
    ) -> None:
        """Other keys, rights, channels and limits from now on; ``local_payload`` stays, memory is laid out for it.

        Nobody is disconnected: limits on clients and subscriptions hold for new ones. A client keeps the queue that
        it asked for, within the new maxima; for who asked for none the new defaults hold.
        """
        self.integrity = integrity
        self.limits = limits
        self.delivery.ledger.limit = limits.queue_total
        self.retained.limit(retain, channels=limits.retain_channels, size=limits.retain_bytes)
        self.router.reconfigure(local, cache_limit=limits.channels_cached)
        self.sources.configure(**_source_rules(limits))
        for session in self.sessions.values():
            self.size_queue(session)
        self.set_access(access)

    def size_queue(self, session: Session) -> None:
        """What the client asked for, within the maxima, and the defaults where it did not."""
        asked, limits, outbox = session.queue_asked, self.limits, session.outbox
        outbox.max_packets = min(asked.get("packets", limits.queue_packets), limits.queue_max_packets)
        outbox.max_size = min(asked.get("bytes", limits.queue_bytes), limits.queue_max_bytes)
        outbox.policy = Policy(asked.get("policy", limits.queue_policy))
        self.delivery.release_unless_blocking(session)

    # -- clients come and go

    def connect(self, port: int, peer: Peer, *, now: float, unix_us: int) -> Session | None:
        """A new client, or None when there are too many."""
        if len(self.sessions) >= self.limits.clients:
            return None
        self.last_number += 1
        session = self.admit(self.last_number, port, peer, now=now)
        session.name = self.names.assign(peer, session)
        self._begin_numbers(session, unix_us)
        return session

    def admit(self, number: int, port: int, peer: Peer, *, now: float) -> Session:
        """A session without a name yet."""
        session = Session(number, port, peer, rights=self.access.rights_of(peer), now=now)
        session.outbox = Outbox(
            self.delivery.ledger,
            session.lost_notice,
            max_packets=self.limits.queue_packets,
            max_size=self.limits.queue_bytes,
            policy=self.limits.queue_policy,
        )
        self.sessions[number] = session
        self.delivery.ports[port] = session
        return session

    def disconnect(self, session: Session, now: float) -> None:
        """Forget a client; what waited for it is dropped."""
        self._remember(session, now)
        self.names.release(session.name, session.seq)
        self.set_tap(session, False)
        self.router.leave(session)
        self.delivery.forget(session)
        del self.sessions[session.number]

    def rename(self, session: Session, name: bytes, now: float) -> None:
        """Give the client another src; its numbers go forward (``bccn.txt``, "Fork handling", pattern B)."""
        old = session.name
        self.names.rename(old, name, session.peer, session.rights.may_be_named(name), session.seq)
        if name != old:
            self._remember(session, now)
            session.name = name
            self._begin_numbers(session, session.seq)
            self.router.names_changed()

    def _begin_numbers(self, session: Session, wanted: int) -> None:
        """Go on behind what was heard under the name, or a jump behind another host that had it before.

        Those who hear it then neither drop it as old nor take what lies between for losses.
        """
        first = self.names.first_seq(wanted)
        known = self.sources.get(session.name)
        if known and first <= known.last + JUMP < SEQ_LIMIT // 2:  # a forged number must not use ours up
            first = known.last + (1 if known.last in known.ours else JUMP + 1)
        session.seq = session.first_seq = first

    @property
    def next_seq(self) -> int:
        """No number from here on has been used by anybody here."""
        return max([self.names.first_seq(0), *(session.seq for session in self.sessions.values())])

    def _remember(self, session: Session, now: float) -> None:
        """What the client has sent under the name that it gives up may still come back from the segment."""
        if session.seq > session.first_seq:
            self.sources.remember(session.name, range(session.first_seq, session.seq), now)

    def set_access(self, access: AccessList) -> None:
        """Decide anew what each client may do. It is told what it loses, ``CMSG revoked NUL <packet>``.

        The name that it has taken it keeps until it takes another.
        """
        self.access = access
        for session in list(self.sessions.values()):
            session.rights = rights = access.rights_of(session.peer)
            session.refused.clear()
            lost = [key for key in session.subscriptions if not rights.may_subscribe(key[1], key[0])]
            for key in lost:
                self.router.revoke(session, key)
            revoked = [b"SUB " + pattern for _, pattern in lost]
            if session.listening and not rights.may_listen:
                self.router.deafen(session)
                revoked.append(b"CMSG listen")
            if session.tap and not rights.tap:
                self.set_tap(session, False)
                revoked.append(b"CMSG tap")
            if len(revoked) > REVOCATIONS_TOLD:
                revoked[REVOCATIONS_TOLD:] = [b"and %d more" % (len(revoked) - REVOCATIONS_TOLD)]
            for packet in revoked:
                self.delivery.answer(session, Cmsg(b"revoked", packet))

    def set_tap(self, session: Session, on: bool) -> None:
        if session.tap is not on:
            session.tap = on
            self.delivery.taps = [tap for tap in self.sessions.values() if tap.tap]
            self.router.service_changed()

    def tick(self, now: float) -> None:
        """To be called about once a second."""
        self.delivery.now = now
        self.delivery.cut_off_stalled(self.limits.block_seconds)
        self.sources.expire(now)

    # -- from the local bus

    def from_client(
        self, session: Session, starts: list[int], ends: list[int], now: float, unix_ns: int
    ) -> None:
        """Packets of one client, read with one call, as places in the memory."""
        self.delivery.now = now
        broken = None
        if session.packed:
            starts, ends, broken = self._unpacked(starts, ends)
        memory, delivery = self.memory, self.delivery
        run = Run()
        published_before = session.published
        head: bytes | None = None  # b"MSG <chan> NUL" of the packet before
        width = longest = 0
        shown = encoded = False
        for start, end in zip(starts, ends, strict=True):
            if memory[start : start + width] != head or not width <= end - start <= longest:
                try:
                    width, end = self._header(session, start, end)
                    if not width:
                        head = None
                        delivery.hand_over(run, session)
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
        delivery.hand_over(run, session)
        self.counters.published += session.published - published_before
        if broken:
            self._answer_error(session, broken)

    def _unpacked(
        self, starts: list[int], ends: list[int]
    ) -> tuple[list[int], list[int], FramingError | None]:
        """The same packets with every PACK taken apart, up to the first that is broken."""
        flat_starts: list[int] = []
        flat_ends: list[int] = []
        for start, end in zip(starts, ends, strict=True):
            if self.memory[start : start + len(PACK)] == PACK and end - start >= len(PACK):
                try:
                    sbus.unpack(self.memory, start, end, flat_starts, flat_ends)
                except FramingError as error:
                    return flat_starts, flat_ends, error
            else:
                flat_starts.append(start)
                flat_ends.append(end)
        return flat_starts, flat_ends, None

    def _header(self, session: Session, start: int, end: int) -> tuple[int, int]:
        """How long ``MSG <chan> NUL`` is, 0 for another packet; and where the packet ends."""
        memory = self.memory
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
        if not valid_chan(chan):
            shown = chan[:64].decode("ascii", "backslashreplace")
            raise PacketError(
                "bad-channel", f"MSG {shown}: 1 to {CHAN_LIMIT} ASCII characters, no white space, ':', '|'"
            )
        if not session.rights.may_publish(chan):
            raise DeniedError("publish", f"MSG {chan.decode()}: no right to publish there")
        audience = self.router.audience(chan)
        header = len(b"MSG ") + len(chan) + 1
        if audience.local:
            around, limit, unit = 0, self.limits.local_payload, "bytes of payload"
        else:
            around = self.integrity.overhead + len(b"%b:%d:%b|" % (session.name, session.seq, chan))
            limit, unit = SEND_LIMIT, "bytes on the wire"
        payload = size - header
        if payload + around > limit:
            raise PacketError("too-large", f"MSG {chan.decode()}: {payload + around} {unit}, at most {limit}")
        return audience, header + limit - around

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
            datagram = self.integrity.seal(body)
            self.outgoing.append(datagram)
        if audience.retained:
            self.retained.keep(chan, Kept(LOCAL_PEER, unix_ns, datagram, len(datagram) - len(payload)))
        return datagram

    def _other(self, session: Session, start: int, end: int, now: float, unix_ns: int) -> bool:
        """Anything but MSG; False when what follows cannot be trusted."""
        try:
            match sbus.parse(self.memory[start:end]):
                case sbus.Sub(pattern, typed):
                    with _naming(b"SUB " + pattern):
                        self._subscribe(session, pattern, typed)
                case sbus.Unsub(pattern):
                    with _naming(b"UNSUB " + pattern):
                        self.router.unsubscribe(session, pattern)
                case Cmsg(key) as request:
                    with _naming(b"CMSG " + key):
                        answer = control.answer(self, session, request, now)
                    self.delivery.answer(session, answer)
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
        if len(session.subscriptions) >= self.limits.subscriptions:
            raise PacketError("limit", f"at most {self.limits.subscriptions} patterns a client")
        if typed and not session.format_chosen and session.format is not Format.LINES:
            session.format = Format.LINES  # a person at a terminal
            self.router.service_changed()
        if not session.rights.may_subscribe(pattern, session.separator):
            raise DeniedError("subscribe", "no right to all that it matches")
        missed = [
            (chan, message)
            for chan, message in self.retained.matching(pattern, session.separator)
            if not self.router.reaches(session, chan)
        ]
        self.router.subscribe(session, pattern)
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
        self.delivery.send(session, packets, None)

    def _bridge(
        self, session: Session, datagram: bytes, start: int, end: int, now: float, unix_ns: int
    ) -> None:
        """A datagram from elsewhere: judged like one from the segment, then relayed there as it is."""
        if not session.rights.bridge:
            raise DeniedError("bridge", "packet: no right to bridge datagrams")
        if len(datagram) > SEND_LIMIT:
            text = f"packet: {len(datagram)} bytes on the wire, at most {SEND_LIMIT}"
            raise PacketError("too-large", text)
        judged = self._judge(datagram, now, lambda _: LOCAL_PEER, 0, session.rights)
        if judged == REFUSED:
            raise DeniedError("publish", "packet: no right to publish on the channel of the datagram")
        if isinstance(judged, str):
            raise PacketError("bad-datagram", f"packet: {judged}")
        self.outgoing.append(datagram)
        run = Run()
        run.audience = self.router.audience(judged[2])
        if run.audience.retained:
            self.retained.keep(judged[2], Kept(LOCAL_PEER, unix_ns, datagram, judged[4]))
        self._place(run, judged, start, end)
        if run.audience.full or self.delivery.taps:
            run.full.append(Recv(LOCAL_PEER, unix_ns, b"ok", datagram).serialize())
        self.delivery.hand_over(run, session)

    def _answer_error(self, session: Session, error: PacketError) -> None:
        self.counters.errors += 1
        if isinstance(error, DeniedError):
            first = error.right not in session.refused
            self.refusals.count(session.name, session.peer, error.right, error.text, first=first)
            session.refused.add(error.right)
        text = str(error).encode("ascii", "backslashreplace")
        self.delivery.answer(session, Cmsg(b"error", text))
        if isinstance(error, FramingError):
            self.delivery.close(session, "framing")

    # -- from the segment

    def from_segment(
        self, starts: list[int], ends: list[int], peer: Callable[[int], bytes], now: float, unix_ns: int
    ) -> None:
        """Datagrams read with one call, as places in the memory; ``peer(i)`` is ``ip:port`` of the i-th."""
        memory, delivery = self.memory, self.delivery
        delivery.now = now
        run = Run()
        kept = False
        self.counters.received += len(starts)
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            datagram = memory[start:end]
            judged = self._judge(datagram, now, peer, index)
            if isinstance(judged, str):
                self.rejected[judged] += 1
                if delivery.taps:
                    delivery.hand_over(run, None)
                    self._show(Recv(peer(index), unix_ns, judged.encode(), datagram))
                continue
            self.counters.accepted += 1
            audience = self.router.audience(judged[2])
            if audience is not run.audience:
                delivery.hand_over(run, None)
                run.audience = audience
                kept = audience.retained
            if kept:
                self.retained.keep(judged[2], Kept(peer(index), unix_ns, datagram, judged[4]))
            if not audience.size and not delivery.taps:
                self.counters.unwanted += 1
                continue
            self._place(run, judged, start, end)
            if audience.full or delivery.taps:
                run.full.append(Recv(peer(index), unix_ns, b"ok", datagram).serialize())
        delivery.hand_over(run, None)

    def _judge(
        self,
        datagram: bytes,
        now: float,
        peer: Callable[[int], bytes],
        index: int,
        bridge: Rights | None = None,
    ) -> Opened | str:
        """The fields of a datagram that is to be delivered, or why it is not. ``bridge``: of who brought it."""
        try:
            opened = self.integrity.open(datagram)
        except WireError as error:
            return error.reason
        src, seq, chan = opened[:3]
        if bridge is not None and not bridge.may_publish(chan):
            return REFUSED  # before it leaves a trace in the table of sources
        holder = self.names.get(src)
        if holder is not None:
            return "own" if seq < holder.seq else "conflict"
        if src == UNKNOWN_SRC and self.limits.unknown != "by-address":
            if self.limits.unknown == "drop":
                return "unknown-source"
        else:
            key = src if src != UNKNOWN_SRC else b"? " + peer(index).rpartition(b":")[0]
            verdict = self.sources.observe(key, seq, now)
            if verdict is not Verdict.ACCEPTED:
                if verdict is not Verdict.NEW and verdict is not Verdict.RESTARTED:
                    return verdict.value
                self.sources.place(key, peer(index))
        if self.router.audience(chan).local:
            return "local-channel"
        return opened

    def _place(self, run: Run, opened: Opened, start: int, end: int) -> None:
        """Make the datagram in the memory a MSG packet, where its channel and payload already lie."""
        _, _, _, chan_at, payload_at = opened
        memory = self.memory
        first = start + chan_at - 4  # what stands before a channel is never shorter
        memory[first : first + 4] = b"MSG "
        memory[start + payload_at - 1 : start + payload_at] = b"\0"
        run.starts.append(first)
        run.ends.append(end)

    def _show(self, packet: Recv) -> None:
        for tap in self.delivery.taps:
            self.delivery.send(tap, [packet.serialize()], None)


def _source_rules(limits: Limits) -> dict[str, Any]:
    return {
        "sanity": limits.sanity,
        "limit": limits.sources,
        "seconds": limits.source_seconds,
        "reorder": limits.reorder,
        "drop_replays": limits.drop_replays,
    }


@contextmanager
def _naming(packet: bytes) -> Iterator[None]:
    """Have a refusal name the packet that it answers."""
    try:
        yield
    except PacketError as error:
        shown = packet[:80].decode("ascii", "backslashreplace")
        error.text = f"{shown}: {error.text}"
        raise
