"""One connection of a peer: a stream socket, its carrier, an endpoint, and its conversation.

Rules
- It is read only while the peer reads the replies that it causes (``Endpoint.replies``), and once everything it has
  sent is judged. A turn judges some milliseconds of work. The connections of a user take turns (``turns.py``), to
  read and to write.
- Bytes for the peer are made only when the socket has taken those before. The rest waits in the endpoint, where it
  can be cancelled.
- What several sessions have for the peer in one round of the loop goes out together.
- A peer that has not sent a chunk and granted credit in time is dropped, and so is one that does not answer
  heartbeats.
- If a peer takes nothing more, everything it sent is still judged. When it is gone, that still goes to the daemon,
  for LINGER_SECONDS.
"""

import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import structlog

from bccnd.mux import limits
from bccnd.mux.accounts import Accounts
from bccnd.mux.archive import Archive
from bccnd.mux.carrier import Carrier, CarrierError, foreign_line, is_foreign
from bccnd.mux.conversation import Conversation
from bccnd.mux.daemon import Daemon
from bccnd.mux.peer import Peer
from bccnd.mux.turns import Turns
from bpmux.endpoint import Endpoint
from bpmux.errors import BpmuxError

log = structlog.get_logger()


class House:
    """What all connections share.

    ``archive``: the recordings of this host; ``counts``: events, by name; ``dropped``: connections, by reason.
    """

    def __init__(
        self, loop: AbstractEventLoop, daemon: Daemon, accounts: Accounts, archive: Archive | None = None
    ) -> None:
        self.loop = loop
        self.daemon = daemon
        self.accounts = accounts
        self.archive = archive or Archive(loop, None)
        self.judging = Turns(loop, limits.CHUNKS, limits.SHARE)
        self.writing = Turns(loop, limits.WRITTEN, limits.PIECE)
        self.connections: set[Connection] = set()
        self.counts: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()


class Connection:
    """``chatter``: most chunks a second that carry no data, 0 for no limit. ``turned_away``: see ``Conversation``.
    ``early``: bytes for the endpoint that have already come.
    """

    def __init__(
        self,
        house: House,
        accepted: socket.socket,
        carrier: Carrier,
        peer: Peer,
        *,
        chatter: int = 0,
        turned_away: bytes = b"",
        early: bytes = b"",
    ) -> None:
        self.peer = peer
        self.is_served = not turned_away
        self._house, self._loop = house, house.loop
        self._socket = accepted
        self._carrier = carrier
        self._has_begun = False  # its first bytes have come
        self._is_greeted = self._is_awake = self._is_gone = self._is_read = False
        self._is_broken = False  # the peer takes nothing more
        self._has_turn = False  # it waits for a turn, to judge more or to read
        self._endpoint = endpoint = Endpoint(self._loop.time(), limits.ENDPOINT)
        lend = partial(house.archive.lend, peer.uid)
        connect = house.daemon.connector(peer)
        self._conversation = Conversation(endpoint, connect, self._wake, turned_away, lend)
        self._unsent = b""
        self._chatter_limit, self._chatter_seen, self._chatter_since = chatter, 0, self._loop.time()
        seconds = limits.REFUSAL_SECONDS if turned_away else limits.GREETING_SECONDS
        self._greeting: TimerHandle | None = self._loop.call_later(seconds, self._on_greeting_over)
        self._heartbeat = self._loop.call_at(endpoint.deadline, self._on_deadline)
        self._linger: TimerHandle | None = None
        house.connections.add(self)
        house.counts["connections"] += 1
        self._read_on()
        self._wake()
        self._early = early
        if early:
            self._await_turn()

    def __len__(self) -> int:
        """Sessions, streams and requests."""
        return len(self._conversation)

    # --- to read ---

    def _read_on(self) -> None:
        if not self._is_read and not self._is_gone and not self._has_turn:
            self._is_read = True
            self._loop.add_reader(self._socket, self._on_readable)

    def _on_readable(self) -> None:
        if not self._house.judging.take(self.peer.uid, self._turn):
            self._has_turn = True
            self._stop_reading()

    def _await_turn(self) -> None:
        self._has_turn = True
        self._house.judging.wait(self.peer.uid, self._turn)

    def _turn(self, share: int) -> int:
        """Judge ``share`` of what has come; read first, if all before is judged. Returns the work done."""
        self._has_turn = False
        if self._is_gone or (self._replies > limits.REPLIES and not self._is_broken):
            return 0  # it may read on once the peer has read
        before = self._work
        early, self._early = self._early, b""
        if early:
            self._judged(self._take, early, share)
        elif self._is_behind:
            self._judged(self._receive, b"", share)
        elif data := self._read():
            self._judged(self._receive, data, share)
        return 1 + self._work - before

    @property
    def _work(self) -> int:
        """Work done so far, in chunks."""
        return self._endpoint.work + limits.FRAME * self._carrier.frames

    def _read(self) -> bytes:
        """Bytes from the socket; empty if there are none yet, and at the end, which drops the connection."""
        try:
            data = self._socket.recv(limits.READ)
        except BlockingIOError:
            if not self._is_broken:
                self._read_on()
                return b""
            data = b""  # nothing more comes from there
        except OSError:
            data = b""
        if not data:
            self.drop("left")
        return data

    def _judged(self, deal: Callable[[bytes, int], None], data: bytes, share: int) -> None:
        """Call ``deal``. A mistake of the peer ends the connection."""
        try:
            deal(data, share)
        except CarrierError as error:
            self._say_last(b"", str(error))
        except BpmuxError as error:
            self._conversation.handle(self._endpoint.events())
            log.debug("peer broke the protocol", rule=error.rule, reason=str(error), uid=self.peer.uid)
            self.drop(f"protocol-{error.rule}")

    def _receive(self, data: bytes, share: int) -> None:
        self._take(self._carrier.received(data, max(1, share // limits.FRAME)), share)
        if self._carrier.has_ended and not self._is_behind:
            self._say_last(b"", "left")

    def _take(self, data: bytes, share: int) -> None:
        """Give the endpoint what has come, or let it go on with what came before."""
        if data or self._endpoint.is_behind:
            if not self._has_begun:
                self._has_begun = True
                if is_foreign(data):
                    self._say_last(foreign_line(data[:256]), "foreign")
                    return
            now = self._loop.time()
            events = self._endpoint.receive(data, now, share)
            self._conversation.handle(events)
            if not self._is_greeted and self._endpoint.room(self._endpoint.top):
                self._greet()
        self._bound_chatter(self._loop.time())
        self._wake()
        self._go_on()

    @property
    def _is_behind(self) -> bool:
        return self._carrier.is_behind or self._endpoint.is_behind

    def _go_on(self) -> None:
        """Judge more in another turn, if something is left, else read; neither while the peer does not read."""
        if self._is_broken or (self._is_behind and self._replies <= limits.REPLIES):
            self._stop_reading()
            if not self._has_turn:
                self._await_turn()
        elif self._replies > limits.REPLIES:
            self._stop_reading()
        else:
            self._read_on()

    @property
    def _replies(self) -> int:
        return self._endpoint.replies + self._carrier.replies

    def _bound_chatter(self, now: float) -> None:
        """Raises ``BpmuxError`` for a peer that sends too many chunks without data."""
        if self._chatter_limit:
            chatter = self._endpoint.chatter + self._carrier.chatter
            seconds = now - self._chatter_since
            some = min(max(1.0, seconds), limits.CHATTER_SECONDS)
            if chatter - self._chatter_seen > self._chatter_limit * some:
                raise BpmuxError("limit", "chunks that move nothing")
            if seconds >= 1.0:
                self._chatter_since, self._chatter_seen = now, chatter

    def _greet(self) -> None:
        self._is_greeted = True
        if self._greeting and self.is_served:
            self._greeting.cancel()
            self._greeting = None

    def _stop_reading(self) -> None:
        if self._is_read:
            self._is_read = False
            self._loop.remove_reader(self._socket)

    # --- to write ---

    def _wake(self) -> None:
        if self._is_gone:
            self._linger_on()
        elif not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._house.writing.take(self.peer.uid, self._write)

    def _write(self, share: int) -> int:
        """Write about ``share`` bytes, at most a piece more. Returns how many."""
        self._is_awake = False
        if self._is_gone or self._is_broken:
            return 0
        written, endpoint = 0, self._endpoint
        while not self._unsent:
            data = endpoint.data_to_send(limits.PIECE) if self._carrier.is_ready else b""
            self._unsent = self._carrier.outgoing(data)
            if not self._unsent:
                break
            written += len(self._unsent)
            if not self._send():
                return written
            if written >= share:
                self._wake()
                break
        self._conversation.handle(endpoint.events())
        self._settle()
        return written

    def _send(self) -> bool:
        """Send what is unsent. False if the connection is gone."""
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._is_broken = True
            self._unsent = b""
            self._go_on()
            return False
        if self._unsent:
            self._loop.add_writer(self._socket, self._on_writable)
        return True

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._socket)
        if self._send() and not self._unsent:
            self._wake()

    def _settle(self) -> None:
        """After a turn: let others go on, note what is held, and see whether everything is said."""
        self._conversation.sent()
        if self._conversation.is_over and not self._unsent:
            self.drop("silent" if self._conversation.is_silent else "left")
            return
        self._go_on()
        self._weigh()

    def _weigh(self) -> None:
        endpoint = self._endpoint
        weight = endpoint.weight + self._carrier.held + self._conversation.waiting + len(self._unsent)
        if not self.is_served:
            if weight > limits.REFUSED_BYTES:
                self.drop("turned away")
            return
        heaviest = self._house.accounts.weigh(self, self.peer.uid, weight)
        if isinstance(heaviest, Connection):
            log.debug("dropped, too much waits for this user", uid=self.peer.uid)
            heaviest.drop("weight")

    # --- time ---

    def _on_greeting_over(self) -> None:
        self._greeting = None
        if not self.is_served:
            self.drop("turned away")
        elif self._has_begun:
            self.drop("no greeting")
        else:  # perhaps a person who waits for an answer
            self._say_last(foreign_line(b""), "no greeting")

    def _on_deadline(self) -> None:
        now = self._loop.time()
        if self._endpoint.deadline <= now:
            self._conversation.handle(self._endpoint.expire(now))
            if self._conversation.is_silent:
                self.drop("silent")
                return
            self._wake()
        self._heartbeat = self._loop.call_at(max(self._endpoint.deadline, now + 0.01), self._on_deadline)

    # --- the end ---

    def part(self, reason: bytes) -> None:
        """End the conversation; the peer learns why, if it reads."""
        self._conversation.part(reason)

    def _say_last(self, line: bytes, why: str) -> None:
        """Send a last line in clear, to a peer that does not speak bpmux."""
        with suppress(OSError, CarrierError):
            self._socket.send(self._carrier.outgoing(line))
            self._socket.shutdown(socket.SHUT_WR)
        self.drop(why)

    def drop(self, why: str) -> None:
        if self._is_gone:
            return
        self._is_gone = True
        house = self._house
        house.dropped[why] += 1
        for timer in (self._heartbeat, self._greeting):
            if timer:
                timer.cancel()
        self._stop_reading()
        self._loop.remove_writer(self._socket)
        self._socket.close()
        house.connections.discard(self)
        self._linger = self._loop.call_later(limits.LINGER_SECONDS, self._conversation.abandon)
        self._conversation.lost()
        self._linger_on()

    def _linger_on(self) -> None:
        """Charge the user for the place and the bytes until nothing waits for the daemon any more."""
        accounts, uid = self._house.accounts, self.peer.uid
        if len(self._conversation):
            accounts.weigh(self, uid, self._conversation.waiting)
        elif self._linger:
            self._linger.cancel()
            self._linger = None
            if self.is_served:
                accounts.weigh(self, uid, 0)
                accounts.give_back(uid)
