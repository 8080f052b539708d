"""The local side: the sockets of the clients. It reads, writes and closes them as the relay wants.

Rules
- A callback reads or writes one client, for one turn at most (``turns``), and then settles everything.
- A client is not read while it has packets left, nor while the relay holds it (``Session.waits_for``), nor, if it
  publishes to the segment, while the network side is congested.
- What a client sent before it went still counts: a client that is found gone is read to the end like any other.
- A client that comes in (``door``) without a place (``places``) gets the reason, ``CMSG closing``, and is closed.
- A fault of ours while a client is served closes that client. Otherwise it would come again for ever, as its socket
  stays readable.
"""

import contextlib
import socket
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from functools import partial
from time import time_ns
from typing import Any

import structlog

from bccnd import report
from bccnd.daemon.door import Door, refuse
from bccnd.daemon.places import Places
from bccnd.daemon.turns import TURN_NS, Turns
from bccnd.net.listener import Listener
from bccnd.net.mmsg import Arena, ReceiveTable
from bccnd.net.peers import Identity, has_hung_up, unread_bytes
from bccnd.process import fatal
from bccnd.process.sequence import SequenceFile
from bccnd.relay.client_input import Left
from bccnd.relay.core import Relay
from bccnd.relay.effects import OfClients
from bccnd.relay.identity import Peer
from bccnd.relay.moment import Moment
from bccnd.relay.session import Session

# Batches read from one client in one turn, if they are as short as that.
CLIENT_BATCHES = 8

# Batches read from one client at the end: a client that never stops sending must not keep the daemon.
LAST_BATCHES = 64

# After a silence of so many nanoseconds a packet mostly comes alone. Busy clients are read again sooner.
ALONE_NS = 200_000

# But not within so many nanoseconds of a turn that was as long: then everybody seems silent, and has sent several.
BUSY_NS = 20_000_000

Read = Callable[[int], tuple[list[int], list[int]]]

log = structlog.get_logger()


class Bus:
    """Serves the clients of one listener.

    ``packet_limit``: the longest packet of a client, in bytes; ``client_bytes``: the send buffer of its socket;
    ``settle``: carries out effects, returns True if datagrams went to the segment and the network side is congested;
    ``on_idle``: called when the last client has left.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        relay: Relay,
        listener: Listener,
        arena: Arena,
        sequence: SequenceFile,
        *,
        packet_limit: int,
        client_bytes: int,
        settle: Callable[[], bool],
        on_idle: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._relay = relay
        # A byte more, so that a longer packet is seen to be too long.
        self._table = ReceiveTable(arena, packet_limit + 1)
        self._read_one = self._table.read_one
        self._sequence = sequence
        self._client_bytes = client_bytes
        self._settle = settle
        self._on_idle = on_idle
        self._turns = Turns(arena.memory, self._table.region)
        self._left = self._turns.left
        self._outgoing = relay.outgoing
        self._sockets: dict[int, socket.socket] = {}
        # Publishers that are not read until the network side is no longer congested.
        self._held_back: set[Session] = set()
        self._places = Places()
        self._serving = False
        # Whether the loop is to begin a round: it gives one turn, however many are in line.
        self._round_is_due = False
        # When the turn of this moment began, in nanoseconds since 1970.
        self._begun = 0
        # The steps of this turn so far.
        self._steps = 0
        # The time of the last read: one object for all, as the relay keeps no moment.
        self._read_at = Moment(0.0, 0)
        self.end_turn = self._turns.end
        self.door = Door(loop, listener, self._let_in, lambda: len(relay.sessions), self.end_turn)

    @staticmethod
    def needs(packet: int) -> tuple[int, int]:
        """The (count, size) of slots in the arena, for packets of so many bytes."""
        return ReceiveTable.needs(packet)

    # -- the loop

    def watch(self) -> None:
        """Begin to accept and to read clients, and to write to those with a backlog."""
        self._serving = True
        self.door.open()
        if self._turns:
            self._have_round_begin()
        for session in self._relay.sessions.values():
            if not (session.waits_for or session in self._held_back or session in self._left):
                self._loop.add_reader(session.port, self._readable, session)
            if self._relay.is_backlogged(session):
                self._loop.add_writer(session.port, self._writable, session)

    def unwatch(self) -> None:
        self._serving = False
        self.door.shut()
        for session in self._relay.sessions.values():
            self._loop.remove_reader(session.port)
            self._loop.remove_writer(session.port)

    def state(self) -> dict[int, Any]:
        """The packets that are left of clients, by the number of their session, for a successor."""
        return self._turns.state()

    def inherit(self, left: Mapping[int, Any]) -> None:
        """Take over the sockets of the sessions that the relay has from a predecessor, and what is ``left``."""
        for session in self._relay.sessions.values():
            self._sockets[session.number] = socket.socket(fileno=session.port)
            self._places.take(session.peer)
        self._turns.restore(left, self._relay.sessions)
        for session, size in self._turns.sizes():
            self._relay.keep_left(session, size, self._loop.time())

    def relieve(self) -> None:
        """Read held-back publishers again: the network side is no longer congested."""
        for session in self._held_back:
            if not session.waits_for:
                self._go_on(session)
        self._held_back.clear()

    def carry_out(self, effects: OfClients) -> None:
        """Watch, resume and close clients as the relay wants. Closing one can have further effects."""
        for session in effects.watch:
            if self._relay.is_backlogged(session):
                self._loop.add_writer(session.port, self._writable, session)
        for session in effects.unwatch:
            if session.number in self._sockets and not self._relay.is_backlogged(session):
                self._loop.remove_writer(session.port)
        for session in effects.resume:
            if session.number in self._sockets and session not in self._held_back:
                self._go_on(session)
        for session in effects.close:
            if session.closing != "gone":
                self._end(session)

    # -- clients come

    def _let_in(self, client: socket.socket, identity: Identity) -> None:
        pid, uid, gid, program, groups, resident = identity
        peer, moment = Peer(pid, uid, gid, program, groups, resident), self._moment()
        self._sequence.cover(self._relay.first_seq(moment.unix_ns // 1000))
        self._admit(client, peer, moment)
        self._settle()

    def _admit(self, client: socket.socket, peer: Peer, moment: Moment) -> None:
        refusal = self._places.refusal(peer, self._relay.options.limits)
        if refusal:
            refuse(client, refusal)
            report.client_refused(peer, refusal, len(self._relay.sessions))
            return
        with contextlib.suppress(OSError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._client_bytes // 2)
        session = self._relay.connect(client.fileno(), peer, moment)
        if session is None:  # as the places were counted, by a fault of ours alone
            refuse(client, "limit: too many clients")
            return
        self._places.take(peer)
        self._sockets[session.number] = client
        self._loop.add_reader(session.port, self._readable, session)
        log.debug("client connected", name=session.name.decode(), uid=peer.uid)

    def move(self, session: Session, before: Peer) -> bool:
        """Find a place for a client that is of another user now. False where there is none: it is to be closed."""
        self._places.leave(before)
        refusal = self._places.refusal(session.peer, self._relay.options.limits)
        self._places.take(session.peer)
        if refusal:
            self._relay.close(session, refusal)
            report.client_refused(session.peer, refusal, len(self._relay.sessions))
        return not refusal

    # -- clients send

    def _readable(self, session: Session) -> None:
        turns = self._turns
        if turns.are_scarce and turns.must_wait(session):
            self._loop.remove_reader(session.port)
            self._line_up(session)
        else:
            self._serve(session)

    def _serve(self, session: Session) -> None:
        """Give a client its turn."""
        turns = self._turns
        self._begun = begun = time_ns()
        self._steps = 0
        try:
            if session not in self._left or (self._take_turn(session) and not self._turn_is_over()):
                # After a silence it has mostly sent one packet: read that with the cheapest call.
                if begun - session.read_ns > ALONE_NS and not 0 <= begun - turns.gathered_ns <= BUSY_NS:
                    self._read(session, self._read_one, begun)
                else:
                    self._read_on(session, begun)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not come again for ever
            self._give_up(session, error)
        session.read_ns = now = time_ns()
        if session.number in self._sockets and turns.took(session, begun, now, self._steps):
            self._have_round_begin()

    def _read_on(self, session: Session, unix_ns: int) -> None:
        """Read a few batches in one turn: another read costs less than another round of the loop.

        None is read that would end after the turn if it took as long as the one before. Of a client that does not
        read its answers no more is read at once: what else it asks for waits in its own socket.
        """
        if self._turns.have_many(session) or session.outbox.answers:
            self._read(session, self._read_one, unix_ns)
            return
        turns = self._turns
        for _ in range(CLIENT_BATCHES):
            read = partial(self._table.read, most=turns.batch_of(session))
            if not self._read(session, read, unix_ns):
                if session in self._left:
                    turns.read_less(session)
                return
            before, unix_ns = unix_ns, time_ns()
            used = unix_ns - self._begun
            if used < TURN_NS // 2:
                turns.read_more(session)
            if not 0 <= used < TURN_NS - (unix_ns - before):
                return

    def _turn_is_over(self) -> bool:
        return not 0 <= time_ns() - self._begun < TURN_NS

    def _read(self, session: Session, read: Read, unix_ns: int) -> bool:
        """Read one batch; True when there may be more."""
        try:
            starts, ends = packets = read(session.port)
        except ConnectionResetError:
            # It left packets of ours unread. The kernel reports that once, before the packets that it sent, and the
            # loop watches a descriptor no more that had an error. It begins anew only once all its watches are gone.
            self._loop.remove_reader(session.port)
            self._loop.remove_writer(session.port)
            self._loop.add_reader(session.port, self._readable, session)
            self._relay.close(session, "gone")
            self._settle()
            return session.number in self._sockets  # what it sent is still to be read
        except OSError:
            self._end(session)
            self._settle()
            return False
        if not starts:
            return False
        if starts[-1] == ends[-1] and has_hung_up(session.port) and not unread_bytes(session.port):
            _strip_empty(starts, ends)
            if not starts:
                self._end(session)
                self._settle()  # publishers that it held
                return False
        moment = self._read_at
        moment.monotonic, moment.unix_ns = self._loop.time(), unix_ns
        left = self._relay.from_client(session, moment, packets)
        self._steps += self._outgoing.steps
        congested = self._settle()
        if (
            left
            or congested
            or session.waits_for
            or session.outbox.left
            or session.number not in self._sockets
        ):
            return self._go_on_or_wait(session, left, congested)
        return True

    def _take_turn(self, session: Session) -> bool:
        """Go on with the packets that are left; True when the client may be read on."""
        left = self._relay.from_client(session, self._moment(), *self._turns.take(session))
        self._steps += self._outgoing.steps
        return self._go_on_or_wait(session, left, self._settle())

    def _go_on_or_wait(self, session: Session, left: Left | None, congested: bool) -> bool:
        """Give the relay what is left of a client's packets until its turn is over; True when it may be read on.

        ``congested``: whether it is to be held back.
        """
        turns = self._turns
        while (left or session in self._left) and self._may_go_on(session) and not self._turn_is_over():
            left = self._relay.from_client(session, self._moment(), *(left or turns.take(session)))
            self._steps += self._outgoing.steps
            congested |= self._settle()
        if session.number not in self._sockets:
            return False
        if congested:
            self._held_back.add(session)
        if left:
            turns.put_aside(session, left)
        if session in self._left or session.outbox.left:
            self._relay.keep_left(session, turns.size_of(session), self._loop.time())
            self._settle()
        if not (session in self._left or session.waits_for or session in self._held_back):
            return session.number in self._sockets
        self._loop.remove_reader(session.port)
        if session in self._left and self._may_go_on(session) and session not in self._held_back:
            self._line_up(session)
        return False

    def _may_go_on(self, session: Session) -> bool:
        """Whether a client may have a turn. At the end nobody is held any more."""
        return session.number in self._sockets and not (session.waits_for and self._serving)

    # -- turns

    def _go_on(self, session: Session) -> None:
        """Serve a client again that was not served for a while."""
        if session in self._left:
            self._line_up(session)
        elif self._serving:
            self._loop.add_reader(session.port, self._readable, session)

    def _line_up(self, session: Session) -> None:
        self._turns.line_up(session)
        self._have_round_begin()

    def _have_round_begin(self) -> None:
        if not self._round_is_due:
            self._round_is_due = True
            self._loop.call_soon(self._begin_round)

    def _begin_round(self) -> None:
        """Give those in line their turns, as the budget allows; then the loop looks after everybody."""
        self._round_is_due = False
        if not self._serving:
            return
        self._serve_line(self._turns.next_modest)
        self._serve_line(self._turns.next)
        self._turns.begin_round()
        if self._turns:
            self._have_round_begin()

    def _serve_line(self, next_in_line: Callable[[], Session | None]) -> None:
        self._turns.begin_round()
        while not self._turns.is_spent and (session := next_in_line()) is not None:
            # Until its turn shows that it is to wait for something else.
            self._loop.add_reader(session.port, self._readable, session)
            self._serve(session)

    def _writable(self, session: Session) -> None:
        try:
            self._relay.writable(session, self._moment())
            self._settle()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not come again for ever
            self._give_up(session, error)

    def _give_up(self, session: Session, error: Exception) -> None:
        """Close a client that could not be served by a fault of ours."""
        fatal.unless_out_of_memory(error)
        self._loop.remove_reader(session.port)
        self._loop.remove_writer(session.port)
        report.fault(error, "a client", session)
        self._relay.close(session, "fault")
        self._settle()

    def _moment(self) -> Moment:
        return Moment(self._loop.time(), time_ns())

    # -- clients leave

    def _end(self, session: Session) -> None:
        client = self._sockets.pop(session.number, None)
        if client is None:
            return
        self._loop.remove_reader(session.port)
        self._loop.remove_writer(session.port)
        self._held_back.discard(session)
        self._turns.forget(session)
        state = report.queue_state(session)
        self._places.leave(session.peer)
        self._relay.disconnect(session, self._moment())
        client.close()
        report.client_left(session, session.closing, state)
        if not (self._sockets or self.door.is_busy):
            self._on_idle()

    # -- the end

    def read_the_rest(self, deadline: float) -> None:
        """Accept no new clients, and read what the others have already sent, until ``deadline`` (time.monotonic)."""
        self._serving = False
        self.door.shut()
        for session in list(self._relay.sessions.values()):
            try:
                self._read_last(session, deadline)
            except Exception as error:  # noqa: BLE001 - it must cost nobody else his last words
                self._give_up(session, error)
        for session in self._relay.sessions.values():
            self._loop.remove_reader(session.port)

    def _read_last(self, session: Session, deadline: float) -> None:
        for _ in range(LAST_BATCHES):
            while session in self._left and self._may_go_on(session) and time.monotonic() < deadline:
                self._begun = time_ns()
                self._take_turn(session)
            if not self._may_go_on(session) or time.monotonic() > deadline:
                break
            self._begun = time_ns()
            if not self._read(session, self._table.read, self._begun):
                break

    def close(self) -> None:
        """Close the listener, so that nobody comes back who is told to leave, and every client (``shutdown``)."""
        self.door.close()
        for session in list(self._relay.sessions.values()):
            self._relay.close(session, "shutdown")
            self._end(session)


def _strip_empty(starts: list[int], ends: list[int]) -> None:
    """Remove the empty packets that a read returns at the end of a connection."""
    while starts and starts[-1] == ends[-1]:
        starts.pop()
        ends.pop()
