"""The asyncio client, on asyncio's own loops and on uvloop.

Rules:
1. The loop watches one descriptor (``Readiness``), which says when there is something to do. No task is needed.
2. Reading pauses while more than READ_AHEAD_LIMIT bytes of messages wait to be received (then the daemon's queue for
   this client fills, and its policy decides), but never while an answer is awaited.
3. Callbacks run in one task, one after the other, so that a slow one fills the daemon's queue, not memory here.
   ``on_notice`` is called at once.
"""

# ruff: noqa: SLF001 - a subscription is a part of its client

from __future__ import annotations

import asyncio
import inspect
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any, Self

from bccn.errors import ClosedError, InvalidError, ProtocolError
from bccn.exchange import FOREVER, Pending, Request
from bccn.inbox import Callback, Held
from bccn.operations import Handler, Operations
from bccn.protocol import Message
from bccn.readiness import Readiness
from bccn.session import BACKLOG_LIMIT, READ_LIMIT

READ_AHEAD_LIMIT = 1024 * 1024


class AsyncStream:
    """As ``client.Stream``."""

    _is_over: Callable[[], bool]
    receive: Callable[[], Awaitable[Message | None]]
    close: Callable[[], Awaitable[None]]

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages, until it is closed."""
        try:
            while not self._is_over() and (message := await self.receive()) is not None:
                yield message
        except ClosedError:
            if not self._is_over():  # another client's, out of a callback
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close()


class AsyncSubscription(Held, AsyncStream):
    """As ``Subscription``, with ``await``."""

    _client: AsyncClient

    async def close(self) -> None:
        """End it; see ``Subscription.close``."""
        await self._client._unsubscribe(self)

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that matches; None after ``timeout`` seconds."""
        return await self._client._next(timeout, self)


class AsyncClient(Operations, AsyncStream):
    """As ``Client``, with ``await``: ``async with``, or ``connect`` and ``close``. Not for a child of fork."""

    _read_ahead = READ_AHEAD_LIMIT
    _loop: AbstractEventLoop | None = None
    _calling: asyncio.Task[None] | None = None  # takes the messages that have callbacks

    async def subscribe(self, pattern: str, callback: Callback | None = None) -> AsyncSubscription:
        """Returns when it is in force; see ``Client.subscribe``."""
        return await self._subscribe(AsyncSubscription(pattern, callback, self))

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that is not only for callbacks; None after ``timeout`` seconds."""
        self._receives = True
        return await self._next(timeout)

    async def serve(self, pattern: str, handler: Handler, *, concurrency: int = 1) -> AsyncSubscription:
        """Reply to requests with what ``handler`` returns, or its coroutine; see ``Client.serve``.

        At most ``concurrency`` are carried out at a time; the next waits in the daemon's queue.
        """
        slots = asyncio.Semaphore(concurrency)

        async def carry_out(answer: Callable[[Request], object], request: Request) -> None:
            await slots.acquire()
            self._start(self._call(answer, request)).add_done_callback(lambda _: slots.release())

        return await self._serve(AsyncSubscription(pattern, None, self), handler, carry_out)

    async def connect(self) -> None:
        """Connect; tries for ``wait`` seconds. Raises UnavailableError, RejectedError."""
        if self._readiness is None:
            self._loop, self._readiness = get_running_loop(), Readiness()
            self._loop.add_reader(self._readiness.fileno(), self._on_ready)
        if not self.connected:
            await self._connect()

    async def close(self) -> None:
        """Let go of the connection at once; ``async with`` waits for a barrier first."""
        self._close()
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and not self._closed and self._unsettled:
                await self.barrier()
        finally:
            await self.close()

    # --- how it waits ---

    def _begin_life(self) -> None:
        super()._begin_life()
        self._deadlines: dict[Callable[[], None], float] = {}  # of those who wait
        self._arrival = Pending()  # something to receive, or never again; then another one
        self._tasks: set[asyncio.Task[None]] = set()  # those of callbacks and handlers

    def _forked(self) -> None:
        super()._forked()
        self._closed, self._due = "the client was made before fork: make another one here", FOREVER

    def _check(self, *, asks: bool = False) -> None:
        super()._check(asks=asks)
        if self._loop is not get_running_loop():
            raise InvalidError("the client belongs to another loop: make a client for each")

    @property
    def _wants_packets(self) -> bool:
        """Also while somebody waits for a message, and those of others fill the streams."""
        is_empty = not self._inbox.backlog and self._inbox.waiting_size <= BACKLOG_LIMIT
        return (is_empty and bool(self._arrival.wakers)) or super()._wants_packets

    async def _next(self, timeout: float | None, of: Held | None = None) -> Message | None:
        inbox = self._inbox
        stream = inbox.received if of is None else inbox.open_stream(of)
        deadline = FOREVER if timeout is None or stream else monotonic() + timeout
        while not stream:
            if of is not None:
                inbox.open_stream(of)  # it may have been closed meanwhile
            self._check(asks=True)
            await self._wait(self._arrival, deadline)
            if not stream and monotonic() >= deadline:
                return None
        message = inbox.next_of(stream)
        if not self._reading:
            self._settle()
        return message

    async def _wait(self, pending: Pending, deadline: float) -> None:
        woken: asyncio.Future[None] = get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        pending.wakers |= {wake}
        self._deadlines[wake] = deadline
        if deadline < self._alarm:
            self._alarm = deadline
        try:
            self._settle()
            if not pending.done:
                await woken
        finally:
            pending.wakers -= {wake}
            del self._deadlines[wake]

    async def _give_way(self) -> None:
        await asyncio.sleep(0)

    def _on_ready(self) -> None:
        """What there is to do: also when the time is over of some who wait. Most are answered long before."""
        if (now := monotonic()) >= self._alarm:
            for wake, deadline in self._deadlines.items():
                if deadline <= now:
                    wake()
            self._alarm = min((due for due in self._deadlines.values() if due > now), default=FOREVER)
        with suppress(ProtocolError):  # the connection has ended with it, and a notice says so
            self._work(READ_LIMIT)
        self._changed()

    def _changed(self) -> None:
        """Have those who wait for messages take them, and the task of callbacks; pass on notices."""
        inbox = self._inbox
        if inbox.backlog:
            if not self._closed and (self._calling is None or self._calling.done()):
                self._calling = self._start(self._call_back())
        elif inbox.has_routes and inbox.waiting_size > self._read_ahead and not inbox.fills_stream:
            self._drop_unclaimed()
        is_over = self._closed or (self._transport is None and self._due == FOREVER)
        if inbox.received or inbox.has_routes or is_over:
            self._arrival.finish()
            self._arrival = Pending()
        self._settle()
        if is_over and self._readiness is not None and self._loop is not None:
            self._loop.remove_reader(self._readiness.fileno())
            self._readiness = None

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the client."""
        task = get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _call_back(self) -> None:
        while self._inbox.backlog and not self._closed:
            message, callbacks = self._inbox.take()
            for callback in callbacks:
                await self._call(callback, message)
            if self._inbox.received or self._notices or not self._reading:
                self._changed()

    async def _call(self, function: Callable[[Any], object], message: Message) -> None:
        """An exception of a callback is the loop's to report, as for every callback of asyncio."""
        try:
            result = function(message)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001
            text = f"bccn callback for {message.channel} failed"
            context = {"message": text, "exception": error, "task": asyncio.current_task()}
            get_running_loop().call_exception_handler(context)
