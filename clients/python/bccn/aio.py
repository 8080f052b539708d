"""The asyncio client, on asyncio's own loops and on uvloop.

Callbacks run in one task, in the order of the messages. A coroutine function is awaited before the next one is
called, so that a slow callback fills the daemon's queue, not memory here. ``on_notice`` is called at once.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from bccn.aio_driver import READ_AHEAD_LIMIT, AsyncConnection
from bccn.connection import FOREVER
from bccn.errors import ClosedError, RejectedError
from bccn.exchange import Pending, Request, request_in
from bccn.operations import Bus, Operations
from bccn.protocol import Message
from bccn.session import Callback

Handler = Callable[[Request], bytes | str | Awaitable[bytes | str | None] | None]


class AsyncClient(Bus, Operations):
    """As ``Client``, with ``await``: ``async with``, or ``connect`` and ``close``. Not for a child of fork.

    ``Bus`` says what the arguments mean. A callback may be a coroutine function.
    """

    _driver = AsyncConnection
    _connection: AsyncConnection

    def _begin(self, wait: float) -> None:
        Operations.__init__(self, self._session, self._connection)
        self._connection.on_news = self._on_news
        self._wait = wait
        self._receives = False  # somebody has called ``receive``
        self._arrival = Pending()  # something to receive, or never again; then another one
        self._callable = asyncio.Event()  # something for the callbacks
        self._caller: asyncio.Task[None] | None = None
        self._services: list[Service] = []

    # --- publishing ---

    async def publish_many(self, messages: Iterable[tuple[str, bytes | str]]) -> None:
        """Publish (channel, payload) pairs, packed where that was agreed."""
        async with self.batch():
            for channel, payload in messages:
                await self.publish(channel, payload)

    @asynccontextmanager
    async def batch(self) -> AsyncIterator[None]:
        """``async with client.batch():`` what is published meanwhile goes packed; see ``Client.batch``."""
        is_outermost = await self.open_batch()
        try:
            yield
        finally:
            if is_outermost:
                await self.close_batch()

    # --- receiving ---

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that is not only for callbacks; None after ``timeout`` seconds."""
        self._receives = True
        session = self._session
        if not session.received:
            deadline = FOREVER if timeout is None else time.monotonic() + timeout
            while not session.received:
                self._connection.check()
                if not await self._connection.wait(self._arrival, deadline) and not session.received:
                    return None
        message = session.next_received()
        if not self._connection.reading:
            self._connection.attend()
        return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages, until the client is closed."""
        while True:
            try:
                message = await self.receive()
            except ClosedError:
                if self._connection.closed:
                    return
                raise  # another client's, out of a callback
            if message is not None:
                yield message

    async def serve(self, pattern: str, handler: Handler, *, concurrency: int = 1) -> None:
        """Answer requests with what ``handler`` returns, or its coroutine; see ``Client.serve``.

        At most ``concurrency`` are answered at a time; the next waits in the daemon's queue.
        """
        self._session.require_full()
        service = Service(self, handler, concurrency)
        self._services.append(service)
        if pattern == "!":
            await self.listen(service.take)
        else:
            await self.subscribe(pattern, service.take)

    # --- life ---

    @property
    def name(self) -> str:
        """Own src, as others see it; empty while there is no connection."""
        return self._session.name or ""

    async def connect(self) -> None:
        """Connect; tries for ``wait`` seconds. Raises UnavailableError, RejectedError."""
        if self._connection.closed:
            raise ClosedError("the client is closed")
        if self._connection.ready:
            return
        try:
            await self._connection.connect(self._wait)
        except RejectedError:
            await self.close()
            raise

    async def close(self) -> None:
        """Let go of the connection at once; ``async with`` waits for a barrier first."""
        self._connection.close()
        task, self._caller = self._caller, None
        tasks = {task} if task else set()
        for service in self._services:
            tasks |= service.tasks
        tasks.discard(asyncio.current_task())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self._connection.closed and self._session.unsettled:
                await self.barrier()
        finally:
            await self.close()

    # --- what came ---

    def _on_news(self) -> None:
        """Hand messages to those who wait for them (with callbacks: to their task), pass on notices."""
        session, connection = self._session, self._connection
        if session.has_callbacks:
            if self._caller is None and not connection.closed:
                self._caller = asyncio.get_running_loop().create_task(self._call_back())
            self._callable.set()
            if session.waiting_size > READ_AHEAD_LIMIT and not session.backlog and not self._has_receiver:
                self._drop_unclaimed()
        else:
            while session.backlog:
                session.take()
        over = connection.closed or connection.gone
        if over:
            session.exchanges.wake()
        if over or session.received:
            arrival, self._arrival = self._arrival, Pending()
            arrival.finish()
        session.pass_on_notices()

    async def _call_back(self) -> None:
        while not self._connection.closed:
            await self._callable.wait()
            self._callable.clear()
            while self._session.backlog and not self._connection.closed:
                message, callbacks = self._session.take()
                for callback in callbacks:
                    await self._call(callback, message)
                self._on_news()
                if not self._connection.reading:
                    self._connection.attend()

    async def _call(self, callback: Callback, message: Message) -> None:
        """An exception of a callback is the loop's to report, as for every callback of asyncio."""
        try:
            result = callback(message)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"bccn callback for {message.channel} failed", "exception": error}
            )

    @property
    def _has_receiver(self) -> bool:
        """Whether messages without a callback are for somebody."""
        subscriptions = self._session.subscriptions
        return self._receives or any(callback is None for _, callback in subscriptions)

    def _drop_unclaimed(self) -> None:
        """All is done by callbacks and none takes ``!`` messages: these must not stop the others."""
        count = len(self._session.received)
        while self._session.received:
            self._session.next_received()
        text = f"{count} messages to all or to this program dropped: give listen() a callback for them"
        self._session.notify("unclaimed", text, count)


class Service:
    """See ``AsyncClient.serve``."""

    def __init__(self, client: AsyncClient, handler: Handler, concurrency: int) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        self._client = client
        self._handler = handler
        self._slots = asyncio.Semaphore(concurrency)

    async def take(self, message: Message) -> None:
        request = request_in(message)
        if request is None:
            return
        await self._slots.acquire()
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a request could not be answered", "exception": error, "task": task}
            )

    async def _answer(self, request: Request) -> None:
        reply = self._handler(request)
        if inspect.isawaitable(reply):
            reply = await reply
        if reply is not None:
            await self._client.reply(request, reply)
