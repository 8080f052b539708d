"""The local side: the listener and the sockets of the clients. It reads, writes and closes them as the relay wants.

Rules
- A callback reads or writes one client, for one turn at most (``turns``), and then settles everything.
- A client is not read while it has packets left, nor while the relay holds it (``Session.waits_for``), nor, if it
  publishes to the segment, while the network side is congested.
- What a client sent before it went still counts: a client that is found gone is read to the end like any other.
- A client is looked up before the next is accepted, and before anything else is done: many programs leave at once.
- A client without a place (``places``) gets the reason, ``CMSG closing``, and is closed.
- When the daemon is out of descriptors, it refuses new clients with the reason, or stops accepting for ACCEPT_PAUSE.
  It goes on serving the others.
- A fault of ours while a client is served closes that client. Otherwise it would come again for ever, as its socket
  stays readable.
"""

import contextlib
import os
import socket
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from bccnd import report
from bccnd.daemon.places import Places
from bccnd.daemon.turns import TURN_SECONDS, Turns
from bccnd.errors import BccndError
from bccnd.net.listener import Listener
from bccnd.net.mmsg import Arena, ReceiveTable
from bccnd.net.peers import Identity, has_hung_up, identify
from bccnd.process import fatal
from bccnd.process.sequence import SequenceFile
from bccnd.relay.client_input import Left
from bccnd.relay.core import Relay
from bccnd.relay.effects import Effects
from bccnd.relay.identity import Peer
from bccnd.relay.moment import Moment
from bccnd.relay.session import Session
from bccnd.wire.sbus import Cmsg

# Batches read from one client in one turn, which TURN_SECONDS may end earlier.
CLIENT_BATCHES = 8
TURN_NS = int(TURN_SECONDS * 1e9)

# Batches read from one client at the end: a client that never stops sending must not keep the daemon.
LAST_BATCHES = 64

# After a silence of so many nanoseconds a packet mostly comes alone. Busy clients are read again sooner.
ALONE_NS = 200_000

# But not within so many nanoseconds of a turn that was as long: then everybody seems silent, and has sent several.
BUSY_NS = 20_000_000

# Seconds without new clients, once accepting has failed.
ACCEPT_PAUSE = 1.0

# Packets of a refused client that are read before it is closed: with any unread it would get a reset before the
# reason. A client says hello with fewer.
UNREAD = 16

Newcomer = tuple[socket.socket, Identity]
Read = Callable[[int], tuple[list[int], list[int]]]

log = structlog.get_logger()


class Bus:
    """Serves the clients of one listener.

    ``packet_limit``: the longest packet of a client, in bytes; ``client_bytes``: the send buffer of its socket;
    ``settle``: called after each turn, returns True when a datagram went to the segment; ``congested``: whether the
    network side is; ``on_idle``: called when the last client has left.
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
        congested: Callable[[], bool],
        on_idle: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._relay = relay
        self._listener = listener
        # A byte more, so that a longer packet is seen to be too long.
        self._table = ReceiveTable(arena, packet_limit + 1)
        self._sequence = sequence
        self._client_bytes = client_bytes
        self._settle = settle
        self._is_congested = congested
        self._on_idle = on_idle
        self._turns = Turns(arena.memory, self._table.region)
        self._sockets: dict[int, socket.socket] = {}
        # Publishers that are not read until the network side is no longer congested.
        self._held_back: set[Session] = set()
        self._places = Places()
        # Whether the file of the socket is missing, or somebody else's.
        self.socket_gone = False
        # When a turn was long the last time.
        self._busy_ns = 0
        self._serving = False
        # Whether the loop is to give a turn: one at a time, however many are in line.
        self._turn_is_due = False
        self._spare = -1
        self._take_spare()

    @staticmethod
    def needs(packet: int) -> tuple[int, int]:
        """The (count, size) of slots in the arena, for packets of so many bytes."""
        return ReceiveTable.needs(packet)

    @property
    def name(self) -> str:
        """The address that clients connect to."""
        return self._listener.name

    # -- the loop

    def watch(self) -> None:
        """Begin to accept and to read clients, and to write to those with a backlog."""
        self._serving = True
        self._loop.add_reader(self._listener.socket, self._connect)
        self._have_turn_given()
        for session in self._relay.sessions.values():
            if not (session.waits_for or session in self._held_back or session in self._turns):
                self._loop.add_reader(session.port, self._readable, session)
            if self._relay.is_backlogged(session):
                self._loop.add_writer(session.port, self._writable, session)

    def unwatch(self) -> None:
        self._serving = False
        self._loop.remove_reader(self._listener.socket)
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

    def relieve(self) -> None:
        """Read held-back publishers again: the network side is no longer congested."""
        for session in self._held_back:
            if not session.waits_for:
                self._go_on(session)
        self._held_back.clear()

    def carry_out(self, effects: Effects) -> None:
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

    def _connect(self) -> None:
        begun = time.time_ns()
        arrived: list[Newcomer] = []
        try:
            self._listener.accept(lambda client: arrived.append(self._look_at(client)))
        except OSError as error:
            self._turn_away(error)
            return
        if not arrived and has_hung_up(self._listener.socket.fileno()):
            # The program that handed it down has shut it down: it stays readable, and no client will come.
            self._loop.remove_reader(self._listener.socket)
            log.warning("listener shut down", socket=self.name, clients=len(self._relay.sessions))
        self._welcome(arrived)
        self.end_turn(begun)

    def _look_at(self, client: socket.socket) -> Newcomer:
        """Look up who it is; the spare descriptor is for that, if this client took the last."""
        self._let_go_of_spare()
        identity = identify(client)
        self._take_spare()
        return client, identity

    def _welcome(self, arrived: list[Newcomer]) -> None:
        moment = self._moment()
        self._sequence.cover(self._relay.state.names.first_seq(moment.unix_ns // 1000))
        for client, (pid, uid, gid, program, groups, resident) in arrived:
            peer = Peer(pid, uid, gid, program, groups, resident)
            self._admit(client, peer, moment)
        self._settle()

    def _admit(self, client: socket.socket, peer: Peer, moment: Moment) -> None:
        refusal = self._places.refusal(peer, self._relay.state.rules.options.limits)
        if refusal:
            _refuse(client, refusal)
            report.client_refused(peer, refusal, len(self._relay.sessions))
            return
        with contextlib.suppress(OSError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._client_bytes // 2)
        session = self._relay.connect(client.fileno(), peer, moment)
        if session is None:  # as the places were counted, by a fault of ours alone
            _refuse(client, "limit: too many clients")
            return
        self._places.take(peer)
        self._sockets[session.number] = client
        self._loop.add_reader(session.port, self._readable, session)
        log.debug("client connected", name=session.name.decode(), uid=peer.uid)

    def _turn_away(self, error: OSError) -> None:
        """Accepting failed, mostly for lack of descriptors: free the spare one, to accept and refuse the clients."""
        self._let_go_of_spare()
        try:
            for client in self._listener.accept():
                _refuse(client, "limit: the daemon is out of file descriptors")
        except OSError as again:
            # That failed, too. The listener stays readable: do not spin on it.
            error = again
            self._loop.remove_reader(self._listener.socket)
            self._loop.call_later(ACCEPT_PAUSE, self._accept_again)
        self._take_spare()
        log.warning("client refused", reason=error.strerror, clients=len(self._relay.sessions))

    def _accept_again(self) -> None:
        self._take_spare()
        if self._serving:
            self._loop.add_reader(self._listener.socket, self._connect)

    def _take_spare(self) -> None:
        if self._spare < 0:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _let_go_of_spare(self) -> None:
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    # -- clients send

    def _readable(self, session: Session) -> None:
        """Read a few batches in one turn: another read costs less than another round of the loop.

        A client that was silent for ALONE_NS has mostly sent one packet: read that with the cheapest call.
        """
        begun = unix_ns = time.time_ns()
        try:
            alone = abs(unix_ns - session.read_ns) > ALONE_NS and abs(unix_ns - self._busy_ns) > BUSY_NS
            if alone or self._turns.are_many:
                self._read(session, self._table.read_one, unix_ns)
            else:
                for _ in range(CLIENT_BATCHES):
                    if not self._read(session, self._table.read, unix_ns):
                        break
                    unix_ns = time.time_ns()
                    if not 0 <= unix_ns - begun < TURN_NS:
                        break
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not come again for ever
            self._give_up(session, error)
        session.read_ns = self.end_turn(begun)

    def end_turn(self, begun: int) -> int:
        """Note whether what the loop began at this time, in nanoseconds since 1970, was long. Returns the time."""
        now = time.time_ns()
        if now - begun > ALONE_NS:
            self._busy_ns = now
        return now

    def _read(self, session: Session, read: Read, unix_ns: int) -> bool:
        """Read one batch; True when there may be more."""
        try:
            starts, ends = read(session.port)
        except ConnectionResetError:
            # It left packets of ours unread. The kernel reports that once, before the packets that it sent, and the
            # loop watches a descriptor no more that had an error.
            self._loop.remove_reader(session.port)
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
        if starts[-1] == ends[-1] and has_hung_up(session.port):
            _strip_empty(starts, ends)
            if not starts:
                self._end(session)
                self._settle()  # publishers that it held
                return False
        left = self._relay.from_client(session, Moment(self._loop.time(), unix_ns), (starts, ends))
        sends = self._settle()
        if not (left or sends or session.waits_for) and session.number in self._sockets:
            return True
        return self._go_on_or_wait(session, left, sends, unix_ns)

    def _go_on_or_wait(self, session: Session, left: Left | None, sends: bool, unix_ns: int) -> bool:
        """Give the relay what is left of a client's packets until its turn is over; True when it may be read on.

        ``sends``: whether a datagram went to the segment already.
        """
        if left:
            until = time.monotonic() + TURN_SECONDS
            while left and self._may_go_on(session) and time.monotonic() < until:
                left = self._relay.from_client(session, Moment(self._loop.time(), unix_ns), *left)
                sends |= self._settle()
        if session.number not in self._sockets:
            return False
        if sends and self._is_congested():
            self._held_back.add(session)
        if not (left or session.waits_for or session in self._held_back):
            return True
        self._loop.remove_reader(session.port)
        if left:
            self._turns.put_aside(session, left)
            if self._may_go_on(session) and session not in self._held_back:
                self._line_up(session)
        return False

    def _may_go_on(self, session: Session) -> bool:
        """Whether a client may have a turn. At the end nobody is held any more."""
        return session.number in self._sockets and not (session.waits_for and self._serving)

    # -- turns

    def _go_on(self, session: Session) -> None:
        """Serve a client again that was not served for a while."""
        if session in self._turns:
            self._line_up(session)
        elif self._serving:
            self._loop.add_reader(session.port, self._readable, session)

    def _line_up(self, session: Session) -> None:
        self._turns.line_up(session)
        self._have_turn_given()

    def _have_turn_given(self) -> None:
        if self._turns and not self._turn_is_due:
            self._turn_is_due = True
            self._loop.call_soon(self._give_turn)

    def _take_turn(self, session: Session) -> bool:
        """Go on with the packets that are left; True when the client may be read on."""
        return self._go_on_or_wait(session, self._turns.take(session), False, time.time_ns())

    def _give_turn(self) -> None:
        """Give the first in line its turn; then the loop looks after everybody."""
        self._turn_is_due = False
        if not self._serving:
            return
        session, begun = self._turns.next(), time.time_ns()
        if session is not None:
            try:
                if self._take_turn(session):
                    self._loop.add_reader(session.port, self._readable, session)
            except Exception as error:  # noqa: BLE001 - as in _readable
                self._give_up(session, error)
            session.read_ns = self.end_turn(begun)
        self._have_turn_given()

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
        return Moment(self._loop.time(), time.time_ns())

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
        if not self._sockets:
            self._on_idle()

    # -- the file of the socket

    def tick(self, mode: int, owner: str | None, group: str | None) -> None:
        """Call this about once a second. ``mode``, ``owner``, ``group``: of the file, should it be made again."""
        gone = self._listener.is_gone
        if gone and not self._listener.handed_down:
            gone = not self._reopen(mode, owner, group)
        elif gone and not self.socket_gone:
            log.warning(
                "socket file gone: nobody can connect",
                socket=self.name,
                remedy="have it made again by whoever passed the socket, as by systemctl restart bccnd.socket",
            )
        self.socket_gone = gone

    def _reopen(self, mode: int, owner: str | None, group: str | None) -> bool:
        before = self._listener.socket
        try:
            self._loop.remove_reader(before)
            arrived: list[Newcomer] = []
            self._listener.reopen(mode, owner, group, lambda client: arrived.append(self._look_at(client)))
        except BccndError as error:
            if not self.socket_gone:
                log.warning(
                    "socket file gone: nobody can connect",
                    socket=self.name,
                    reason=str(error),
                    remedy="mend that, and the file is made again; or end the other daemon",
                )
            return False
        finally:
            if self._serving:
                self._loop.add_reader(self._listener.socket, self._connect)
        log.warning("socket file made again", socket=self.name)
        self._welcome(arrived)
        return True

    # -- the end

    def read_the_rest(self, deadline: float) -> None:
        """Accept no new clients, and read what the others have already sent, until ``deadline`` (time.monotonic)."""
        self._serving = False
        self._loop.remove_reader(self._listener.socket)
        for session in list(self._relay.sessions.values()):
            for _ in range(LAST_BATCHES):
                while session in self._turns and self._may_go_on(session) and time.monotonic() < deadline:
                    self._take_turn(session)
                if not self._may_go_on(session) or time.monotonic() > deadline:
                    break
                if not self._read(session, self._table.read, time.time_ns()):
                    break
        for session in self._relay.sessions.values():
            self._loop.remove_reader(session.port)

    def close(self) -> None:
        """Close every client, with the reason ``shutdown``, and the listener."""
        for session in list(self._relay.sessions.values()):
            self._relay.close(session, "shutdown")
            self._end(session)
        self._listener.close()
        self._let_go_of_spare()


def _strip_empty(starts: list[int], ends: list[int]) -> None:
    """Remove the empty packets that a read returns at the end of a connection."""
    while starts and starts[-1] == ends[-1]:
        starts.pop()
        ends.pop()


def _refuse(client: socket.socket, reason: str) -> None:
    with contextlib.suppress(OSError):
        client.send(Cmsg(b"closing", reason.encode()).serialize())
        for _ in range(UNREAD):
            if not client.recv(1):
                break
    client.close()
