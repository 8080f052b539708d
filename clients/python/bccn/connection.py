"""The connection of a client: a state machine that outlives its sockets. It does not wait; a driver waits for it.

    away ----- a transport is made -----> greeting ----- all answered -----> ready
      ^  (``due``: the next attempt)        | (``due``: it takes too long)     |
      |                                     |                                  |
      +-------------------------------------+----------------------------------+
                    the transport ends; with ``reconnect=False`` for good

A driver is a subclass. It waits until the transport is readable, or has room while something ``wants_room``, or the
time is ``due``, and then calls ``read``, ``flush`` and ``advance``. What both clients do with a connection stands
here once, as coroutines that wait in ``wait`` only. That of the asyncio client suspends; that of the blocking
client blocks, so that such a coroutine runs to its end in one go.

Rules:
1. Packets leave in the order in which they were queued. A request and the SUB or UNSUB that it confirms are one entry
   of the queue. The greeting, which says all that the session wants, leaves before everything else.
2. When a connection ends, its requests end and are made again on the next one. Messages not yet sent stay queued.
3. A connection that ends is read to its end before it is closed: nothing that the daemon has sent is lost.
4. A child of fork never touches its parent's connection.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from os import PathLike, getpid

from bccn.errors import (
    BacklogError,
    BccnError,
    ClosedError,
    ProtocolError,
    RefusedError,
    RejectedError,
    TimedOutError,
    UnavailableError,
)
from bccn.exchange import Pending
from bccn.protocol import RECEIVE_LIMIT
from bccn.session import BACKLOG_LIMIT, Session
from bccn.transport import NO_SIGNAL, Backoff, Transport

FOREVER = float("inf")


class Entry:
    """Packets that leave together. ``pending`` is done when they are sent, or, of a request, when it is answered.

    ``messages``: how many they publish. An entry that publishes none ends with the connection.
    """

    __slots__ = ("messages", "packets", "pending")

    def __init__(self, packets: list[bytes], pending: Pending, messages: int = 0) -> None:
        self.packets = packets
        self.pending = pending
        self.messages = messages


class Connection:
    """``timeout``: seconds to wait for the daemon, also for each greeting. ``due``: when to call ``advance``."""

    def __init__(
        self, session: Session, path: str | PathLike[str] | None, *, reconnect: bool, timeout: float
    ) -> None:
        self.timeout = timeout
        self.closed = False
        self.ready = False
        self.transport: Transport | None = None
        self.due = FOREVER
        self.changed = Pending()  # done, and another one, at each arrow of the picture above
        self._session = session
        self._path = path
        self._reconnect = reconnect
        self.pid = getpid()
        self._memory = bytearray(RECEIVE_LIMIT)
        self._view = memoryview(self._memory)
        self._queue: deque[Entry] = deque()
        self._backoff = Backoff()
        self._fault: BccnError | None = None  # why there is no connection
        self._is_first = True  # ``connect`` has not succeeded yet, and raises what the daemon has against it
        self._was_ready = False  # in this process

    # --- what a driver adds ---

    async def wait(self, pending: Pending, deadline: float) -> bool:
        """Wait until ``pending`` is done; False once ``deadline`` (monotonic seconds) has passed."""
        raise NotImplementedError

    async def give_way(self) -> None:
        """Let others have their turn, in the middle of many messages."""

    def attend(self) -> None:
        """What is to be waited for may be something else now."""

    def opened(self, transport: Transport) -> None:
        """There is a transport to wait for."""

    def closing(self) -> None:
        """The transport is about to be closed."""

    def forked(self) -> None:
        """Called first thing in a child of the process that made the connection."""
        raise ClosedError("the client was made before fork: make another one here")

    # --- how things stand ---

    @property
    def gone(self) -> bool:
        """Whether it ended and is not to be made again."""
        return self.transport is None and self._was_ready and not self._reconnect

    @property
    def connected(self) -> bool:
        return self.ready and self.pid == getpid()

    @property
    def wants_room(self) -> bool:
        """Whether something waits to be sent on this transport."""
        return bool(self._queue) and (self.ready or not self._queue[0].messages)

    def check(self) -> None:
        """Raise ClosedError for a client that cannot be used any more, UnavailableError for one whose connection
        ended for good."""
        if self.closed:
            raise ClosedError("the client is closed")
        self.check_process()
        if self.transport is None and self.gone:
            raise UnavailableError("the connection to the daemon is gone")

    def check_process(self) -> None:
        if self.pid != getpid():
            self.forked()

    def _check_started(self) -> None:
        self.check()
        if self.transport is None and self.due == FOREVER:
            raise UnavailableError("there is no connection to the daemon")

    def check_backlog(self) -> None:
        """A client that waits for answers reads on; one that never receives must not go on like that."""
        if self._session.waiting_size > BACKLOG_LIMIT:
            waiting = len(self._session.backlog) + len(self._session.received)
            raise BacklogError(f"{waiting} messages wait to be received: call receive()")

    # --- coming and going ---

    def advance(self) -> None:
        """Do what is due: try to connect, or give up a greeting that is not answered."""
        if time.monotonic() < self.due:
            return
        if self.transport is not None:
            self._end(UnavailableError("the daemon does not answer"))
            return
        try:
            self.transport = Transport(self._path)
        except RefusedError as error:
            self._failed(UnavailableError(error.text) if self._was_ready else error)
        except UnavailableError as error:
            self._failed(error)
        else:
            self.due = time.monotonic() + self.timeout
            self._queue.appendleft(Entry(self._session.greeting(), Pending()))
            self.opened(self.transport)
            self.flush()

    def _greeted(self, errors: list[BccnError]) -> None:
        """The greeting is answered; ``errors`` is what the daemon has against it."""
        if errors and self._is_first:
            self._end(errors[0])
            return
        # Our old connection may still hold our name: a little later it is granted.
        if self._was_ready and any(getattr(error, "code", "") == "name-taken" for error in errors):
            self._end(UnavailableError(str(errors[0])))
            return
        self._backoff, self.due = Backoff(), FOREVER
        if self._was_ready:
            self._session.notify("reconnected", "connected to the daemon again")
        for error in errors:
            if isinstance(error, RejectedError):
                self._session.notify("rejected", str(error), 1, error)
        self.ready = self._was_ready = True
        self._is_first = False
        self.flush()
        self._report()

    def _end(self, error: BccnError) -> None:
        """The transport has ended and has been read to its end."""
        was_ready = self.ready
        self._let_go()
        self._queue = deque(entry for entry in self._queue if entry.messages)
        if not was_ready:
            self._failed(error)
            return
        self._fault = error
        self.due = time.monotonic() if self._reconnect else FOREVER
        self._session.disconnected(str(error))
        if self.gone:
            self._abandon(UnavailableError(str(error)))
        self._report()

    def _failed(self, error: BccnError) -> None:
        """An attempt to connect has failed."""
        self._fault = error
        self.due = time.monotonic() + self._backoff.next()
        self._session.unconnected("the connection to the daemon could not be made")
        self._report()

    def _report(self) -> None:
        changed, self.changed = self.changed, Pending()
        changed.finish()

    def _abandon(self, error: BccnError) -> None:
        """What is queued will never be sent."""
        while self._queue:
            self._queue.popleft().pending.finish(error)

    def _let_go(self) -> None:
        if self.transport is not None:
            if self.pid == getpid():  # a child shares what its parent waits with
                self.closing()
            self.transport.close()
        self.transport, self.ready = None, False

    def close(self) -> None:
        """Let go of the connection at once; calls that wait for it raise ClosedError."""
        self.closed, self.due = True, FOREVER
        self._let_go()
        self._abandon(ClosedError("the client is closed"))
        self._session.unconnected("the client is closed")
        self._report()

    def begin_anew(self) -> None:
        """In a child of fork: keep what is wanted, and nothing of the parent's."""
        self.pid = getpid()
        self._let_go()
        self._queue.clear()
        self._session.forked(self.pid)
        self._backoff, self.due, self._was_ready = Backoff(), 0.0, False

    # --- reading ---

    def read(self) -> bool:
        """Give the session one packet; False when there is none. Handles the end of the connection.

        Raises ProtocolError for a packet that is none of this protocol; the connection has ended then.
        """
        transport = self.transport
        if transport is None:
            return False
        try:
            size = transport.receive_into(self._memory)
            if size is None:
                return False
            self._session.feed(bytes(self._view[:size]))
        except UnavailableError as error:
            self._end(error)
        except ProtocolError as error:
            self._end(error)
            raise
        else:
            if not self.ready and (errors := self._session.greeted()) is not None:
                self._greeted(errors)
        return True

    def _read_to_end(self) -> None:
        """Sending failed: read what still came, then let go."""
        while self.transport is not None:
            if not self.read():
                self._end(UnavailableError("the daemon went away"))

    # --- sending ---

    def send_now(self, packet: bytes, messages: int = 1) -> bool:
        """Send at once; False when that must wait for its turn, for room or for a connection.

        ``messages``: how many the packet publishes.
        """
        transport = self.transport
        if transport is None or not self.ready or self._queue or self.pid != getpid():
            return False
        try:
            transport.send_raw(packet, NO_SIGNAL)
        except OSError:  # ``flush`` meets it again and deals with it
            return False
        self._session.published += messages
        return True

    def flush(self) -> None:
        """Send what is queued, as far as there is room."""
        while self.transport is not None and self.wants_room:
            entry = self._queue.popleft()
            try:
                while entry.packets:
                    if not self.transport.send(entry.packets[0]):
                        self._queue.appendleft(entry)
                        return
                    del entry.packets[0]
            except UnavailableError:
                self._queue.appendleft(entry)
                self._read_to_end()
            except RejectedError as error:  # too large for any socket
                if not self.ready:
                    self._end(error)
                self._session.withdraw(entry.pending)
                entry.pending.finish(error)
            else:
                if entry.messages:
                    self._session.published += entry.messages
                    entry.pending.finish()

    # --- what both clients do ---

    async def connect(self, wait: float) -> None:
        """Make the first connection, trying for ``wait`` seconds; raises why there is none."""
        deadline = time.monotonic() + wait
        self.due = 0.0
        try:
            while not self.ready:
                self.advance()
                fault = self._fault if self.transport is None else None
                if fault is not None and (self.due > deadline or not isinstance(fault, UnavailableError)):
                    raise fault
                await self.wait(self.changed, self.due)
                self.check()
        except BaseException:
            self._let_go()
            self._queue.clear()
            self._session.unconnected("the connection to the daemon could not be made")
            self.due = FOREVER
            raise

    async def available(self, deadline: float) -> None:
        """Wait until there is a connection."""
        self._check_started()
        while not self.ready:
            if not await self.wait(self.changed, deadline) and not self.ready:
                raise self._too_late()
            self._check_started()

    async def transmit(self, packet: bytes, messages: int = 1) -> None:
        """Publish, through reconnections and a full socket, within ``timeout``."""
        if self.send_now(packet, messages):
            return
        self._check_started()
        entry = Entry([packet], Pending(), messages)
        await self._send_and_wait(entry, time.monotonic() + self.timeout)
        if entry.pending.error is not None:
            raise entry.pending.error

    async def send_batch(self) -> None:
        """Publish what an open batch has gathered."""
        self.check_process()  # what was gathered before a fork is the parent's
        if self._session.packer is not None:
            for full, messages in self._session.packer.flush():
                await self.transmit(full, messages)

    async def ask(
        self,
        key: str,
        value: str | None = None,
        *,
        before: bytes | None = None,
        enter: Callable[[], object] | None = None,
        timeout: float | None = None,
    ) -> str:
        """Send ``before`` and a control request; returns the value of its answer.

        What an open batch has gathered goes first. ``enter`` is called once there is a connection. When that breaks,
        the greeting of the next one says what was in ``before``, and only the request is made again.
        """
        if self._session.packer is not None:
            await self.send_batch()
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            if not self.ready or self.pid != getpid():
                await self.available(deadline)
            if self._session.waiting_size > BACKLOG_LIMIT:
                self.check_backlog()
            if enter is not None:
                enter()
                enter = None
            packet, question = self._session.ask(key, value)
            if before is not None and self.send_now(before, 0):
                before = None
            if before is None and self.send_now(packet, 0):
                if not await self.wait(question, deadline) and not question.done:
                    raise self._too_late(Entry([], question))
            else:
                entry = Entry([packet] if before is None else [before, packet], question)
                before = None
                await self._send_and_wait(entry, deadline)
            if not isinstance(question.error, UnavailableError):
                return question.result()

    async def _send_and_wait(self, entry: Entry, deadline: float) -> None:
        self._queue.append(entry)
        self.flush()
        try:
            if not await self.wait(entry.pending, deadline) and not entry.pending.done:
                raise self._too_late(entry)
        except BaseException:
            if entry in self._queue:
                self._queue.remove(entry)
                self._session.withdraw(entry.pending)
            raise

    def _too_late(self, entry: Entry | None = None) -> BccnError:
        if entry is None or not self.ready:
            return UnavailableError(str(self._fault or "the daemon is away"))
        if entry.packets:
            return TimedOutError("not sent: the daemon takes no more messages")
        return TimedOutError("the daemon does not answer")
