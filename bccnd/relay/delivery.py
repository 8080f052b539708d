"""Handing messages to clients: straight through, or by way of their outboxes.

Rules
- Messages that were read together and go to the same audience form a ``Run`` and are handed over together, from
  where they lie in memory. They are copied only for a client that did not take them.
- A client with anything in its outbox gets everything through it, so that order is kept.
- A single message goes as it is; several go as one PACK to a client that agreed to it. Those that were read side by
  side in a PACK are passed on as one slice of it, whatever their number, and wait in one piece if they must. Only
  a queue that is too small for such a piece gets its messages one by one.
- Under ``block`` who publishes here to a client that takes no more is held (``Session.waits_for``) until little
  waits for it, or until it has taken nothing for ``block_seconds`` and is cut off. To hold at once, not when the
  outbox is full, spares copying what passes through it. A client with too many unread answers holds itself.
- After each call the caller acts on ``stuck`` (now has a backlog: wait for room), ``drained`` (has none any more),
  ``resumed`` (may be read from again) and ``closing`` (to be disconnected), and empties the lists.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import sub
from typing import Protocol

from bccnd.relay.outbox import ANSWERS_LIMIT, Bundle, Ledger, Outbox, Outcome, Policy
from bccnd.relay.router import Audience
from bccnd.relay.session import Session
from bccnd.relay.slow import SlowClients, Trouble
from bccnd.wire import sbus
from bccnd.wire.sbus import LENGTH, NOWHERE, PACK, Cmsg, Memory, Msg, Recv

FLUSH_PACKETS = 64  # per client and call; then the others have their turn
STALL_SECONDS = 1.0  # holding publishers is what ``block`` is for; taking nothing for so long is trouble
ANSWERS_FATAL = 4096  # unread answers after which a client is closed: it asks but never listens

LOCAL_PEER = b"local"  # in RECV, for what a client of this host sent
GONE = -1  # what a transport says of a client that is no longer there


class Transport(Protocol):
    """The way out to the clients. Less than was asked for means that the rest would block."""

    def send(self, port: int, packet: bytes, /) -> int:
        """1, 0 or GONE."""

    def send_each(self, port: int, packets: Sequence[bytes], /) -> int:
        """How many of the packets went, in order, or GONE."""

    def send_run(self, ports: Sequence[int], starts: list[int], ends: list[int], /) -> dict[int, int]:
        """The packets at these places of the memory, to every port; port -> how many went, where not all did."""


class Run:
    """Consecutive messages for one audience, as places of MSG packets in the memory.

    ``full``: the same messages as RECV packets, ``placed``: as those that tell the interface. Each is collected only
    when somebody wants it.
    """

    __slots__ = ("audience", "ends", "full", "placed", "starts")

    def __init__(self) -> None:
        self.audience: Audience | None = None
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.full: list[bytes] = []
        self.placed: list[bytes] = []

    def shown_to(self, session: Session) -> list[bytes]:
        """The RECV packets in the form that this client reads."""
        return self.placed if session.tap_interface else self.full


class Delivery:
    """``now`` is set by the caller before each call (monotonic seconds)."""

    def __init__(self, memory: Memory, transport: Transport, ledger: Ledger, *, packet_limit: int) -> None:
        self._memory = memory
        self._transport = transport
        self._packet_limit = packet_limit
        self.ledger = ledger
        self.now = 0.0
        self.delivered = 0  # handed over, with what the outboxes have dropped since
        self.slow = SlowClients()
        self.taps: list[Session] = []
        self.ports: dict[int, Session] = {}
        self.backlogged: set[Session] = set()
        self.stuck: list[Session] = []
        self.drained: list[Session] = []
        self.resumed: list[Session] = []
        self.closing: list[Session] = []

    def hand_over(self, run: Run, sender: Session | None) -> None:
        """Deliver a run and empty it. ``sender``: the local client that published it."""
        audience, starts, ends = run.audience, run.starts, run.ends
        if audience is None or not starts:
            return
        skip = None if sender is None or sender.echo else sender
        if len(starts) == 1 or not audience.packed:
            self._send_places(audience.alone, audience.alone_ports, starts, ends, sender, skip)
        else:
            self._send_places(audience.plain, audience.plain_ports, starts, ends, sender, skip)
            packs = self._packs(starts, ends)
            for session in audience.packed:
                if session is not skip:
                    self._send_packs(session, packs, len(starts), sender)
        for session in audience.full:
            if session is not skip:
                self.send(session, run.shown_to(session), sender)
        if audience.lines:
            lines = [Msg.parse(packet[4:]).serialize_line() for packet in self._copies(starts, ends)]
            for session in audience.lines:
                if session is not skip:
                    self.send(session, lines, sender)
        self.show_taps(run, sender)
        starts.clear()
        ends.clear()

    def show(
        self,
        run: Run,
        peers: Sequence[bytes],
        unix_ns: int,
        verdict: bytes,
        interface: bytes,
        datagrams: Sequence[bytes],
        *,
        full: bool,
    ) -> None:
        """Add the RECV packets of datagrams from ``peers`` to the run, in each form that somebody wants: ``full``
        says that of clients with the format, taps are known.
        """
        forms = {tap.tap_interface for tap in self.taps}
        if full or False in forms:
            run.full += _recv(peers, unix_ns, verdict, b"", datagrams)
        if True in forms:
            run.placed += _recv(peers, unix_ns, verdict, interface, datagrams)

    def show_ours(self, run: Run, unix_ns: int, datagrams: Sequence[bytes], *, full: bool) -> None:
        """The same of datagrams of this host."""
        self.show(run, [LOCAL_PEER] * len(datagrams), unix_ns, b"ok", NOWHERE, datagrams, full=full)

    def show_taps(self, run: Run, sender: Session | None) -> None:
        """Hand the RECV packets of a run to the taps."""
        for tap in self.taps:
            self.send(tap, run.shown_to(tap), sender)
        run.full.clear()
        run.placed.clear()

    def send(self, session: Session, packets: Sequence[bytes], sender: Session | None) -> None:
        """Deliver ready-made messages to one client."""
        if session.packed and len(packets) > 1:
            size = len(PACK) + LENGTH.size * len(packets) + sum(map(len, packets))
            packs: list[bytes | Bundle] = (
                [
                    Bundle(sbus.pack(packets), len(packets))
                ]  # as most are: of one batch, and none a PACK itself
                if size <= self._packet_limit
                else packed(packets, self._packet_limit)
            )
            self._send_packs(session, packs, len(packets), sender)
            return
        went = 0 if session in self.backlogged else self._transport.send_each(session.port, packets)
        self._count(session, len(packets))
        if went < len(packets):
            self._queue(session, packets, went, sender)

    def answer(self, session: Session, answer: Cmsg) -> None:
        """Answer a request of the client itself: never dropped, but it must be read."""
        packet = session.render(answer)
        if session not in self.backlogged:
            went = self._transport.send(session.port, packet)
            if went:
                if went == GONE:
                    self.close(session, "gone")
                return
            self._backlog(session)
        session.outbox.answer(packet)
        if session.outbox.answers > ANSWERS_LIMIT:
            self.hold(session, session)
        if session.outbox.answers > ANSWERS_FATAL:
            self.close(session, "its answers are not read")

    def writable(self, session: Session) -> None:
        """The client has room again: send what waits for it, a turn's worth."""
        outbox = session.outbox
        packets = outbox.next_packets(FLUSH_PACKETS)
        if session.packed and len(packets) > 1:
            packs = packed(packets, self._packet_limit)
            went = self._transport.send_each(session.port, [_packet(pack) for pack in packs])
            if went > 0:
                went = sum([pack.messages if isinstance(pack, Bundle) else 1 for pack in packs[:went]])
        else:
            went = self._transport.send_each(session.port, packets)
        if went == GONE:
            self.close(session, "gone")
            return
        if went:
            outbox.sent(went)
            session.progress = self.now
        if not outbox:
            self.backlogged.discard(session)
            self.drained.append(session)
            self.slow.catches_up(session, self.now)
        if session.holds and outbox.relaxed:
            self._release(session)

    def close(self, session: Session, reason: str) -> None:
        """Have the caller disconnect a client, which is told why if it can still hear."""
        if not session.closing:
            session.closing = reason
            self.closing.append(session)
            if session not in self.backlogged:
                self._transport.send(session.port, session.render(Cmsg(b"closing", reason.encode())))

    def adopt(self, session: Session) -> None:
        """Go on where a predecessor left off with this client."""
        if session.tap:
            self.taps.append(session)
        if session.outbox:
            self.backlogged.add(session)
            self.stuck.append(session)

    def forget(self, session: Session) -> None:
        """The client is gone: free what it held and who waited for it."""
        self.slow.leaves(session, self.now)
        session.outbox.clear()
        self.backlogged.discard(session)
        self._release(session)
        for victim in session.waits_for:
            victim.holds.discard(session)
        session.waits_for.clear()
        del self.ports[session.port]

    def cut_off_stalled(self, seconds: float) -> None:
        """Close the ``block`` clients that hold others up and have taken nothing for so long."""
        for session in self.backlogged:
            if session.holds - {session}:
                stalled = self.now - session.progress
                if stalled > seconds:
                    self.close(session, "slow")
                elif stalled >= STALL_SECONDS:
                    self.slow.stumbles(session, Trouble.HOLDS, self.now)

    # -- the ways to a client

    def _send_places(
        self,
        sessions: list[Session],
        ports: list[int],
        starts: list[int],
        ends: list[int],
        sender: Session | None,
        skip: Session | None,
    ) -> None:
        count = len(starts)
        if self.backlogged or skip:
            sessions = [session for session in sessions if session is not skip]
            behind = [session for session in sessions if session in self.backlogged]
            ports = [session.port for session in sessions if session not in self.backlogged]
        else:
            behind = []
        fell_short = self._transport.send_run(ports, starts, ends) if ports else {}
        for session in sessions:
            session.delivered += count
        self.delivered += count * len(sessions)
        if fell_short or behind:
            packets = self._copies(starts, ends)
            for session in behind:
                self._queue(session, packets, 0, sender)
            for port, went in fell_short.items():
                self._queue(self.ports[port], packets, went, sender)

    def _send_packs(
        self, session: Session, packs: Sequence[bytes | Bundle], messages: int, sender: Session | None
    ) -> None:
        """Deliver what ``packed`` made of so many messages."""
        went = 0
        if session not in self.backlogged:
            went = self._transport.send_each(session.port, [_packet(pack) for pack in packs])
        self._count(session, messages)
        if went < len(packs):
            self._queue(session, packs, went, sender)

    def _packs(self, starts: list[int], ends: list[int]) -> list[bytes | Bundle]:
        """A run of several messages for those who agreed to packing."""
        memory = self._memory
        packs: list[bytes | Bundle] = []
        alone: list[bytes] = []
        first = 0
        # In a PACK nothing but a length lies between two messages; between two packets there is always more.
        apart = [index for index, gap in enumerate(map(sub, starts[1:], ends), 1) if gap != LENGTH.size]
        for after in [*apart, len(starts)]:
            begin, end = starts[first] - LENGTH.size, ends[after - 1]
            if after - first > 1 and self._as_its_length_says(starts[after - 1], end):
                if alone:
                    packs += packed(alone, self._packet_limit)
                    alone.clear()
                packs.append(Bundle(PACK + memory[begin:end], after - first))
            else:
                alone += self._copies(starts[first:after], ends[first:after])
            first = after
        return packs + packed(alone, self._packet_limit) if alone else packs

    def _as_its_length_says(self, start: int, end: int) -> bool:
        """Whether a message in a PACK still ends where it did: the end of a typed line is taken off."""
        return bool(LENGTH.unpack_from(self._memory, start - LENGTH.size)[0] == end - start)

    # -- backlog and backpressure

    def _queue(
        self, session: Session, entries: Sequence[bytes | Bundle], went: int, sender: Session | None
    ) -> None:
        """Queue what the client did not take."""
        if went == GONE:
            self.close(session, "gone")
            return
        outbox = session.outbox
        dropped_before = outbox.dropped
        entries = entries[went:]
        packets = [entry for entry in entries if not isinstance(entry, Bundle)]
        if len(packets) < len(entries) or not outbox.put_run(packets):
            for each in self._holdable(entries, outbox):
                if outbox.put(each, publisher_waits=sender is not None) is Outcome.OVERFLOW:
                    self.close(session, "slow")
                    return
        self._backlog(session)
        if outbox.dropped > dropped_before:
            self.slow.stumbles(session, Trouble.LOSES, self.now, outbox.dropped - dropped_before)
        if sender is not None and outbox.policy is Policy.BLOCK:
            self.hold(sender, session)

    def _holdable(self, entries: Iterable[bytes | Bundle], outbox: Outbox) -> Iterator[bytes | Bundle]:
        """The same, with what is too long for the queue taken apart."""
        for entry in entries:
            if isinstance(entry, Bundle) and not outbox.can_hold(entry):
                yield from sbus.Pack.parse(entry.packet[len(PACK) :]).packets
            else:
                yield entry

    def _backlog(self, session: Session) -> None:
        if session not in self.backlogged:
            self.backlogged.add(session)
            self.stuck.append(session)
            session.progress = self.now

    def hold(self, publisher: Session, session: Session) -> None:
        """Let ``publisher`` wait until ``session`` has taken what it has."""
        publisher.waits_for.add(session)
        session.holds.add(publisher)

    def release_unless_blocking(self, session: Session) -> None:
        """The client's policy may have changed: nobody has to wait for it any more if it is not ``block``."""
        if session.outbox.policy is not Policy.BLOCK and session.holds - {session}:
            self._release(session)

    def _release(self, session: Session) -> None:
        for publisher in session.holds:
            publisher.waits_for.discard(session)
            if not publisher.waits_for:
                self.resumed.append(publisher)
        session.holds.clear()

    def _copies(self, starts: list[int], ends: list[int]) -> list[bytes]:
        memory = self._memory
        return [memory[start:end] for start, end in zip(starts, ends, strict=True)]

    def _count(self, session: Session, messages: int) -> None:
        session.delivered += messages
        self.delivered += messages


def packed(packets: Iterable[bytes], limit: int) -> list[bytes | Bundle]:
    """The same in as few packets of at most ``limit`` bytes as can be. PACKs among them stay as they are."""
    packs: list[bytes | Bundle] = []
    group: list[bytes] = []
    size = len(PACK)

    def close_group() -> None:
        if group:
            packs.append(Bundle(sbus.pack(group), len(group)) if len(group) > 1 else group[0])

    for packet in packets:
        already = packet.startswith(PACK)
        if already or size + LENGTH.size + len(packet) > limit:
            close_group()
            group, size = [], len(PACK)
        if already:
            packs.append(packet)
        else:
            group.append(packet)
            size += LENGTH.size + len(packet)
    close_group()
    return packs


def _recv(
    peers: Sequence[bytes], unix_ns: int, verdict: bytes, interface: bytes, datagrams: Sequence[bytes]
) -> list[bytes]:
    """Most have the head of the one before."""
    packets = []
    last, head = None, b""
    for peer, datagram in zip(peers, datagrams, strict=True):
        if peer != last:
            last, head = peer, Recv(peer, unix_ns, verdict, b"", interface).head
        packets.append(head + datagram)
    return packets


def _packet(entry: bytes | Bundle) -> bytes:
    return entry.packet if isinstance(entry, Bundle) else entry
