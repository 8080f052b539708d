"""Delivers messages to clients: straight to their sockets, or through their outboxes.

Rules
- A group of messages goes to its subscribers from where it lies in the memory. Messages are copied only for a client
  that did not take them.
- A client with anything in its outbox gets everything through it, so that order is kept.
- A single message goes as it is; several go as one PACK to a client that agreed to it. Messages that were read side
  by side in a PACK are passed on as one slice of it, whatever their number, and wait in one piece if they must. Only
  a queue that is too small for such a piece gets its messages one by one.
- When all outboxes together are full, and a client of a user who holds less needs room, the user who holds most gives
  up messages, and of that user the clients that hold most. Among the clients of one user the rule is the same. So no
  user who holds less than the average loses anything to the others, however many clients these have.
- Messages that publishers wait for (``block``) are given up for other users alone, and last.
- Under ``block`` a local publisher is held (``holding``) as soon as the client takes no more, if the client may hold
  it. It is released when little waits for the client. Holding at once, rather than at a full outbox, saves copies. A
  client with too many unread answers holds itself.
- Nothing is kept for a client that turns out to be gone. The caller reads what it has sent, and then disconnects it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from math import inf
from operator import ne, sub
from typing import Protocol

from bccnd.relay.effects import Spans, as_bytes
from bccnd.relay.holding import Holding, may_hold, others_of
from bccnd.relay.moment import Moment
from bccnd.relay.options import Policy, Queue
from bccnd.relay.outbox import ENTRY_BYTES, Account, CountedPack, Outbox, Outcome
from bccnd.relay.router import Route
from bccnd.relay.session import LINES, Session
from bccnd.relay.slow import SlowClients, Trouble
from bccnd.relay.state import State
from bccnd.wire import sbus
from bccnd.wire.sbus import LENGTH, PACK, Cmsg, Msg

# Per client and call; then the others have their turn.
FLUSH_PACKETS = 64
# Unread answers after which a client is closed: it asks but never listens.
ANSWERS_FATAL = 4096
UNREAD = "its answers are not read"
# Who gives to others gives this part of what it holds, a client and a user, so that looking for who holds most is
# seldom. With a user's part its clients give one after the other, all that were found by one look.
GIVEN_PART = 8
USERS_PART = 64
# Packets that wait for a turn take this part of all at most, or what two reads of clients with large buffers bring:
# else who has most of them is closed. Hundreds can leave what others do, so it takes somebody who wants to fill it.
LEFT_PART = 4
LEFT_BYTES = 8 << 20
# What a transport answers for a client that is no longer there.
GONE = -1

Sender = Session | None  # a client of this host; None for the segment, and for what the daemon says itself
Entry = bytes | CountedPack


class Transport(Protocol):
    """Sends to clients. A result below what was asked means that the rest would block."""

    def send(self, port: int, packet: bytes, /) -> int:
        """Returns 1 if the packet went, 0 if it would block, or GONE."""

    def send_each(self, port: int, packets: Sequence[bytes], /) -> int:
        """How many of the packets went, in order, or GONE."""

    def send_group(self, ports: Sequence[int], starts: list[int], ends: list[int], /) -> dict[int, int]:
        """The packets at these spans of the memory, to every port; port -> how many went, where not all did."""

    def unread(self, port: int, /) -> int:
        """How much of what went the client has not read, in bytes."""

    def unsaid(self, port: int, /) -> int:
        """How much of what the client has sent was not read, in bytes."""


@dataclass(eq=False, slots=True)
class Group:
    """Consecutive messages with one route and one sender, as spans of MSG packets in the memory.

    ``full``: the same messages as RECV packets for clients, ``tapped`` for taps, ``placed`` for taps that see the
    interface. Each is made only when somebody wants it.
    """

    route: Route | None = None
    sender: Sender = None
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    full: list[bytes] = field(default_factory=list)
    tapped: list[bytes] = field(default_factory=list)
    placed: list[bytes] = field(default_factory=list)

    def shown_to(self, session: Session) -> list[bytes]:
        """The RECV packets in the form that this client reads."""
        packets = self.placed if session.tap_interface else self.tapped if session.tap else self.full
        return packets if session.format is not LINES else list(map(sbus.line_of, packets))


class Delivery:
    def __init__(self, state: State, transport: Transport) -> None:
        self._memory = state.memory
        self._ledger = state.ledger
        self._outgoing = state.outgoing
        self._ports = state.ports
        self._packet_limit = state.rules.packet_limit
        self._transport = transport
        self.slow = SlowClients()
        self.holding = Holding(transport, state.outgoing, self.slow, state.alarm)
        self.next_deadline = self.holding.next_deadline
        self.backlogged: set[Session] = set()
        # Clients of which packets wait for a turn.
        self._left: set[Session] = set()
        # No user holds more. Who does is looked for only when another who holds less than this needs room.
        self._most_held: float = inf

    def hand_over(self, group: Group, now: float) -> None:
        """Deliver a group to the subscribers of its route. The RECV packets stay, for taps."""
        route, starts, ends, sender = group.route, group.starts, group.ends, group.sender
        if route is None or not route.size:
            return
        skip = None if sender is None or sender.echo else sender
        if len(starts) == 1 or not route.packed:
            self.send_spans(route.single, route.single_ports, (starts, ends), sender, now)
        else:
            self.send_spans(route.plain, route.plain_ports, (starts, ends), sender, now)
            packs = self._packs(starts, ends)
            for session in route.packed:
                if session is not skip:
                    self._send_packs(session, packs, len(starts), sender, now)
        if route.full or route.lines:
            messages = as_bytes(self._memory, starts, ends) if route.lines else []
            lines = [Msg.parse(packet[4:]).serialize_line() for packet in messages]
            for session in (*route.full, *route.lines):
                if session is not skip:
                    shown = lines if session.format is LINES else group.shown_to(session)
                    self.send(session, shown, sender, now)

    def send(self, session: Session, packets: Sequence[bytes], sender: Sender, now: float) -> None:
        """Deliver ready-made messages to one client."""
        self._outgoing.steps += len(packets)
        if session.packed and len(packets) > 1:
            size = len(PACK) + LENGTH.size * len(packets) + sum(map(len, packets))
            whole = size <= self._packet_limit  # as most are, of one batch; none is a PACK itself
            packs = [CountedPack(sbus.pack(packets), len(packets))] if whole else self._packed(packets)
            self._send_packs(session, packs, len(packets), sender, now)
            return
        went = 0 if session in self.backlogged else self._transport.send_each(session.port, packets)
        session.delivered += len(packets)
        self._ledger.delivered += len(packets)
        if went < len(packets):
            self._queue(session, packets, went, sender, now)

    def answer(self, session: Session, answer: Cmsg, moment: Moment) -> None:
        """Answer a request of the client itself: never dropped, but it must be read."""
        packet, now = session.render(answer), moment.monotonic
        self._outgoing.steps += len(packet) // 8
        if session not in self.backlogged:
            went = self._transport.send(session.port, packet)
            if went == GONE:
                self.close(session, "gone")
            if went:
                return
            self._backlog(session, now)
        session.outbox.answer(packet)
        self._note_growth(session.outbox)
        if session.outbox.wants_rest:
            self.holding.hold(session, session, now)
        if session.outbox.answers > ANSWERS_FATAL:
            self.close(session, UNREAD)
        self._make_room(session, 0, 0, now)
        if self._ledger.excess(0, 0) > 0:
            self._close_for_room(session)

    def keep_left(self, session: Session, size: int, now: float) -> None:
        """So many bytes of packets were read of the client and wait for its next turn; 0 for none."""
        outbox = session.outbox
        outbox.keep_left(size)
        self._left.discard(session)
        if size:
            self._left.add(session)
            self._note_growth(outbox)
            self._make_room(session, 0, 0, now)
            if self._ledger.left > max(self._ledger.limit // LEFT_PART, LEFT_BYTES):
                self._close_for_room(max(self._left, key=_left_of))

    def writable(self, session: Session, moment: Moment) -> None:
        """The client has room again: send what waits for it, a turn's worth."""
        outbox, now = session.outbox, moment.monotonic
        packets = outbox.next_packets(FLUSH_PACKETS)
        if session.packed and len(packets) > 1:
            packs = self._packed(packets)
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
            self._outgoing.clients.unwatch.append(session)
            self.slow.catches_up(session, now)
        if session.holds and outbox.relaxed:
            self.holding.release(session)

    def close(self, session: Session, reason: str) -> None:
        """Have the caller disconnect a client. The client gets the reason if it can still read."""
        if session.closing in ("", "gone") and session.closing != reason:
            session.closing = reason
            self._outgoing.clients.close.append(session)
            if reason == "gone":
                self._write_off(session)
            elif session not in self.backlogged:
                self._transport.send(session.port, session.render(Cmsg(b"closing", reason.encode())))

    def forget(self, session: Session, now: float) -> None:
        """The client is gone: free what it held, and the publishers that waited for it."""
        self.slow.leaves(session, now)
        session.outbox.clear(gone=True)
        session.outbox.keep_left(0)
        self._left.discard(session)
        self.backlogged.discard(session)
        self.holding.forget(session)

    def on_deadline(self, now: float, queue: Queue) -> None:
        """Close the clients that hold others up for too long."""
        for session in self.holding.overdue(now, queue):
            self.close(session, "slow")

    # -- serving a client

    def send_spans(
        self, sessions: list[Session], ports: list[int], spans: Spans, sender: Sender, now: float
    ) -> None:
        """Deliver the MSG packets at these spans to clients that take them as they are, at these ports."""
        if not sessions:
            return
        starts, ends = spans
        count, behind = len(starts), None
        skip = None if sender is None or sender.echo else sender
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
            self._queue_behind(behind or (), packets, sender, now)
            for port, went in fell_short.items():
                self._queue(self._ports[port], packets, went, sender, now)

    def _send_packs(
        self, session: Session, packs: Sequence[Entry], messages: int, sender: Sender, now: float
    ) -> None:
        """Deliver what ``packed`` made of so many messages."""
        went = 0
        if session not in self.backlogged:
            went = self._transport.send_each(session.port, [_packet(pack) for pack in packs])
        session.delivered += messages
        self._ledger.delivered += messages
        if went < len(packs):
            self._queue(session, packs, went, sender, now)

    def _packs(self, starts: list[int], ends: list[int]) -> list[Entry]:
        """A group of several messages for clients that agreed to packing."""
        memory = self._memory
        packs: list[Entry] = []
        alone: list[bytes] = []
        first = 0
        # In a PACK nothing but a length lies between two messages; between two packets there is always more.
        gaps = map(sub, starts[1:], ends)
        apart = compress(range(1, len(starts)), map(ne, gaps, repeat(LENGTH.size)))
        for after in [*apart, len(starts)]:
            begin, end = starts[first] - LENGTH.size, ends[after - 1]
            last = starts[after - 1]
            # The last may be shorter than its length says: the end of a typed line is taken off.
            if after - first > 1 and LENGTH.unpack_from(memory, last - LENGTH.size)[0] == end - last:
                if alone:
                    packs += self._packed(alone)
                    alone.clear()
                packs.append(CountedPack(PACK + memory[begin:end], after - first))
            else:
                alone += as_bytes(memory, starts[first:after], ends[first:after])
            first = after
        return packs + self._packed(alone) if alone else packs

    def _packed(self, packets: Iterable[bytes]) -> list[Entry]:
        """The packets in as few packets as possible. PACKs among them stay as they are."""
        packs: list[Entry] = []
        group: list[bytes] = []
        size = len(PACK)
        for packet in [*packets, PACK]:  # an end that closes the last group
            already = packet.startswith(PACK)
            if group and (already or size + LENGTH.size + len(packet) > self._packet_limit):
                packs.append(CountedPack(sbus.pack(group), len(group)) if len(group) > 1 else group[0])
                group, size = [], len(PACK)
            if already:
                packs.append(packet)
            else:
                group.append(packet)
                size += LENGTH.size + len(packet)
        return packs[:-1]

    # -- backlog and backpressure

    def _queue_behind(
        self, sessions: Sequence[Session], packets: Sequence[bytes], sender: Sender, now: float
    ) -> None:
        """Queue messages for clients that have others waiting. There can be thousands that read nothing, so what is
        the same for all of them is looked at once, and what is seldom is left to ``_queue``.
        """
        size, count, ledger = sum(map(len, packets)), len(packets), self._ledger
        for session in sessions:
            outbox = session.outbox
            before = outbox.dropped
            if outbox.policy is not Policy.DROP_OLDEST or session not in self.backlogged:
                self._queue(session, packets, 0, sender, now)
                continue
            if ledger.excess(size, count) > 0:
                self._make_room(session, size, count, now)
            if not outbox.put_group(packets, size):
                self._queue(session, packets, 0, sender, now)
                continue
            self._note_growth(outbox)
            if outbox.dropped > before:
                self.slow.falls_behind(session, Trouble.LOSES, now, outbox.dropped - before)

    def _queue(
        self, session: Session, entries: Sequence[Entry], went: int, sender: Sender, now: float
    ) -> None:
        """Queue what the client did not take."""
        if went == GONE:
            self.close(session, "gone")
            return
        outbox = session.outbox
        dropped_before, waiting_before = outbox.dropped, outbox.packets
        holds = outbox.policy is Policy.BLOCK and sender is not None and may_hold(session, sender)
        entries = entries[went:]
        self._make_room(session, sum(map(len, entries)), len(entries), now)
        packets = [entry for entry in entries if not isinstance(entry, CountedPack)]
        if len(packets) < len(entries) or not outbox.put_group(packets, sum(map(len, packets))):
            for entry in entries:
                # A pack that is too long for the queue is split into its messages.
                split = isinstance(entry, CountedPack) and not outbox.can_hold(entry)
                for each in sbus.Pack.parse(_packet(entry)[len(PACK) :]).packets if split else (entry,):
                    if outbox.put(each, publisher_waits=holds) is Outcome.OVERFLOW:
                        self.close(session, "slow")
                        return
        self._backlog(session, now)
        self._note_growth(outbox)
        if outbox.dropped > dropped_before:
            self.slow.falls_behind(session, Trouble.LOSES, now, outbox.dropped - dropped_before)
        if holds and sender is not None:
            self.holding.hold(sender, session, now, max(0, outbox.packets - waiting_before))

    def _backlog(self, session: Session, now: float) -> None:
        if session not in self.backlogged:
            self.backlogged.add(session)
            self._outgoing.clients.watch.append(session)
            session.progress = now

    def _note_growth(self, outbox: Outbox) -> None:
        account, held = outbox.account, outbox.held
        if held > account.most:
            account.most = held
        held = account.bytes + account.entries * ENTRY_BYTES
        if held > self._most_held:
            self._most_held = held

    def _make_room(self, asker: Session, size: int, entries: int, now: float) -> None:
        """Make users that hold more than ``asker`` would hold give up messages until so much more fits: users other
        than its own, or else other clients of its user.
        """
        outbox, account, more = asker.outbox, asker.outbox.account, size + entries * ENTRY_BYTES
        gave = True
        while gave and (excess := self._ledger.excess(size, entries)) > 0:
            wanted = outbox.held + more
            heaviest = self._heavier_user(account, account.held + account.left + more)
            aim = max(excess, (heaviest or account).held // USERS_PART)
            if heaviest:
                gave = self._give(heaviest, 0, excess, aim, now)
            else:
                gave = account.most > wanted and self._give(account, wanted, excess, aim, now)

    def _heavier_user(self, own: Account, wanted: int) -> Account | None:
        """Who holds most of all users, if that is more than ``wanted``, which is no less than ``own`` holds."""
        if self._most_held <= wanted:
            return None
        accounts = {session.outbox.account for session in self.backlogged}
        heaviest = max(accounts, key=lambda account: account.held, default=own)
        self._most_held = heaviest.held
        return heaviest if heaviest.held > wanted else None

    def _give(self, account: Account, above: int, excess: int, aim: int, now: float) -> bool:
        """Have clients of a user give, those that hold most first: the excess, and up to ``aim`` a part of what they
        hold, in bytes. Only those give that hold more than ``above``; with 0, what publishers wait for as well.
        """
        holders = [session for session in self.backlogged | self._left if session.outbox.account is account]
        holders.sort(key=_weight, reverse=True)
        account.most = holders[0].outbox.givable if holders else 0
        given = 0
        for session in holders:
            outbox = session.outbox
            most = outbox.givable or (0 if above or given >= excess else outbox.waiting)
            if given >= aim or most <= above:
                break
            before, lost = outbox.held, 0
            if outbox.policy is not Policy.DISCONNECT:
                lost = outbox.give(max(excess - given, most // GIVEN_PART))
            if lost:
                self.slow.falls_behind(session, Trouble.LOSES, now, lost)
            else:
                self._close_for_room(session)
            given += before - outbox.held
        return given > 0

    def _close_for_room(self, session: Session) -> None:
        self.close(session, UNREAD if session.outbox.answers else "slow")
        self._write_off(session)
        session.outbox.keep_left(0)
        self._left.discard(session)

    def _write_off(self, session: Session) -> None:
        """Keep nothing for a client any more."""
        session.outbox.clear()
        if session in self.backlogged:
            self.backlogged.discard(session)
            self._outgoing.clients.unwatch.append(session)
        self.holding.release(session)

    def release_unless_blocking(self, session: Session) -> None:
        """The client's policy may have changed: without ``block`` it holds no publisher."""
        if session.outbox.policy is not Policy.BLOCK and others_of(session):
            self.holding.release(session)


def _packet(entry: Entry) -> bytes:
    return entry.packet if isinstance(entry, CountedPack) else entry


def _weight(session: Session) -> tuple[int, int]:
    """By which clients of one user give: what publishers wait for comes last."""
    return session.outbox.givable, session.outbox.waiting


def _left_of(session: Session) -> tuple[int, int]:
    """By which a client is closed for packets that wait for a turn: that with most, of the user with most."""
    return session.outbox.account.left, session.outbox.left
