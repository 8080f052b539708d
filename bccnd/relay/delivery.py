"""Delivers messages to clients: straight to their sockets, or through their outboxes.

Rules
- A group of messages goes to its subscribers from where it lies in the memory. Messages are copied only for a client
  that did not take them.
- A client with anything in its outbox gets everything through it, so that order is kept.
- A single message goes as it is; several go as one PACK to a client that agreed to it. Messages that were read side
  by side in a PACK are passed on as one slice of it, whatever their number, and wait in one piece if they must. Only
  a queue that is too small for such a piece gets its messages one by one.
- Under ``block`` a local publisher is held (``Session.waits_for``) as soon as the client takes no more. It is
  released when little waits for the client, or when the client is closed because it took nothing for
  ``block_seconds``. Holding at once, rather than at a full outbox, saves copies. A client with too many unread
  answers holds itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import sub
from typing import Protocol

from bccnd.relay.deadlines import Alarm, Deadlines
from bccnd.relay.effects import Effects, as_bytes
from bccnd.relay.options import Policy
from bccnd.relay.outbox import ANSWERS_LIMIT, CountedPack, Ledger, Outbox, Outcome
from bccnd.relay.router import Route
from bccnd.relay.session import Session
from bccnd.relay.slow import SlowClients, Trouble
from bccnd.wire import sbus
from bccnd.wire.sbus import LENGTH, PACK, Cmsg, Memory, Msg

# Per client and call; then the others have their turn.
FLUSH_PACKETS = 64
# ``block`` is meant to hold publishers; a client that takes nothing for so long is in trouble.
STALL_SECONDS = 1.0
# Unread answers after which a client is closed: it asks but never listens.
ANSWERS_FATAL = 4096
# What a transport answers for a client that is no longer there.
GONE = -1


class Transport(Protocol):
    """Sends to clients. A result below what was asked means that the rest would block."""

    def send(self, port: int, packet: bytes, /) -> int:
        """Returns 1 if the packet went, 0 if it would block, or GONE."""

    def send_each(self, port: int, packets: Sequence[bytes], /) -> int:
        """How many of the packets went, in order, or GONE."""

    def send_group(self, ports: Sequence[int], starts: list[int], ends: list[int], /) -> dict[int, int]:
        """The packets at these spans of the memory, to every port; port -> how many went, where not all did."""


class Group:
    """Consecutive messages with one route and one sender, as spans of MSG packets in the memory.

    ``full``: the same messages as RECV packets, ``placed``: as RECV packets with the interface. Each is made only
    when somebody wants it.
    """

    __slots__ = ("ends", "full", "placed", "route", "sender", "starts")

    def __init__(self) -> None:
        self.route: Route | None = None
        self.sender: Session | None = None
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.full: list[bytes] = []
        self.placed: list[bytes] = []

    def shown_to(self, session: Session) -> list[bytes]:
        """The RECV packets in the form that this client reads."""
        return self.placed if session.tap_interface else self.full


@dataclass(eq=False)
class Delivery:
    """``ports``: the session behind each port; ``packet_limit``: the longest packet a client is sent."""

    _memory: Memory
    _transport: Transport
    _ledger: Ledger
    _effects: Effects
    _ports: Mapping[int, Session]
    _alarm: Alarm
    _packet_limit: int

    def __post_init__(self) -> None:
        self._stalls: Deadlines[Session] = Deadlines(self._alarm)  # of clients that hold publishers
        self.slow = SlowClients()
        self.backlogged: set[Session] = set()

    def hand_over(self, group: Group, now: float) -> None:
        """Deliver a group to the subscribers of its route. The RECV packets stay, for taps."""
        route, starts, ends, sender = group.route, group.starts, group.ends, group.sender
        if route is None or not route.size:
            return
        skip = None if sender is None or sender.echo else sender
        if len(starts) == 1 or not route.packed:
            self._send_spans(route.single, route.single_ports, group, skip, now)
        else:
            self._send_spans(route.plain, route.plain_ports, group, skip, now)
            packs = self._packs(starts, ends)
            for session in route.packed:
                if session is not skip:
                    self._send_packs(session, packs, len(starts), sender, now)
        for session in route.full:
            if session is not skip:
                self.send(session, group.shown_to(session), sender, now)
        if route.lines:
            lines = [
                Msg.parse(packet[4:]).serialize_line() for packet in as_bytes(self._memory, starts, ends)
            ]
            for session in route.lines:
                if session is not skip:
                    self.send(session, lines, sender, now)

    def send(self, session: Session, packets: Sequence[bytes], sender: Session | None, now: float) -> None:
        """Deliver ready-made messages to one client."""
        if session.packed and len(packets) > 1:
            size = len(PACK) + LENGTH.size * len(packets) + sum(map(len, packets))
            # Most are of one batch, and none is a PACK itself.
            packs: list[bytes | CountedPack] = (
                [CountedPack(sbus.pack(packets), len(packets))]
                if size <= self._packet_limit
                else packed(packets, self._packet_limit)
            )
            self._send_packs(session, packs, len(packets), sender, now)
            return
        went = 0 if session in self.backlogged else self._transport.send_each(session.port, packets)
        self._count(session, len(packets))
        if went < len(packets):
            self._queue(session, packets, went, sender, now)

    def answer(self, session: Session, answer: Cmsg, now: float) -> None:
        """Answer a request of the client itself: never dropped, but it must be read."""
        packet = session.render(answer)
        if session not in self.backlogged:
            went = self._transport.send(session.port, packet)
            if went:
                if went == GONE:
                    self.close(session, "gone")
                return
            self._backlog(session, now)
        session.outbox.answer(packet)
        if session.outbox.answers > ANSWERS_LIMIT:
            self.hold(session, session, now)
        if session.outbox.answers > ANSWERS_FATAL:
            self.close(session, "its answers are not read")

    def writable(self, session: Session, now: float) -> None:
        """The client has room again: send what waits for it, a turn's worth."""
        outbox = session.outbox
        packets = outbox.next_packets(FLUSH_PACKETS)
        if session.packed and len(packets) > 1:
            packs = packed(packets, self._packet_limit)
            went = self._transport.send_each(session.port, [_packet(pack) for pack in packs])
            if went > 0:
                went = sum([pack.messages if isinstance(pack, CountedPack) else 1 for pack in packs[:went]])
        else:
            went = self._transport.send_each(session.port, packets)
        if went == GONE:
            self.close(session, "gone")
            return
        if went:
            outbox.sent(went)
            session.progress = now
        if not outbox:
            self.backlogged.discard(session)
            self._effects.unwatch.append(session)
            self.slow.catches_up(session, now)
        if session.holds and outbox.relaxed:
            self._release(session)

    def close(self, session: Session, reason: str) -> None:
        """Have the caller disconnect a client. The client gets the reason if it can still read."""
        if not session.closing:
            session.closing = reason
            self._effects.close.append(session)
            if reason == "gone":
                self._write_off(session)
            elif session not in self.backlogged:
                self._transport.send(session.port, session.render(Cmsg(b"closing", reason.encode())))

    def _write_off(self, session: Session) -> None:
        """Nothing reaches the client any more. What it has sent is still to be read."""
        session.outbox.clear()
        if session in self.backlogged:
            self.backlogged.discard(session)
            self._effects.unwatch.append(session)
        self._release(session)

    def adopt(self, session: Session) -> None:
        """Go on where a predecessor left off with this client."""
        if session.outbox:
            self.backlogged.add(session)
            self._effects.watch.append(session)

    def forget(self, session: Session, now: float) -> None:
        """The client is gone: free what it held, and the publishers that waited for it."""
        self.slow.leaves(session, now)
        session.outbox.clear()
        self.backlogged.discard(session)
        self._release(session)
        for victim in session.waits_for:
            victim.holds.discard(session)
        session.waits_for.clear()

    # -- timers

    def next_deadline(self) -> float:
        return self._stalls.next

    def on_deadline(self, now: float, block_seconds: float) -> None:
        """Close the ``block`` clients that hold others up and have taken nothing for so long."""
        while (first := self._stalls.pop(now)) is not None:
            session = first[0]
            if not session.holds - {session}:
                continue
            slow_at, closed_at = session.progress + STALL_SECONDS, session.progress + block_seconds
            if now >= closed_at:
                self.close(session, "slow")
                continue
            again_at = slow_at
            if now >= slow_at:
                self.slow.falls_behind(session, Trouble.HOLDS, now)
                again_at = now + STALL_SECONDS  # a reload may shorten block_seconds
            self._stalls.set(session, min(again_at, closed_at))

    # -- serving a client

    def _send_spans(
        self, sessions: list[Session], ports: list[int], group: Group, skip: Session | None, now: float
    ) -> None:
        if not sessions:
            return
        starts, ends = group.starts, group.ends
        count, behind = len(starts), None
        if self.backlogged or skip:
            sessions = [session for session in sessions if session is not skip]
            behind = [session for session in sessions if session in self.backlogged]
            ports = [session.port for session in sessions if session not in self.backlogged]
        fell_short = self._transport.send_group(ports, starts, ends) if ports else {}
        for session in sessions:
            session.delivered += count
        self._ledger.delivered += count * len(sessions)
        if fell_short or behind:
            packets = as_bytes(self._memory, starts, ends)
            for session in behind or ():
                self._queue(session, packets, 0, group.sender, now)
            for port, went in fell_short.items():
                self._queue(self._ports[port], packets, went, group.sender, now)

    def _send_packs(
        self,
        session: Session,
        packs: Sequence[bytes | CountedPack],
        messages: int,
        sender: Session | None,
        now: float,
    ) -> None:
        """Deliver what ``packed`` made of so many messages."""
        went = 0
        if session not in self.backlogged:
            went = self._transport.send_each(session.port, [_packet(pack) for pack in packs])
        self._count(session, messages)
        if went < len(packs):
            self._queue(session, packs, went, sender, now)

    def _packs(self, starts: list[int], ends: list[int]) -> list[bytes | CountedPack]:
        """A group of several messages for clients that agreed to packing."""
        memory = self._memory
        packs: list[bytes | CountedPack] = []
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
                packs.append(CountedPack(PACK + memory[begin:end], after - first))
            else:
                alone += as_bytes(memory, starts[first:after], ends[first:after])
            first = after
        return packs + packed(alone, self._packet_limit) if alone else packs

    def _as_its_length_says(self, start: int, end: int) -> bool:
        """Whether a message in a PACK still ends where it did: the end of a typed line is taken off."""
        return bool(LENGTH.unpack_from(self._memory, start - LENGTH.size)[0] == end - start)

    # -- backlog and backpressure

    def _queue(
        self,
        session: Session,
        entries: Sequence[bytes | CountedPack],
        went: int,
        sender: Session | None,
        now: float,
    ) -> None:
        """Queue what the client did not take."""
        if went == GONE:
            self.close(session, "gone")
            return
        outbox = session.outbox
        dropped_before = outbox.dropped
        entries = entries[went:]
        packets = [entry for entry in entries if not isinstance(entry, CountedPack)]
        if len(packets) < len(entries) or not outbox.put_group(packets):
            for each in self._holdable(entries, outbox):
                if outbox.put(each, publisher_waits=sender is not None) is Outcome.OVERFLOW:
                    self.close(session, "slow")
                    return
        self._backlog(session, now)
        if outbox.dropped > dropped_before:
            self.slow.falls_behind(session, Trouble.LOSES, now, outbox.dropped - dropped_before)
        if sender is not None and outbox.policy is Policy.BLOCK:
            self.hold(sender, session, now)

    def _holdable(
        self, entries: Iterable[bytes | CountedPack], outbox: Outbox
    ) -> Iterator[bytes | CountedPack]:
        """The entries, with each pack that is too long for the queue split into its messages."""
        for entry in entries:
            if isinstance(entry, CountedPack) and not outbox.can_hold(entry):
                yield from sbus.Pack.parse(entry.packet[len(PACK) :]).packets
            else:
                yield entry

    def _backlog(self, session: Session, now: float) -> None:
        if session not in self.backlogged:
            self.backlogged.add(session)
            self._effects.watch.append(session)
            session.progress = now

    def hold(self, publisher: Session, session: Session, now: float) -> None:
        """Let ``publisher`` wait until ``session`` has taken what it has."""
        publisher.waits_for.add(session)
        session.holds.add(publisher)
        if publisher is not session and self._stalls.get(session) is None:
            self._stalls.set(session, max(now, session.progress + STALL_SECONDS))

    def release_unless_blocking(self, session: Session) -> None:
        """The client's policy may have changed: without ``block`` it holds no publisher."""
        if session.outbox.policy is not Policy.BLOCK and session.holds - {session}:
            self._release(session)

    def _release(self, session: Session) -> None:
        for publisher in session.holds:
            publisher.waits_for.discard(session)
            if not publisher.waits_for:
                self._effects.resume.append(publisher)
        session.holds.clear()
        self._stalls.remove(session)

    def _count(self, session: Session, messages: int) -> None:
        session.delivered += messages
        self._ledger.delivered += messages


def packed(packets: Iterable[bytes], limit: int) -> list[bytes | CountedPack]:
    """The packets in as few packets of at most ``limit`` bytes as possible. PACKs among them stay as they are."""
    packs: list[bytes | CountedPack] = []
    group: list[bytes] = []
    size = len(PACK)

    def close_group() -> None:
        if group:
            packs.append(CountedPack(sbus.pack(group), len(group)) if len(group) > 1 else group[0])

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


def _packet(entry: bytes | CountedPack) -> bytes:
    return entry.packet if isinstance(entry, CountedPack) else entry
