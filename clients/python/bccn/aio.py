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
from contextlib import asynccontextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any, Self

from bccn.errors import ClosedError, ProtocolError, RejectedError
from bccn.exchange import FOREVER, Pending, Request
from bccn.operations import Bus, Handler, Operations, answer, take_requests
from bccn.protocol import Message
from bccn.session import Session
from bccn.transport import Transport

READ_AHEAD_LIMIT = 1024 * 1024
# Packets read in one turn of the loop.
READ_LIMIT = 64


class AsyncSession(Session):
    """``on_news`` is called when something was read, and when the connection came, went or was closed."""

    on_news: Callable[[], None]
    read_ahead = READ_AHEAD_LIMIT
    reading = _writing = False
    _timer: asyncio.TimerHandle | None = None  # one for all who wait: most are answered long before
    _timer_due = FOREVER

    def _begin_life(self) -> None:
        super()._begin_life()
        self._deadlines: dict[Callable[[], None], float] = {}

    async def wait(self, pending: Pending, deadline: float) -> bool:
        self.attend()
        if pending.done:
            return True
        woken: asyncio.Future[None] = get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        pending.wakers.append(wake)
        self._deadlines[wake] = deadline
        self._set_timer(deadline)
        try:
            await woken
        finally:
            pending.wakers.remove(wake)
            del self._deadlines[wake]
        return pending.done

    async def give_way(self) -> None:
        await asyncio.sleep(0)

    def attend(self) -> None:
        """Have the loop watch what matters now."""
        if self.transport is not None:
            reading, writing = self.wants_packets, self.wants_room
            if reading != self.reading or writing != self._writing:
                self._watch(self.transport, reading, writing)
        self._set_timer(self.due)

    def _set_timer(self, due: float) -> None:
        """Have ``_on_time`` called then, or earlier."""
        if due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_due = (
                get_running_loop().call_later(due - monotonic(), self._on_time),
                due,
            )

    def _on_time(self) -> None:
        self._timer_due, now = FOREVER, monotonic()
        for wake, deadline in self._deadlines.items():
            if deadline <= now:
                wake()
        self._set_timer(min((due for due in self._deadlines.values() if due > now), default=FOREVER))
        self._on_ready()

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

    def changed(self) -> None:
        self.on_news()
        self.attend()

    def closing(self, transport: Transport, /) -> None:
        self._watch(transport, False, False)

    def close(self) -> None:
        super().close()
        if self._timer is not None:
            self._timer.cancel()

    def forked(self) -> None:
        super().forked()
        self.closed, self.due = "the client was made before fork: make another one here", FOREVER

    def _on_ready(self) -> None:
        with suppress(ProtocolError):  # the connection has ended with it, and a notice says so
            self.work(READ_LIMIT)
        self.changed()


class AsyncClient(Bus, Operations):
    """As ``Client``, with ``await``: ``async with``, or ``connect`` and ``close``. Not for a child of fork."""

    _driver = AsyncSession
    _session: AsyncSession

    def _begin(self, wait: float) -> None:
        self._session.on_news = self._on_news
        self._wait = wait
        self._receives = False  # somebody has called ``receive``
        self._arrival = Pending()  # something to receive, or never again; then another one
        self._calling: asyncio.Task[None] | None = None  # takes the messages that have callbacks
        self._tasks: set[asyncio.Task[None]] = set()  # those of callbacks and handlers

    @asynccontextmanager
    async def batch(self) -> AsyncIterator[None]:
        """``async with client.batch():`` what is published meanwhile goes packed; see ``Client.batch``."""
        is_outermost = await self.open_batch()
        try:
            yield
        finally:
            if is_outermost:
                await self.close_batch()

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that is not only for callbacks; None after ``timeout`` seconds."""
        self._receives = True
        session, inbox = self._session, self._session.inbox
        deadline = FOREVER if timeout is None or inbox.received else monotonic() + timeout
        while not inbox.received:
            session.check()
            if not await session.wait(self._arrival, deadline) and not inbox.received:
                return None
        message = inbox.next_received()
        if not session.reading:
            session.attend()
        return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages, until the client is closed."""
        while True:
            try:
                if (message := await self.receive()) is not None:
                    yield message
            except ClosedError:
                if self._session.closed:
                    return
                raise  # another client's, out of a callback

    async def serve(self, pattern: str, handler: Handler, *, concurrency: int = 1) -> None:
        """Answer requests with what ``handler`` returns, or its coroutine; see ``Client.serve``.

        At most ``concurrency`` are answered at a time; the next waits in the daemon's queue.
        """
        slots = asyncio.Semaphore(concurrency)

        async def take(request: Request) -> None:
            await slots.acquire()
            work = self._call(partial(answer, self, handler), request, "a request could not be answered")
            task = self._start(work)
            task.add_done_callback(lambda _: slots.release())

        await take_requests(self, pattern, take)

    @property
    def name(self) -> str:
        """Own src, as others see it; empty while there is no connection."""
        return self._session.name or ""

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
        tasks = self._tasks - {asyncio.current_task()}
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

    def _on_news(self) -> None:
        """Have those who wait for messages take them, and the task of callbacks; pass on notices."""
        session, inbox = self._session, self._session.inbox
        if inbox.backlog:
            if not session.closed and (self._calling is None or self._calling.done()):
                self._calling = self._start(self._call_back())
        elif inbox.has_callbacks and inbox.waiting_size > session.read_ahead:
            self._drop_unclaimed()
        if inbox.received or session.closed or session.gone:
            self._arrival.finish()
            self._arrival = Pending()
        session.pass_on_notices()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the client."""
        task = get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _call_back(self) -> None:
        session, inbox = self._session, self._session.inbox
        while inbox.backlog and not session.closed:
            message, callbacks = inbox.take()
            for callback in callbacks:
                await self._call(callback, message)
            self._on_news()
            if not session.reading:
                session.attend()

    async def _call(self, function: Callable[[Any], object], message: Message, complaint: str = "") -> None:
        """An exception of a callback is the loop's to report, as for every callback of asyncio."""
        try:
            result = function(message)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001
            text = complaint or f"bccn callback for {message.channel} failed"
            context = {"message": text, "exception": error, "task": asyncio.current_task()}
            get_running_loop().call_exception_handler(context)

    def _drop_unclaimed(self) -> None:
        """When all is done by callbacks and none takes ``!`` messages, these must not stop the others."""
        inbox = self._session.inbox
        if self._receives or any(callback is None for _, callback in inbox.subscriptions):
            return
        count = len(inbox.received)
        inbox.clear()
        text = f"{count} messages to all or to this program dropped: give listen() a callback for them"
        self._session.notify("unclaimed", text, count)
