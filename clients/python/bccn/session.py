"""The session of a client with the daemon, over one socket after the other. It does not wait; a driver waits for it.

    away ----- a transport is made -----> greeting ----- all answered -----> ready
      ^  (``due``: the next attempt)        | (``due``: it takes too long)     |
      |                                     |                                  |
      +-------------------------------------+----------------------------------+
                    the transport ends; with ``reconnect=False`` for good

A driver is a subclass. It waits until the transport is readable while it ``wants_packets``, or has room while it
``wants_room``, or the time is ``due``, and then has it ``work``. Coroutines wait in ``wait`` only.

Rules (``clients/PROTOCOL.md``, "Control requests", "Connecting again"):
1. What is wanted (``wishes``, subscriptions) outlives a connection. The greeting says all of it to a new one first.
2. All else waits in ``_queue`` to be sent. Answers come in the order of the requests: ``_asked`` is a queue, too. A
   complaint about a SUB or UNSUB belongs to the request sent after it.
3. What was published is with the daemon once a later request is answered; else it is in doubt when the connection
   breaks, and the next barrier says so.
4. A connection that ends is read to its end. What it did not answer is asked again on the next one, but for an UNSUB,
   which the greeting makes needless; unsent messages wait.
5. A subscribe that fails leaves nothing: an UNSUB follows a SUB that has left (``clients/PROTOCOL.md``, "A subscribe
   that fails").
6. A child of fork never touches its parent's connection.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, getpid, register_at_fork
from time import monotonic
from weakref import WeakSet

from bccn import errors
from bccn.errors import BccnError, ProtocolError, RejectedError, UnavailableError
from bccn.exchange import FOREVER, Exchanges, Pending
from bccn.inbox import NOTICES_LIMIT, Inbox, Notice, Subscription, log_notice
from bccn.protocol import Message, Packer, build_control, build_sub, build_unsub, is_number, parse_all
from bccn.transport import BUSY, NO_SIGNAL, RECEIVE_LIMIT, Transport, pauses

# Bytes of messages read but not taken. A client that waits for an answer reads on above it; it asks nothing more.
BACKLOG_LIMIT = 64 * 1024 * 1024


class Entry(Pending):
    """Packets that leave together: messages, done when sent, or a request, done when answered."""

    __slots__ = ("expected", "messages", "packets", "published", "sent", "subscription", "value")

    def __init__(self, *packets: bytes, key: str = "", messages: int = 0) -> None:
        """``key``: what the last of the ``packets`` asks for; else they publish so many ``messages``."""
        self.done, self.error, self.wakers = False, None, []  # as in Pending, without the time for a call
        self.packets, self.messages = packets, messages
        self.expected, self.value = "pong" if key == "ping" else key, ""  # of the answer
        self.sent = self.published = 0  # of the packets; of all messages, before the request
        self.subscription: Subscription | None = None  # that a SUB before the request makes


class Session(ABC):
    """``timeout``: seconds to wait for the daemon, also for each greeting. ``due``: when to call ``advance``."""

    read_ahead = BACKLOG_LIMIT  # bytes of messages that wait

    def __init__(
        self, path: str | PathLike[str] | None, name: str | None, separator: str,
        wishes: Mapping[str, str | None], *, reconnect: bool, timeout: float,
    ) -> None:  # fmt: skip
        self.wanted_name = name
        self.wishes = dict(wishes)  # control requests, for every connection
        self.inbox = Inbox(separator)
        self.on_notice: Callable[[Notice], object] | None = None
        self.timeout = timeout
        self.closed = ""  # why, once it is
        self._path, self._reconnect = path, reconnect
        self._begun = 0.0  # when the first connection was wanted
        self._patience: float | None = FOREVER  # for so long; None: there was one
        self._memory = memoryview(bytearray(RECEIVE_LIMIT))
        self._begin_life()
        _sessions.add(self)

    def _begin_life(self) -> None:
        """What belongs to this process."""
        self.transport: Transport | None = None
        self.due = FOREVER
        self.ready = self._was_ready = False
        self.name: str | None = None  # as the daemon knows us; None while not connected
        self.pack_limit = 0  # bytes; 0: not agreed
        self.packer: Packer | None = None  # what an open batch has gathered
        self.exchanges = Exchanges()
        self.notices: deque[Notice] = deque(maxlen=NOTICES_LIMIT)
        self.lost = 0  # messages the daemon dropped for us, ever
        self.published = self.confirmed = 0  # messages, ever
        self._in_doubt = 0  # messages since the last barrier
        self._doubt_reason = ""  # why the daemon closed their connection
        self._rejection: RejectedError | None = None  # the first since the last barrier
        self._rejection_count = 0
        self._queue: deque[Entry] = deque()
        self._asked: deque[Entry] = deque()
        self._greeting: list[Entry] = []
        self._opening: deque[Entry] = deque()  # what is not sent yet of the greeting
        self._fault = UnavailableError("there is no connection to the daemon")
        self._said = ""  # why the daemon closes the connection
        self._pauses = pauses()
        self.inbox.clear()
        self.inbox.lost = 0
        self.inbox.disconnect()

    @abstractmethod
    async def wait(self, pending: Pending, deadline: float) -> bool:
        """Wait until ``pending`` is done; False once ``deadline`` (monotonic seconds) has passed."""

    async def give_way(self) -> None:  # noqa: B027
        """Among many messages: let others have their turn, see what the daemon says."""

    def changed(self) -> None:  # noqa: B027
        """The connection came, went or was closed."""

    def closing(self, transport: Transport, /) -> None:  # noqa: B027
        """It is about to be closed."""

    def forked(self) -> None:
        """In a child of fork: keep what is wanted, and nothing of the parent's (BCCN1.md, "Forked programs")."""
        if self.transport is not None:
            self.transport.close()
        if self.name is not None:
            self.wanted_name = f"{self.name}/{getpid()}"
        self._patience = None
        self._begin_life()
        self.due = 0.0

    @property
    def gone(self) -> bool:
        """Whether there is no connection, and none will be made."""
        return self.transport is None and self.due == FOREVER

    @property
    def wants_room(self) -> bool:
        """Whether something waits to be sent on this transport."""
        return self.transport is not None and bool(self._queue if self.ready else self._opening)

    @property
    def wants_packets(self) -> bool:
        """Whether to read: who asks reads on, or both sides could wait for each other."""
        return self.inbox.waiting_size <= self.read_ahead or bool(self._asked or self.exchanges)

    @property
    def unsettled(self) -> bool:
        """Whether a barrier could have something to say about what was published."""
        return self.published != self.confirmed or bool(self._in_doubt or self._rejection_count)

    def check(self) -> None:
        if self.closed:
            raise errors.ClosedError(self.closed)
        if self.transport is None and self.due == FOREVER:
            raise self._unavailable()

    def _unavailable(self) -> UnavailableError:
        return UnavailableError(str(self._fault), self._fault.reason)

    def check_backlog(self) -> None:
        """Who waits for answers reads on; who never receives must not go on like that."""
        if self.inbox.waiting_size > BACKLOG_LIMIT:
            raise errors.BacklogError(f"{len(self.inbox)} messages wait to be received: call receive()")

    # --- one connection after the other ---

    async def connect(self, seconds: float) -> None:
        """Make the first connection; tries for so long, or ``timeout`` where a daemon is busy."""
        self._begun, self._patience, self.due = monotonic(), seconds, 0.0
        try:
            await self.available(FOREVER)
        except BaseException:
            self._let_go()
            self._queue.clear()
            self.due = FOREVER
            raise

    def advance(self) -> None:
        """Do what is due: try to connect, or give up a greeting that is not answered."""
        if monotonic() < self.due:
            return
        if self.transport is not None:
            self._end(UnavailableError("the daemon does not answer"))
            return
        try:
            self.transport = Transport(self._path)
        except (RejectedError, UnavailableError) as error:
            self._end(error)
            return
        self.due, self._said = monotonic() + self.timeout, ""
        self._greeting = self.greeting()
        self._opening.extend(self._greeting)
        for entry in self._queue:  # the greeting says all but a SUB that was to be sent before a request
            entry.sent = 0 if entry.subscription is not None else max(0, len(entry.packets) - 1)
        self.flush()

    def greeting(self) -> list[Entry]:
        """All that a new connection begins with; the last request is answered when all of it is done."""
        wishes = dict(self.wishes) if self.wanted_name is None else {"name": self.wanted_name, **self.wishes}
        if self.inbox.listening or self.exchanges.listening:
            wishes["listen"] = None
        subscriptions = [build_sub(pattern) for pattern, _ in self.inbox.held]
        asked = [Entry(build_control(key, value), key=key) for key, value in wishes.items()]
        return [*asked, Entry(*subscriptions, build_control("whoami"), key="whoami")]

    def _greeted(self) -> None:
        """The greeting is answered."""
        answers = {entry.expected: entry.value for entry in self._greeting}
        complaints = [entry.error for entry in self._greeting if isinstance(entry.error, RejectedError)]
        # Our old connection may still hold our name: a little later it is granted.
        taken = self._was_ready and any(each.code == "name-taken" for each in complaints)
        if complaints and (taken or self._patience is not None):
            self._end(complaints[0])
            return
        self.name = answers["whoami"] or None
        state, _, limit = answers.get("pack", "").partition(" ")
        self.pack_limit = int(limit) if state == "on" and is_number(limit) else 0
        if self._was_ready:
            self.notify("reconnected", "connected to the daemon again")
        for each in complaints:
            self.notify("rejected", str(each), 1, each)
        self._pauses, self.due, self._patience = pauses(), FOREVER, None
        self.ready = self._was_ready = True
        self.flush()
        self.changed()

    def _end(self, error: BccnError) -> None:
        """The transport has ended and was read to its end, or none could be made."""
        if self._said and isinstance(error, UnavailableError):
            text = str(error) if self.ready else f"the daemon closes the connection: {self._said}"
            error = UnavailableError(text, self._said)
        self._fault = error if isinstance(error, UnavailableError) else UnavailableError(str(error))
        pause = 0.0 if self.ready else next(self._pauses)
        doubt = self.published - self.confirmed
        if self.ready:
            self._in_doubt += doubt
            self._doubt_reason = self._fault.reason
            self.notify("disconnected", str(error), doubt)
        self._let_go()
        self.due = monotonic() + pause
        if self._patience is not None:
            patience = max(self._patience, self.timeout) if self._fault.reason == BUSY else self._patience
            in_vain = self.due > self._begun + patience or error is not self._fault
        else:
            in_vain = self._was_ready and not self._reconnect
        if in_vain:
            self._abandon(error)
        self.changed()

    def _let_go(self) -> None:
        """Close the transport, if there is one. What it did not answer is to be asked again."""
        transport, self.transport = self.transport, None
        if transport is not None:
            self.closing(transport)
            transport.close()
        self.inbox.disconnect()
        waiting = (*self._asked, *self._queue) if self.ready else self._queue
        self._queue = deque(entry for entry in waiting if not entry.done)
        self._asked.clear()
        self._opening.clear()
        self.ready, self.name, self.pack_limit, self.confirmed = False, None, 0, self.published

    def _abandon(self, error: BccnError) -> None:
        """There will be no other connection: everybody who waits gets the error."""
        self.due = FOREVER
        while self._queue:
            self._queue.popleft().finish(error)
        self.exchanges.wake()

    def close(self) -> None:
        """Let go of the connection at once; calls that wait for it raise ClosedError."""
        self.closed = "the client is closed"
        self._let_go()
        self._abandon(errors.ClosedError(self.closed))
        self.changed()

    # --- what comes ---

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
            self._end(error)
        except ProtocolError as error:
            self._end(error)
            raise
        else:
            if not self.ready and self._greeting[-1].done:
                self._greeted()
        return True

    def work(self, limit: int) -> None:
        """Do what can be done without waiting: what is due, send what is queued, read so many packets."""
        if self.due != FOREVER:
            self.advance()
        self.flush()
        for _ in range(limit if self.wants_packets else 0):
            if not self.read():
                break

    def feed(self, packet: bytes) -> None:
        """One packet from the daemon: messages to the inbox, news to ``notices``, answers to requests."""
        inbox = self.inbox
        for event in parse_all(packet):
            if isinstance(event, tuple):
                self._control(*event)
            elif event.channel[:1] == "!" and self._is_for_request(event):
                pass
            elif not inbox.overhears or not inbox.is_unwanted(event.channel):
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
            self.inbox.lost += count
            plural = "message" if count == 1 else "messages"
            self.notify("lost", f"{count} {plural} lost: they came faster than they were read", count)
        elif key == "revoked":
            self.notify("revoked", f"no longer allowed: {value}", 1)
        elif key == "closing":
            self._said = value
            self.notify("closing", f"the daemon closes the connection: {value}")
        elif self._asked and self._asked[0].expected == key:
            entry = self._asked.popleft()
            self.confirmed = max(self.confirmed, entry.published)
            entry.value = value
            if entry.subscription is not None and entry.error is None:
                self.inbox.settle(entry.subscription)
            entry.finish()

    def _error(self, error: RejectedError) -> None:
        asked = self._asked or self._queue  # the SUB of a request may be sent, and the request not yet
        if error.text.startswith("CMSG ") and self._asked:
            self._asked.popleft().finish(error)
        elif error.text.startswith(("SUB ", "UNSUB ")) and asked:
            asked[0].error = asked[0].error or error
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
            text = f"the daemon went away: {some} may not have been published"
            raise errors.UnconfirmedError(text, self._doubt_reason)

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

    # --- what goes ---

    def send_now(self, packet: bytes, messages: int = 1) -> bool:
        """Send at once what publishes so many messages; False when it must wait: for its turn, room, a connection."""
        if self._queue or not self.ready or self.transport is None:
            return False
        try:
            self.transport.send_raw(packet, NO_SIGNAL)
        except OSError:  # ``flush`` meets it again and deals with it
            return False
        self.published += messages
        return True

    def flush(self) -> None:
        """Send what is queued, as far as there is room."""
        while (transport := self.transport) and (queue := self._queue if self.ready else self._opening):
            entry = queue[0]
            try:
                while entry.sent < len(entry.packets):
                    if not transport.send(entry.packets[entry.sent]):
                        return
                    entry.sent += 1
            except UnavailableError as error:
                while self.transport is not None:  # what still came, before it goes
                    if not self.read():
                        self._end(error)
            except RejectedError as error:  # too large for any socket
                queue.popleft()
                entry.finish(error)
                if not self.ready:
                    self._end(error)
            else:
                queue.popleft()
                self.published += entry.messages
                if entry.expected:
                    entry.published = self.published
                    self._asked.append(entry)
                else:
                    entry.finish()

    async def available(self, timeout: float | None = None) -> None:
        """Wait until there is a connection."""
        if not self.ready:
            await self.deliver(Entry(), timeout)

    async def transmit(self, packet: bytes, messages: int = 1) -> None:
        """Publish, through reconnections and a full socket, within ``timeout``."""
        if not self.send_now(packet, messages):
            await self.deliver(Entry(packet, messages=messages))

    def gather(self, packet: bytes) -> Sequence[tuple[bytes, int]]:
        """What to send now that there is one message more: nothing, while an open batch has room."""
        return [(packet, 1)] if self.packer is None else self.packer.add(packet)

    async def send_batch(self) -> None:
        """Publish what an open batch has gathered."""
        for full, messages in self.packer.flush() if self.packer is not None else ():
            await self.transmit(full, messages)

    async def ask(
        self, key: str, value: str | None = None, *, before: Sequence[bytes] = (), timeout: float | None = None
    ) -> str:  # fmt: skip
        """Send ``before`` and a request; returns its answer."""
        if self.packer is not None:
            await self.send_batch()
        if self.inbox.waiting_size > BACKLOG_LIMIT:
            self.check_backlog()
        entry = Entry(*before, build_control(key, value), key=key)
        await self.deliver(entry, timeout)
        return entry.value

    def withdraw(self, subscription: Subscription, newest: list[Message]) -> None:
        """Have an UNSUB sent, without waiting for it. What came for it behind the ``newest`` reaches nobody."""
        inbox, entry = self.inbox, Entry(build_unsub(subscription[0]), build_control("ping"), key="ping")
        entry.wakers.append(lambda: inbox.settle(subscription))
        if "tap" not in self.wishes:
            inbox.overhears = True
            inbox.withdrawn.append(subscription)
            inbox.drop_unwanted(newest)
        self._queue.append(entry)
        self.flush()

    async def deliver(self, entry: Entry, timeout: float | None = None) -> None:
        """Send it, in its turn, and wait until it is done. Raises what the daemon had against it."""
        self.check()
        self._queue.append(entry)
        self.flush()
        try:
            seconds = self.timeout if timeout is None else timeout
            if not await self.wait(entry, monotonic() + seconds) and not entry.done:
                if not self.ready:
                    raise self._unavailable()
                waits = (
                    "takes no more messages: this one was not sent"
                    if entry in self._queue
                    else "does not answer"
                )
                raise errors.TimedOutError(f"the daemon {waits}")
        except BaseException:
            entry.done = True  # for nobody: it is not asked again
            if entry in self._queue and not entry.sent:
                self._queue.remove(entry)
            raise
        if entry.error is not None:
            raise entry.error


# A child of fork must not use the connections of its parent.
_sessions: WeakSet[Session] = WeakSet()


def _in_child() -> None:
    for session in list(_sessions):
        session.forked()


register_at_fork(after_in_child=_in_child)
