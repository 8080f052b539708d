"""The blocking client: every wait is a poll(2) with a deadline, on the caller's thread.

Rules:
1. Messages wait in the daemon's queue until ``receive``, ``dispatch`` or iteration ask for them. But who waits for an
   answer or for room reads on, or both could wait for each other, and who only publishes has a ``_glance`` at times.
2. Callbacks and ``on_notice`` run inside the client's calls, never while a packet is half processed: they may call.
3. Nothing happens between two calls. A select loop learns from ``Readiness`` when to make one.
4. One thread is inside a call at a time, and has the ``_turn``; another waits for its own, or is told that it does
   not come. Who publishes needs none for a packet that can be sent at once, and waits for room as well as for a turn.
"""

# ruff: noqa: SLF001 - a subscription is a part of its client

from __future__ import annotations

import time
from _thread import RLock
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from time import monotonic

from bccn.errors import ClosedError, InvalidError
from bccn.exchange import FOREVER, Entry, Pending, Request
from bccn.inbox import MESSAGE_COST, Callback, Held
from bccn.operations import Operations
from bccn.protocol import Message, build_msg
from bccn.session import READ_LIMIT, Session
from bccn.transport import NO_SIGNAL, POLL_LIMIT, READABLE, WRITABLE

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    from typing import Any, Concatenate, ParamSpec, Self, TypeVar

    P = ParamSpec("P")
    T = TypeVar("T")

# Seconds between attempts to publish beside another thread's call: a full socket takes hundreds of packets meanwhile.
TURN_PAUSE = 0.001
OCCUPIED = (
    "another thread stays inside a call of this client: make a client for each, or only publish from others"
)
# Seconds between looks, while a program only publishes, at what the daemon has to say about it.
GLANCE_INTERVAL = 0.1
# Bytes that wait to be received, above which such looks would only fill memory.
GLANCE_LIMIT = 1024 * 1024
# Packets read by such a look and by ``dispatch``: in a flood the caller's loop has its turn.
GLANCE_PACKETS = 1024


def finish(operation: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits in ``Blocking._wait`` only."""
    try:
        operation.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("the operation waits for something else")


class Blocking(Session):
    """A session that waits with poll(2)."""

    async def _wait(self, pending: Pending, deadline: float) -> None:
        while not pending.done and self._wait_and_work(deadline):
            pass

    def _wait_and_work(self, deadline: float) -> bool:
        """Wait until something may have happened, and see to it; False once ``deadline`` has passed."""
        transport, until = self._transport, min(deadline, self._due)
        if transport is None:
            self._check()
            time.sleep(min(max(0.0, until - monotonic()), POLL_LIMIT))
            self._advance()  # and no more: to be connected again takes a look of its own
        else:
            transport.wait(READABLE * self._wants_packets | WRITABLE * bool(self._unsent), until)
            self._work(READ_LIMIT)
        return monotonic() < deadline


def blocking(
    operation: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]], *, alone: bool = True
) -> Callable[Concatenate[Client, P], T]:
    """The method of ``Client`` that runs an operation to its end; see ``_run``."""

    @wraps(operation)
    def method(self: Client, /, *arguments: P.args, **settings: P.kwargs) -> T:
        return self._run(operation(self, *arguments, **settings), alone=alone)

    return method


class Stream:
    """What messages are received from, until it is closed: with ``with``, at the end of that."""

    _is_over: Callable[[], bool]
    receive: Callable[[], Message | None]
    close: Callable[[], None]

    def __iter__(self) -> Iterator[Message]:
        """Messages, until it is closed."""
        try:
            while not self._is_over() and (message := self.receive()) is not None:
                yield message
        except ClosedError:
            if not self._is_over():  # another client's, out of a callback
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()


class Subscription(Held, Stream):
    """What ``subscribe`` and ``serve`` return. Also a context manager.

    Without a callback it is a stream of its own as soon as it is asked for a message: from then on those that match
    come from here, and not from the client; those that wait there move over.
    """

    _client: Client

    def close(self) -> None:
        """End it, even where this raises because the daemon does not answer; to close again does nothing."""
        self._client._run(Operations._unsubscribe(self._client, self))

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that matches; None after ``timeout`` seconds. Callbacks are called meanwhile."""
        return self._client._next(timeout, self)


class Client(Blocking, Stream):
    """A connection to the bus of this host, made again by itself when it breaks.

    Raises UnavailableError without a daemon, RejectedError when it does not grant what was asked. Threads may publish
    at any time, and else take turns: while one stays inside a call, another's raises InvalidError after ``timeout``.
    """

    _glance_due = 0.0
    _shows_messages = True

    def _begin_life(self) -> None:
        super()._begin_life()
        self._turn = RLock()

    def _begin(self) -> None:
        finish(self._connect())

    def publish(self, channel: str, payload: bytes | str = b"") -> None:
        """Hand one message to the daemon; waits only while it is away or takes no more. From any thread.

        What the daemon then rejects (too large, no right) arrives later: as a notice, and from ``barrier``.
        Raises UnavailableError or TimedOutError after ``timeout``: this message was not sent.
        """
        packet = build_msg(channel, payload)
        if self._batches:
            for full in self._batches.gather(packet):
                self._run(self._transmit(full), alone=False)
            return
        try:
            self._send(packet, NO_SIGNAL)
        except OSError:  # no room, or no connection
            self._run(self._transmit((packet, 1)), alone=False)
            return
        self._published += 1
        if monotonic() >= self._glance_due:
            self._glance()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """``with client.batch():`` what this thread publishes inside goes packed (with ``pack=True``); they nest."""
        batch = Operations.batch(self)
        self._run(batch.__aenter__(), alone=False)
        try:
            yield
        finally:
            self._run(batch.__aexit__(None, None, None), alone=False)

    publish_all = blocking(Operations.publish_all, alone=False)
    publish_to = blocking(Operations.publish_to, alone=False)
    reply = blocking(Operations.reply, alone=False)
    send_datagram = blocking(Operations.send_datagram)
    barrier = blocking(Operations.barrier)
    listen = blocking(Operations.listen)
    request = blocking(Operations.request)
    watch = blocking(Operations.watch)
    unwatch = blocking(Operations.unwatch)
    set_name = blocking(Operations.set_name)
    heartbeat = blocking(Operations.heartbeat)
    control = blocking(Operations.control)
    status = blocking(Operations.status)
    clients = blocking(Operations.clients)
    sources = blocking(Operations.sources)

    def subscribe(self, pattern: str, callback: Callback | None = None) -> Subscription:
        """Returns when it is in force; raises when there is none, also when it is cancelled.

        Its messages go to ``callback``, or without one to the stream of the client, or to its own.
        """
        return self._run(Operations._subscribe(self, Subscription(pattern, callback, self)))

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that is not for callbacks only (these are called); None after ``timeout`` seconds."""
        self._receives = True
        return self._next(timeout)

    @blocking
    async def dispatch(self) -> None:
        """For select loops: call the callbacks of all that waits. Other messages wait for ``receive``."""
        self._check()
        self._work(GLANCE_PACKETS)
        while self._inbox.backlog:
            message, callbacks = self._inbox.take()
            for callback in callbacks:
                callback(message)
        if self._inbox.waiting_size > GLANCE_LIMIT:
            self._drop_unclaimed()

    def fileno(self) -> int:
        """A descriptor for select loops: readable means ``dispatch``. It survives reconnections, not fork."""
        self._check()
        if self._readiness is None:
            from bccn.readiness import Readiness

            self._readiness = Readiness()
        self._glance()
        return self._readiness.fileno()

    def request_many(
        self, channel: str, payload: bytes | str = b"", timeout: float | None = None, count: int | None = None,
        *, wait_anyway: bool = False,
    ) -> Iterator[Message]:  # fmt: skip
        """The replies as they come, at most ``count``, until ``timeout`` seconds have passed.

        The request is published when the first is asked for. Raises NobodyListensError as ``request`` does.
        """
        coming = Operations.request_many(self, channel, payload, timeout, count, wait_anyway=wait_anyway)
        try:
            with suppress(StopAsyncIteration):
                while True:
                    yield self._run(coming.__anext__())
        finally:
            finish(coming.aclose())

    def serve(self, pattern: str, handler: Callable[[Request], bytes | str | None]) -> Subscription:
        """Reply to requests on the channels that match with what ``handler`` returns, or later if that is None.

        Needs ``format="full"``. The pattern ``!`` stands for requests to all and to this program. The handler runs
        inside ``receive`` or ``dispatch``.
        """
        serving, subscription = Operations._serve, Subscription(pattern, None, self)
        return self._run(
            serving(self, subscription, handler, lambda answer, request: self._run(answer(request)))
        )

    @property
    def name(self) -> str:
        """Own src, as others see it."""
        if not self.connected:
            self._run(self._available())
        return super().name

    def close(self) -> None:
        """Let go of the connection at once; ``with`` waits for a barrier first. Never raises. From any thread."""
        self._close()
        self._readiness = None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and not self._closed and self._unsettled:
                self.barrier()
        finally:
            self.close()

    # --- how it waits ---

    def _run(self, operation: Coroutine[Any, Any, T], *, alone: bool = True) -> T:
        """The result of an operation. One that is not ``alone`` only publishes; see ``_deliver``."""
        if alone and not self._turn.acquire(True, self._timeout):
            operation.close()
            raise InvalidError(OCCUPIED)
        try:
            return finish(operation)
        finally:
            if alone:
                self._turn.release()
            self._glance()

    async def _deliver(self, entry: Entry, timeout: float | None = None) -> str:
        deadline = monotonic() + self._timeout
        while not self._turn.acquire(True, TURN_PAUSE):
            self._check()
            try:
                for packet in entry.packets:  # one, or none to wait for a connection
                    self._send(packet, NO_SIGNAL)
            except OSError:
                if monotonic() >= deadline:
                    raise self._why_not(unsent=True) from None
            else:
                self._published += entry.messages
                return ""
        try:
            return await super()._deliver(entry, timeout)
        finally:
            self._turn.release()

    def _next(self, timeout: float | None, of: Held | None = None) -> Message | None:
        if not self._turn.acquire(False) and not self._turn.acquire(True, self._timeout):
            raise InvalidError(OCCUPIED)
        try:
            inbox = self._inbox
            stream = inbox.received if of is None else inbox.open_stream(of)
            deadline = FOREVER if timeout is None or stream else monotonic() + timeout
            while not stream:
                if inbox.backlog:
                    message, callbacks = inbox.take()
                    for callback in callbacks:
                        callback(message)
                    continue
                if of is not None:
                    inbox.open_stream(of)  # a callback may have closed it
                    if inbox.waiting_size > GLANCE_LIMIT and not inbox.fills_stream:
                        self._drop_unclaimed()
                self._settle()
                self._check(asks=True)
                in_time = (self._work(READ_LIMIT) and monotonic() < deadline) or self._wait_and_work(deadline)
                if not (in_time or stream or inbox.backlog):
                    self._settle()
                    return None
            if self._notices or self._news or self._readiness is not None:
                self._settle()
            message = stream.popleft()
            inbox.waiting_size -= len(message.payload) + MESSAGE_COST
            return message
        finally:
            self._turn.release()

    def _glance(self) -> None:
        """Settle, and once in a while see what the daemon has to say to a program that only publishes."""
        if self._turn.acquire(False):  # else who is inside does it
            try:
                if (now := monotonic()) >= self._glance_due:
                    self._glance_due = now + GLANCE_INTERVAL
                    if self._inbox.waiting_size < GLANCE_LIMIT:
                        self._work(GLANCE_PACKETS)
                self._settle()
            finally:
                self._turn.release()
