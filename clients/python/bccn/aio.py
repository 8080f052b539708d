"""The asyncio client, on asyncio's own loops and on uvloop.

Rules:
1. The loop watches the socket and calls when an attempt to connect is due. No task of its own is needed.
2. Reading pauses while more than READ_AHEAD_LIMIT bytes of messages wait to be received (then the daemon's queue for
   this client fills, and its policy decides), but never while an answer is awaited.
3. Callbacks run in one task, one after the other, so that a slow one fills the daemon's queue, not memory here.
   ``on_notice`` is called at once.
"""

import asyncio
import inspect
from asyncio import get_running_loop
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Self

from bccn.errors import ClosedError, ProtocolError, RejectedError
from bccn.exchange import FOREVER, Pending, Request
from bccn.operations import Bus, Handler, Operations, answer, take_requests
from bccn.protocol import Message
from bccn.session import Session
from bccn.transport import POLL_LIMIT, Transport

READ_AHEAD_LIMIT = 1024 * 1024
# Packets read in one turn of the loop.
READ_LIMIT = 64


class AsyncSession(Session):
    read_ahead = READ_AHEAD_LIMIT
    receives = False  # somebody has called ``receive``
    reading = _writing = False  # what the loop watches the transport for
    _timer: asyncio.TimerHandle | None = None
    _timer_due = FOREVER
    _calling: asyncio.Task[None] | None = None  # takes the messages that have callbacks

    def _begin_life(self) -> None:
        super()._begin_life()
        self.arrival = Pending()  # something to receive, or never again; then another one
        self.tasks: set[asyncio.Task[None]] = set()  # those of callbacks and handlers

    async def wait(self, pending: Pending, deadline: float) -> None:
        self.attend()
        if pending.done:
            return
        loop = get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        pending.wakers += (wake,)
        timer = loop.call_later(min(deadline - monotonic(), POLL_LIMIT), wake)
        try:
            await woken
        finally:
            timer.cancel()
            pending.wakers = tuple(each for each in pending.wakers if each is not wake)

    async def give_way(self) -> None:
        await asyncio.sleep(0)

    def attend(self) -> None:
        """Have the loop watch what matters now."""
        if self.transport is not None:
            reading, writing = self.wants_packets, bool(self.unsent)
            if reading != self.reading or writing != self._writing:
                self._watch(self.transport, reading, writing)
        if self.due != self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = self.due
            if self.due != FOREVER:
                self._timer = get_running_loop().call_later(self.due - monotonic(), self._on_time)

    def _watch(self, transport: Transport, reading: bool, writing: bool) -> None:
        loop, descriptor = get_running_loop(), transport.fileno()
        if reading:
            loop.add_reader(descriptor, self._on_ready)
        else:
            loop.remove_reader(descriptor)
        if writing:
            loop.add_writer(descriptor, self._on_ready)
        else:
            loop.remove_writer(descriptor)
        self.reading, self._writing = reading, writing

    def closing(self, transport: Transport, /) -> None:
        self._watch(transport, False, False)

    def forked(self) -> None:
        super().forked()
        self.closed, self.due = "the client was made before fork: make another one here", FOREVER

    def _on_time(self) -> None:
        self._timer_due = FOREVER  # uvloop may be a moment early
        self._on_ready()

    def _on_ready(self) -> None:
        with suppress(ProtocolError):  # the connection has ended with it, and a notice says so
            self.work(READ_LIMIT)
        self.changed()

    def changed(self) -> None:
        self.pass_on()
        self.attend()

    def pass_on(self) -> None:
        """Have those who wait for messages take them, and the task of callbacks; pass on notices."""
        inbox = self.inbox
        if inbox.backlog:
            if not self.closed and (self._calling is None or self._calling.done()):
                self._calling = self.start(self._call_back())
        elif inbox.has_callbacks and inbox.waiting_size > self.read_ahead:
            self._drop_unclaimed()
        if inbox.received or self.closed or self.gone:
            self.arrival.finish()
            self.arrival = Pending()
        self.pass_on_notices()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the client."""
        task = get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _call_back(self) -> None:
        while self.inbox.backlog and not self.closed:
            message, callbacks = self.inbox.take()
            for callback in callbacks:
                await self.call(callback, message)
            self.pass_on()
            if not self.reading:
                self.attend()

    async def call(self, function: Callable[[Any], object], message: Message) -> None:
        """An exception of a callback is the loop's to report, as for every callback of asyncio."""
        try:
            result = function(message)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001
            text = f"bccn callback for {message.channel} failed"
            context = {"message": text, "exception": error, "task": asyncio.current_task()}
            get_running_loop().call_exception_handler(context)

    def _drop_unclaimed(self) -> None:
        """When all is done by callbacks and none takes ``!`` messages, these must not stop the others."""
        if self.receives or any(callback is None for _, callback in self.inbox.subscriptions):
            return
        count = len(self.inbox.received)
        self.inbox.clear()
        text = f"{count} messages to all or to this program dropped: give listen() a callback for them"
        self.notify("unclaimed", text, count)


class AsyncClient(Bus, Operations):
    """As ``Client``, with ``await``: ``async with``, or ``connect`` and ``close``. Not for a child of fork."""

    _driver = AsyncSession
    _session: AsyncSession

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that is not only for callbacks; None after ``timeout`` seconds."""
        session, inbox = self._session, self._session.inbox
        session.receives = True
        deadline = FOREVER if timeout is None or inbox.received else monotonic() + timeout
        while not inbox.received:
            session.check()
            await session.wait(session.arrival, deadline)
            if not inbox.received and monotonic() >= deadline:
                return None
        message = inbox.next_received()
        if not session.reading:
            session.attend()
        return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages, until the client is closed."""
        try:
            while (message := await self.receive()) is not None:
                yield message
        except ClosedError:
            if not self._session.closed:  # another client's, out of a callback
                raise

    async def serve(self, pattern: str, handler: Handler, *, concurrency: int = 1) -> None:
        """Answer requests with what ``handler`` returns, or its coroutine; see ``Client.serve``.

        At most ``concurrency`` are answered at a time; the next waits in the daemon's queue.
        """
        slots = asyncio.Semaphore(concurrency)

        async def take(request: Request) -> None:
            await slots.acquire()
            task = self._session.start(self._session.call(partial(answer, self, handler), request))
            task.add_done_callback(lambda _: slots.release())

        await take_requests(self, pattern, take)

    @property
    def name(self) -> str:
        """Own src, as others see it; empty while there is no connection."""
        return self._session.name

    async def connect(self) -> None:
        """Connect; tries for ``wait`` seconds. Raises UnavailableError, RejectedError."""
        if self._session.closed:
            raise ClosedError("the client is closed")
        try:
            if not self._session.ready:
                await self._session.connect(self._wait)
        except RejectedError:
            await self.close()
            raise

    async def close(self) -> None:
        """Let go of the connection at once; ``async with`` waits for a barrier first."""
        self._session.close()
        tasks = self._session.tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and not self._session.closed and self._session.unsettled:
                await self.barrier()
        finally:
            await self.close()
