"""The blocking client: every wait is a poll(2) with a deadline, on the caller's thread.

Rules:
1. Messages wait in the daemon's queue until ``receive``, ``dispatch`` or iteration ask for them. But who waits for an
   answer or for room reads on, or both could wait for each other, and who only publishes has a ``_glance`` at times.
2. Callbacks and ``on_notice`` run inside the client's calls, never while a packet is half processed: they may call.
3. Nothing happens between two calls. A select loop learns from ``Readiness`` when to make one.
"""

# ruff: noqa: SLF001 - a subscription is a part of its client

from __future__ import annotations

import time
from _thread import get_ident
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from time import monotonic

from bccn.errors import ClosedError, InvalidError
from bccn.exchange import FOREVER, Pending, Request
from bccn.inbox import Callback, Held
from bccn.operations import Operations
from bccn.protocol import Message, build_msg
from bccn.session import Session
from bccn.transport import POLL_LIMIT, READABLE, WRITABLE, Transport

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    from typing import Any, Concatenate, ParamSpec, Self, TypeVar

    from bccn.readiness import Readiness

    P = ParamSpec("P")
    T = TypeVar("T")

# Seconds between looks, while a program only publishes, at what the daemon has to say about it.
GLANCE_INTERVAL = 0.1
# Bytes that wait to be received, above which such looks would only fill memory.
GLANCE_LIMIT = 1024 * 1024
# Packets read without waiting by one call: in a flood the caller's loop has its turn.
READ_LIMIT = 1024


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
        # An answer takes the daemon longer than us: a first attempt to read would be in vain.
        transport = self._transport if not self._unsent and not pending.done else None
        if transport is not None and transport.wait(READABLE, min(deadline, self._due)):
            self._read()
        while not pending.done and self._step(deadline):
            pass

    def _step(self, deadline: float) -> bool:
        """Wait until something may have happened; False once ``deadline`` (monotonic seconds) has passed."""
        if self._transport is None:
            self._check()
        if self._unsent:
            self._flush()
            if not self._unsent:
                return True
        reading = self._wants_packets
        if reading and self._read():
            if self._transport is None:
                return True
            if self._due != FOREVER:  # much may come that is no answer to the greeting
                self._advance()
            return monotonic() < deadline
        transport, until = self._transport, min(deadline, self._due)
        if transport is None:
            time.sleep(min(max(0.0, until - monotonic()), POLL_LIMIT))
        elif transport.wait(READABLE * reading | WRITABLE * bool(self._unsent), until):
            return True
        self._advance()
        return monotonic() < deadline


def blocking(
    operation: Callable[Concatenate[Session, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """The method of ``Client`` that runs an operation to its end."""

    @wraps(operation)
    def method(self: Client, /, *arguments: P.args, **settings: P.kwargs) -> T:
        return self._run(operation(self, *arguments, **settings))

    return method


class Stream:
    """What iteration takes messages from, until it ``_is_over``."""

    _is_over: Callable[[], bool]
    receive: Callable[[], Message | None]

    def __iter__(self) -> Iterator[Message]:
        """Messages, until it is closed."""
        try:
            while not self._is_over() and (message := self.receive()) is not None:
                yield message
        except ClosedError:
            if not self._is_over():  # another client's, out of a callback
                raise


class Subscription(Held, Stream):
    """What ``subscribe`` and ``serve`` return. Also a context manager.

    Without a callback it is a stream of its own as soon as it is asked for a message: from then on those that match
    come from here, and not from the client; those that wait there move over.
    """

    def __init__(self, client: Client, pattern: str, callback: Callback | None = None) -> None:
        super().__init__(pattern, callback)
        self._client = client

    def close(self) -> None:
        """End it, even where this raises because the daemon does not answer; to close again does nothing."""
        self._client._run(Operations._unsubscribe(self._client, self))

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that matches; None after ``timeout`` seconds. Callbacks are called meanwhile."""
        return self._client._next(timeout, self)

    def _is_over(self) -> bool:
        return self.ended or self._client._is_over()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client(Blocking, Stream):
    """A connection to the bus of this host, made again by itself when it breaks. One thread at a time.

    Raises UnavailableError without a daemon, RejectedError when it does not grant what was asked.
    """

    _glance_due = 0.0

    def _begin_life(self) -> None:
        super()._begin_life()
        self._readiness: Readiness | None = None

    def _begin(self) -> None:
        finish(self._connect())
        self._disown()

    def publish(self, channel: str, payload: bytes | str = b"") -> None:
        """Hand one message to the daemon; waits only while it is away or takes no more.

        What the daemon then rejects (too large, no right) arrives later: as a notice, and from ``barrier``.
        Raises UnavailableError or TimedOutError after ``timeout``: this message was not sent.
        """
        packet, packer = build_msg(channel, payload), self._packer
        if packer is not None:
            for full, messages in packer.add(packet):
                self._run(self._transmit(full, messages))
        elif not self._send_now(packet):
            self._run(self._transmit(packet))
        elif self._notices or self._readiness is not None or monotonic() >= self._glance_due:
            self._glance()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """``with client.batch():`` what is published inside goes packed (with ``pack=True``); they nest."""
        self._run(self._open_batch())
        try:
            yield
        finally:
            self._run(self._close_batch())

    publish_all = blocking(Operations.publish_all)
    publish_to = blocking(Operations.publish_to)
    send_datagram = blocking(Operations.send_datagram)
    barrier = blocking(Operations.barrier)
    listen = blocking(Operations.listen)
    request = blocking(Operations.request)
    reply = blocking(Operations.reply)
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
        subscription = Subscription(self, pattern, callback)
        self._run(Operations._subscribe(self, subscription))
        return subscription

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that is not for callbacks only (these are called); None after ``timeout`` seconds."""
        self._receives = True
        return self._next(timeout)

    def dispatch(self) -> None:
        """For select loops: call the callbacks of all that waits. Other messages wait for ``receive``."""
        self._check()
        self._work(READ_LIMIT)
        try:
            while self._inbox.backlog:
                self._call_back()
            if self._inbox.waiting_size > GLANCE_LIMIT:
                self._drop_unclaimed()
        finally:
            self._settle()

    def fileno(self) -> int:
        """A descriptor for select loops: readable means ``dispatch``. It survives reconnections, not fork."""
        self._check()
        if self._readiness is None:
            from bccn.readiness import Readiness

            self._readiness = Readiness()
        self._settle()
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
            while True:
                yield self._run(coming.__anext__())
        except StopAsyncIteration:
            return
        finally:
            finish(coming.aclose())

    def serve(self, pattern: str, handler: Callable[[Request], bytes | str | None]) -> Subscription:
        """Reply to requests on the channels that match with what ``handler`` returns, or later if that is None.

        Needs ``format="full"``. The pattern ``!`` stands for requests to all and to this program. The handler runs
        inside ``receive`` or ``dispatch``.
        """
        subscription = Subscription(self, pattern)
        serving = Operations._serve
        self._run(serving(self, subscription, handler, lambda answer, request: self._run(answer(request))))
        return subscription

    @property
    def name(self) -> str:
        """Own src, as others see it."""
        if not self.connected:
            self._run(self._available())
        return super().name

    def close(self) -> None:
        """Let go of the connection at once; ``with`` waits for a barrier first. Never raises."""
        self._close()
        self._readiness = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and not self._closed and self._unsettled:
                self.barrier()
        finally:
            self.close()

    # --- how it waits ---

    def _is_over(self) -> bool:
        return bool(self._closed)

    def _next(self, timeout: float | None, of: Held | None = None) -> Message | None:
        if get_ident() != self._owner:
            self._claim()
        inbox = self._inbox
        stream = inbox.received if of is None else inbox.open_stream(of)
        if not stream:
            deadline = FOREVER if timeout is None else monotonic() + timeout
            while not stream:
                if inbox.backlog:
                    self._call_back()
                    continue
                if of is not None:
                    inbox.open_stream(of)  # a callback may have closed it
                    if inbox.waiting_size > GLANCE_LIMIT and not inbox.fills_stream:
                        self._drop_unclaimed()
                self._settle()
                self._check(asks=True)
                if not self._step(deadline) and not stream and not inbox.backlog:
                    self._settle()
                    return None
        if self._notices or self._readiness is not None:
            self._settle()
        return inbox.next_of(stream)

    def _run(self, operation: Coroutine[Any, Any, T]) -> T:
        try:
            self._claim()
        except InvalidError:
            operation.close()
            raise
        try:
            return finish(operation)
        finally:
            self._glance()

    def _glance(self) -> None:
        """Settle, and once in a while see what the daemon has to say to a program that only publishes."""
        if (now := monotonic()) >= self._glance_due:
            self._glance_due = now + GLANCE_INTERVAL
            if self._inbox.waiting_size < GLANCE_LIMIT:
                self._work(READ_LIMIT)
        self._settle()

    async def _give_way(self) -> None:
        self._glance()

    def _settle(self) -> None:
        """At the end of each call: pass on notices, have select loops know how things stand."""
        if self._notices:
            self._pass_on_notices()
        if self._readiness is not None and not self._closed:
            socket = -1 if self._transport is None else self._transport.fileno()
            self._readiness.watch(socket, READABLE | WRITABLE * bool(self._unsent))
            self._readiness.set_timer(0.0 if self._inbox else self._due)

    def _call_back(self) -> None:
        message, callbacks = self._inbox.take()
        for callback in callbacks:
            callback(message)

    def _closing(self, _transport: Transport, /) -> None:
        if self._readiness is not None:
            self._readiness.watch(-1)
