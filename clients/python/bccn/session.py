"""The session of a client with the daemon, over one socket after the other. It does not wait; a driver waits for it.

    away ----- a transport is made -----> greeting ----- all answered -----> ready
      ^  (``due``: the next attempt)        | (``due``: it takes too long)     |
      |                                     |                                  |
      +-------------------------------------+----------------------------------+
                    the transport ends; with ``reconnect=False`` for good

A driver is a subclass. It waits until the transport is readable, or has room while something ``wants_room``, or the
time is ``due``, and then calls ``read``, ``flush`` and ``advance``. Coroutines wait in ``wait`` only.

Rules (``clients/PROTOCOL.md``, "Control requests", "Connecting again"):
1. What is wanted (``wishes``, subscriptions) outlives a connection. The greeting says all of it to a new one first.
2. Answers come in the order of the requests: ``_asked`` is a queue. A complaint about a SUB or UNSUB belongs to the
   request sent after it.
3. What was published is with the daemon once a later request is answered; else it is in doubt when the connection
   breaks, and the next barrier says so.
4. A connection that ends is read to its end. Its requests are made again on the next one; unsent messages wait.
5. A child of fork never touches its parent's connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, getpid
from time import monotonic

from bccn import errors
from bccn.errors import BccnError, ProtocolError, RefusedError, RejectedError, UnavailableError
from bccn.exchange import FOREVER, Exchanges, Pending
from bccn.inbox import Inbox
from bccn.notice import NOTICES_LIMIT, Notice, log_notice
from bccn.protocol import Control, Message, Packer, build_control, build_sub, is_number, parse_all
from bccn.transport import BUSY, NO_SIGNAL, RECEIVE_LIMIT, Transport, pauses

# Bytes of messages read but not taken. A client that waits for an answer reads on above it; it asks nothing more.
BACKLOG_LIMIT = 64 * 1024 * 1024


class Entry(Pending):
    """Packets that leave together: messages, done when sent, or a request (with a SUB, UNSUB), done when answered."""

    __slots__ = ("expected", "messages", "packets", "published", "value")

    def __init__(self, packets: list[bytes], messages: int = 0, key: str = "", published: int = 0) -> None:
        """``messages``: published by the ``packets``, ``published``: before them; without any, ``key`` is asked."""
        super().__init__()
        self.packets, self.messages, self.published = packets, messages, published
        self.expected, self.value = "pong" if key == "ping" else key, ""  # of the answer

    def result(self) -> str:
        """The answer. Raises what the daemon had against it, or against the SUB or UNSUB sent with it."""
        if self.error is not None:
            raise self.error
        return self.value


class Session(ABC):
    """``timeout``: seconds to wait for the daemon, also for each greeting. ``due``: when to call ``advance``."""

    def __init__(
        self, path: str | PathLike[str] | None, name: str | None, separator: str,
        wishes: Mapping[str, str | None], *, reconnect: bool, timeout: float,
    ) -> None:  # fmt: skip
        self.wanted_name = name
        self.wishes = dict(wishes)  # control requests, for every connection
        self.inbox = Inbox(separator)
        self.on_notice: Callable[[Notice], object] | None = None
        self.timeout, self.closed = timeout, False
        self.transport: Transport | None = None
        self.changed = Pending()  # done, and another one, at each arrow of the picture above
        self._path, self._reconnect = path, reconnect
        self._memory = memoryview(bytearray(RECEIVE_LIMIT))
        self._asked: deque[Entry] = deque()
        self._fault: BccnError | None = None  # why there is no connection
        self._is_first = True  # ``connect`` raises what the daemon has against it
        self._begin_life()

    def _begin_life(self) -> None:
        """What belongs to this process."""
        self.pid, self.due = getpid(), FOREVER
        self.ready = self._was_ready = False
        self.name: str | None = None  # as the daemon knows us; None while not connected
        self.pack_limit = 0  # bytes; 0: not agreed
        self.packer: Packer | None = None  # what an open batch has gathered
        self.exchanges = Exchanges()
        self.notices: deque[Notice] = deque(maxlen=NOTICES_LIMIT)
        self.lost = 0  # messages the daemon dropped for us, ever
        self.published = self._confirmed = self._in_doubt = self._lost_before_next = 0
        self._rejection: RejectedError | None = None  # the first since the last barrier
        self._rejection_count = 0
        self._queue: deque[Entry] = deque()
        self._greeting: list[Entry] = []
        self._said = ""  # why the daemon closes the connection
        self._pauses = pauses()
        self.inbox.clear()

    @abstractmethod
    async def wait(self, pending: Pending, deadline: float) -> bool:
        """Wait until ``pending`` is done; False once ``deadline`` (monotonic seconds) has passed."""

    async def give_way(self) -> None:  # noqa: B027
        """Among many messages: let others have their turn, see what the daemon says."""

    def attend(self) -> None:  # noqa: B027
        """What is to be waited for may be something else now."""

    def closing(self, transport: Transport, /) -> None:  # noqa: B027
        """It is about to be closed."""

    def forked(self) -> None:
        """Called first thing in a child of the process that made the session."""
        raise errors.ClosedError("the client was made before fork: make another one here")

    @property
    def gone(self) -> bool:
        """Whether the connection ended and is not to be made again."""
        return self.transport is None and self._was_ready and not self._reconnect

    @property
    def wants_room(self) -> bool:
        """Whether something waits to be sent on this transport."""
        return bool(self._queue) and (self.ready or not self._queue[0].messages)

    @property
    def asking(self) -> bool:
        """Whether an answer or a reply is awaited."""
        return bool(self._asked or self.exchanges)

    @property
    def unconfirmed(self) -> int:
        """How many messages the daemon may not have processed yet."""
        return self.published - self._confirmed

    @property
    def unsettled(self) -> bool:
        """Whether a barrier could have something to say about what was published."""
        return bool(self.unconfirmed or self._in_doubt or self._rejection_count)

    def check(self) -> None:
        if self.closed:
            raise errors.ClosedError("the client is closed")
        if self.pid != getpid():
            self.forked()
        if self.gone:
            raise UnavailableError("the connection to the daemon is gone")

    def _check_started(self) -> None:
        self.check()
        if self.transport is None and self.due == FOREVER:
            raise UnavailableError("there is no connection to the daemon")

    def check_backlog(self) -> None:
        """Who waits for answers reads on; who never receives must not go on like that."""
        if self.inbox.waiting_size > BACKLOG_LIMIT:
            raise errors.BacklogError(f"{len(self.inbox)} messages wait to be received: call receive()")

    def advance(self) -> None:
        """Do what is due: try to connect, or give up a greeting that is not answered."""
        if monotonic() < self.due:
            return
        if self.transport is not None:
            self._end(UnavailableError("the daemon does not answer"))
            return
        try:
            self.transport = Transport(self._path)
        except RefusedError as error:
            self._end(UnavailableError(error.text) if self._was_ready else error)
        except UnavailableError as error:
            self._end(error)
        else:
            self.due, self._said = monotonic() + self.timeout, ""
            self._queue.appendleft(Entry(self.greeting()))
            self.flush()

    def greeting(self) -> list[bytes]:
        """All that a new connection begins with; the last request is answered when all of it is done."""
        wishes = dict(self.wishes) if self.wanted_name is None else {"name": self.wanted_name, **self.wishes}
        if self.inbox.listening or self.exchanges.listening:
            wishes["listen"] = None
        wishes["whoami"] = None
        self._greeting = [self.question(key, value) for key, value in wishes.items()]
        *asked, whoami = (entry.packets[0] for entry in self._greeting)
        return [*asked, *(build_sub(pattern) for pattern, _ in self.inbox.subscriptions), whoami]

    def greeted(self) -> list[BccnError] | None:
        """None until the greeting is answered; then what the daemon had against it."""
        if not self._greeting[-1].done:
            return None
        self.name = self._greeting[-1].value or None
        for entry in self._greeting:
            if entry.expected == "pack" and entry.error is None:
                state, _, limit = entry.value.partition(" ")
                self.pack_limit = int(limit) if state == "on" and is_number(limit) else 0
        return [entry.error for entry in self._greeting if entry.error is not None]

    def _begin(self, complaints: list[BccnError]) -> None:
        """The greeting is answered; ``complaints`` is what the daemon had against it."""
        # Our old connection may still hold our name: a little later it is granted.
        taken = self._was_ready and any(getattr(each, "code", "") == "name-taken" for each in complaints)
        if complaints and (self._is_first or taken):
            self._end(complaints[0] if self._is_first else UnavailableError(str(complaints[0])))
            return
        self._pauses, self.due = pauses(), FOREVER
        if self._was_ready:
            self.notify("reconnected", "connected to the daemon again")
        for each in complaints:
            if isinstance(each, RejectedError):
                self.notify("rejected", str(each), 1, each)
        self.ready = self._was_ready = True
        self._is_first = False
        self.flush()
        self._report()

    def _end(self, error: BccnError) -> None:
        """The transport has ended and was read to its end, or none could be made."""
        self._fault, pause = error, 0.0 if self.ready else next(self._pauses)
        (self.disconnected if self.ready else self.let_go)(str(error))
        self._queue = deque(entry for entry in self._queue if entry.messages)
        self.due = FOREVER if self.gone else monotonic() + pause
        if self.gone:
            self._abandon(UnavailableError(str(error)))
        self._report()

    def _as_said(self, error: UnavailableError) -> UnavailableError:
        """The end of a connection, for the reason that the daemon gave, which nobody hears before a greeting."""
        said, self._said = self._said, ""
        if not said:
            return error
        return UnavailableError(
            str(error) if self.ready else f"the daemon closes the connection: {said}", said
        )

    def disconnected(self, reason: str) -> None:
        """The connection is gone, and what it did not confirm is in doubt."""
        doubt = self.unconfirmed
        self._in_doubt += doubt
        self.let_go(reason)
        self.notify("disconnected", reason, doubt)

    def let_go(self, reason: str) -> None:
        """Close the transport, if there is one: nobody answers what was asked on it."""
        transport, self.transport, self.ready = self.transport, None, False
        if transport is not None:
            if self.pid == getpid():  # a child shares what its parent waits with
                self.closing(transport)
            transport.close()
        self._confirmed, self.name, self.pack_limit = self.published, None, 0
        asked, self._asked = self._asked, deque()
        for entry in asked:
            entry.finish(UnavailableError(reason))

    def _abandon(self, error: BccnError) -> None:
        while self._queue:
            self._queue.popleft().finish(error)

    def _report(self) -> None:
        changed, self.changed = self.changed, Pending()
        changed.finish()

    def close(self) -> None:
        """Let go of the connection at once; calls that wait for it raise ClosedError."""
        self.closed, self.due = True, FOREVER
        self.let_go("the client is closed")
        self._abandon(errors.ClosedError("the client is closed"))
        self._report()

    def begin_anew(self) -> None:
        """In a child of fork: keep what is wanted, and nothing of the parent's (BCCN1.md, "Forked programs")."""
        if self.name is not None:
            self.wanted_name = f"{self.name}/{getpid()}"
        self.let_go("this process was forked")
        self._begin_life()
        self.due = 0.0

    def read(self) -> bool:
        """Take one packet; False when there is none. It may end the connection, with ProtocolError if it is none."""
        if (transport := self.transport) is None:
            return False
        try:
            size = transport.receive_into(self._memory)
            if size is None:
                return False
            self.feed(bytes(self._memory[:size]))
        except UnavailableError as error:
            self._end(self._as_said(error))
        except ProtocolError as error:
            self._end(error)
            raise
        else:
            if not self.ready and (complaints := self.greeted()) is not None:
                self._begin(complaints)
        return True

    def feed(self, packet: bytes) -> None:
        """One packet from the daemon: messages to the inbox, news to ``notices``, answers to requests."""
        inbox = self.inbox
        for event in parse_all(packet):
            if isinstance(event, Control):
                self._control(event.key, event.value)
            elif event.channel[:1] != "!" or not self._is_for_request(event):
                if self._lost_before_next:
                    event.lost, self._lost_before_next = self._lost_before_next, 0
                inbox.put(event)
        if inbox.waiting_size > BACKLOG_LIMIT:
            self.exchanges.wake()

    def _is_for_request(self, message: Message) -> bool:
        """Whether it is a reply. A client that listens only for replies sees no other messages to all or to us."""
        if self.exchanges.take(message):
            return True
        return self.exchanges.listening and not (self.inbox.listening or self.inbox.subscriptions)

    def _control(self, key: str, value: str) -> None:
        if key == "error":
            self._error(errors.rejected(value))
        elif key == "dropped" and is_number(value):
            count = int(value)
            self.lost += count
            self._lost_before_next += count
            plural = "message" if count == 1 else "messages"
            self.notify("lost", f"{count} {plural} lost: they came faster than they were read", count)
        elif key == "revoked":
            self.notify("revoked", f"no longer allowed: {value}", 1)
        elif key == "closing":
            self._said = value
            self.notify("closing", f"the daemon closes the connection: {value}")
        elif self._asked and self._asked[0].expected == key:
            entry = self._asked.popleft()
            self._confirmed = max(self._confirmed, entry.published)
            entry.value = value
            entry.finish()

    def _error(self, error: RejectedError) -> None:
        if error.text.startswith("CMSG ") and self._asked:
            self._asked.popleft().finish(error)
        elif error.text.startswith(("SUB ", "UNSUB ")) and self._asked:
            self._asked[0].error = self._asked[0].error or error
        elif not self.exchanges.blame(error):
            self._rejection = self._rejection or error
            self._rejection_count += 1
            self.notify("rejected", str(error), 1, error)

    def raise_rejections(self) -> None:
        """Raise what a barrier found: what is not, or may not be, on the bus."""
        first, count, doubt = self._rejection, self._rejection_count, self._in_doubt
        self._rejection, self._rejection_count, self._in_doubt = None, 0, 0
        if first is not None:
            more = f"; {count - 1} more rejected" if count > 1 else ""
            raise errors.rejected(f"{first.code} {first.text}{more}")
        if doubt:
            some = "1 message" if doubt == 1 else f"up to {doubt} messages"
            raise errors.UnconfirmedError(f"the daemon went away: {some} may not have been published")

    def notify(self, kind: str, text: str, count: int = 0, error: RejectedError | None = None) -> None:
        """Have the program know; whoever waits for replies passes it on at once. Equal refusals are one notice."""
        newest = self.notices[-1] if self.notices else None
        if error is not None and newest is not None and newest.text == text:
            newest.count += count
        else:
            self.notices.append(Notice(kind, text, count, error))
        self.exchanges.wake()

    def pass_on_notices(self) -> None:
        while self.notices:
            (self.on_notice or log_notice)(self.notices.popleft())

    def send_now(self, packet: bytes, messages: int = 1) -> bool:
        """Send at once what publishes so many messages; False when it must wait: for its turn, room, a connection."""
        if self.transport is None or not self.ready or self._queue or self.pid != getpid():
            return False
        try:
            self.transport.send_raw(packet, NO_SIGNAL)
        except OSError:  # ``flush`` meets it again and deals with it
            return False
        self.published += messages
        return True

    def flush(self) -> None:
        """Send what is queued, as far as there is room."""
        while (transport := self.transport) is not None and self.wants_room:
            entry = self._queue.popleft()
            try:
                while entry.packets:
                    if not transport.send(entry.packets[0]):
                        self._queue.appendleft(entry)
                        return
                    del entry.packets[0]
            except UnavailableError as error:
                self._queue.appendleft(entry)
                while self.transport is not None:  # what still came, before it goes
                    if not self.read():
                        self._end(error)
            except RejectedError as error:  # too large for any socket
                if not self.ready:
                    self._end(error)
                self._withdraw(entry)
                entry.finish(error)
            else:
                if entry.messages:
                    self.published += entry.messages
                    entry.finish()

    def question(self, key: str, value: str | None = None) -> Entry:
        """A control request, which is sent after all those before it."""
        entry = Entry([build_control(key, value)], 0, key, self.published)
        self._asked.append(entry)
        return entry

    def _withdraw(self, entry: Entry) -> None:
        self._asked = deque(asked for asked in self._asked if asked is not entry)

    async def connect(self, seconds: float) -> None:
        """Make the first connection; tries for so long, or ``timeout`` where a daemon is busy."""
        begun, self.due = monotonic(), 0.0
        try:
            while not self.ready:
                self.advance()
                fault = self._fault if self.transport is None else None
                patience = max(seconds, self.timeout) if getattr(fault, "reason", "") == BUSY else seconds
                in_vain = self.due > begun + patience or not isinstance(fault, UnavailableError)
                if fault is not None and in_vain:
                    raise fault
                await self.wait(self.changed, self.due)
                self.check()
        except BaseException:
            self.let_go("the connection to the daemon could not be made")
            self._queue.clear()
            self.due = FOREVER
            raise

    async def available(self, deadline: float) -> None:
        """Wait until there is a connection."""
        while True:
            self._check_started()
            if self.ready:
                return
            if not await self.wait(self.changed, deadline) and not self.ready:
                raise self._too_late()

    async def transmit(self, packet: bytes, messages: int = 1) -> None:
        """Publish, through reconnections and a full socket, within ``timeout``."""
        if not self.send_now(packet, messages):
            entry = Entry([packet], messages)
            await self._deliver(entry, monotonic() + self.timeout)
            entry.result()

    def gather(self, packet: bytes) -> Sequence[tuple[bytes, int]]:
        """What to send now that there is one message more: nothing, while an open batch has room."""
        if self.pid != getpid():  # what was gathered before a fork is the parent's
            self.forked()
        return [(packet, 1)] if self.packer is None else self.packer.add(packet)

    async def send_batch(self) -> None:
        """Publish what an open batch has gathered."""
        if self.pid != getpid():
            self.forked()
        for full, messages in self.packer.flush() if self.packer is not None else ():
            await self.transmit(full, messages)

    async def ask(
        self, key: str, value: str | None = None, *, before: bytes | None = None,
        enter: Callable[[], object] | None = None, timeout: float | None = None,
    ) -> str:  # fmt: skip
        """Send ``before`` and a request; returns its answer. ``enter`` is called once there is a connection."""
        if self.packer is not None:
            await self.send_batch()
        deadline = monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            if not self.ready or self.pid != getpid():
                await self.available(deadline)
            if self.inbox.waiting_size > BACKLOG_LIMIT:
                self.check_backlog()
            if enter is not None:
                enter()
            entry = self.question(key, value)
            if before is None and self.send_now(entry.packets[0], 0):
                entry.packets.clear()
                if not await self.wait(entry, deadline) and not entry.done:
                    raise self._too_late(entry)
            else:
                entry.packets[:0] = [before] if before is not None else []
                await self._deliver(entry, deadline)
            before = enter = None
            if not isinstance(entry.error, UnavailableError):
                return entry.result()

    async def _deliver(self, entry: Entry, deadline: float) -> None:
        self._check_started()
        self._queue.append(entry)
        self.flush()
        try:
            if not await self.wait(entry, deadline) and not entry.done:
                raise self._too_late(entry)
        except BaseException:
            if entry in self._queue:
                self._queue.remove(entry)
                self._withdraw(entry)
            raise

    def _too_late(self, entry: Entry | None = None) -> BccnError:
        if entry is None or not self.ready:
            return UnavailableError(str(self._fault or "the daemon is away"))
        taken = "does not answer" if not entry.packets else "takes no more messages: this one was not sent"
        return errors.TimedOutError(f"the daemon {taken}")
