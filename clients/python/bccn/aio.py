"""The asyncio client, on asyncio's own loops and on uvloop.

Callbacks run in one task, in the order of the messages; a coroutine function is awaited before the next one,
so that a slow callback is felt in the daemon's queue, not in memory here. ``on_notice`` is called at once.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from bccn.aio_connection import READ_AHEAD_LIMIT, AsyncConnection
from bccn.errors import ClosedError, RejectedError, UnavailableError
from bccn.exchange import Exchange, Request, request_in
from bccn.protocol import Message, Packer, build_msg, build_sub, build_unsub
from bccn.session import Notice, Session, log_notice

if TYPE_CHECKING:
    from bccn.session import Callback

Handler = Callable[[Request], bytes | str | Awaitable[bytes | str | None] | None]

PUBLISH_TURN = 64  # messages published in a row before other tasks get a turn


class AsyncClient:
    """As ``Client``, with ``await``: ``async with``, or ``connect`` and ``close``. Not for a child of fork.

    ``format``, ``pack`` and the rest mean what they mean for ``Client``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        format: str = "plain",  # noqa: A002 - the protocol's word
        pack: bool = False,
        echo: bool = True,
        separator: str = "/",
        queue: Mapping[str, int | str] | None = None,
        tap: bool = False,
        reconnect: bool = True,
        timeout: float = 5.0,
        wait: float = 0.0,
        on_notice: Callable[[Notice], Any] | None = None,
    ) -> None:
        self.on_notice = on_notice
        self._session = Session(
            name=name, format=format, pack=pack, echo=echo, separator=separator, queue=queue, tap=tap
        )
        self._connection = AsyncConnection(
            self._session, path, reconnect=reconnect, timeout=timeout, on_news=self._on_news
        )
        self._wait = wait
        self._packer: Packer | None = None
        self._turn = 0
        self._receives = False  # somebody has called ``receive``
        self._arrived = asyncio.Event()  # something to receive, or never again
        self._callable = asyncio.Event()  # something for the callbacks
        self._caller: asyncio.Task[None] | None = None
        self._services: list[Service] = []

    # --- publishing ---

    async def publish(self, channel: str, payload: bytes | str = b"") -> None:
        """Hand one message to the daemon; see ``Client.publish``."""
        packet = build_msg(channel, payload)
        await self._transmit([(packet, 1)] if self._packer is None else self._packer.add(packet))
        self._turn += 1
        if self._turn % PUBLISH_TURN == 0:
            await asyncio.sleep(0)

    async def publish_many(self, messages: Iterable[tuple[str, bytes | str]]) -> None:
        async with self.batch():
            for channel, payload in messages:
                await self.publish(channel, payload)

    def batch(self) -> AsyncBatch:
        """``async with client.batch():`` what is published meanwhile goes packed (with ``pack=True``)."""
        return AsyncBatch(self)

    async def send_all(self, payload: bytes | str) -> None:
        """To every listening program of the segment."""
        await self.publish("!", payload)

    async def send_to(self, target: str, payload: bytes | str) -> None:
        """To the program whose src is ``target``, or to all below it."""
        await self.publish("!" + target, payload)

    async def send_datagram(self, datagram: bytes) -> None:
        """Relay a whole BCCN1 datagram from elsewhere as it is. Needs the bridge right."""
        await self._connection.transmit(datagram)
        self._session.published += 1

    async def barrier(self, timeout: float | None = None) -> None:
        """Return when the daemon has processed everything sent before; see ``Client.barrier``."""
        await self._ask("ping", timeout=timeout)
        self._session.raise_rejections()

    # --- subscribing ---

    async def subscribe(self, pattern: str, callback: Callback | None = None) -> None:
        """Returns when it is in force. ``callback`` may be a coroutine function."""
        packet = build_sub(pattern)
        self._call_from_now_on(callback)
        try:
            await self._ask("ping", before=packet, enter=lambda: self._session.subscribe(pattern, callback))
        except RejectedError:
            self._session.unsubscribe(pattern, callback)
            raise

    async def unsubscribe(self, pattern: str, callback: Callback | None = None) -> None:
        """Take back one ``subscribe``, the last one of that pattern (and callback, where given)."""
        packet = build_unsub(pattern)
        await self._ask("ping", before=packet, enter=lambda: self._session.unsubscribe(pattern, callback))

    async def listen(self, callback: Callback | None = None) -> None:
        """Receive messages to all (``!``) and to this program without subscribing; ``callback`` as above."""
        self._session.listen(callback)
        self._call_from_now_on(callback)
        await self._ask("listen")

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that is not only for callbacks; None after ``timeout`` seconds."""
        self._receives = True
        if not self._session.received:
            try:
                async with asyncio.timeout(timeout):
                    await self._wait_for_message()
            except TimeoutError:
                return None
        message = self._session.next_received()
        self._connection.regulate()
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

    async def _wait_for_message(self) -> None:
        while not self._session.received:
            self._check_connection()
            self._arrived.clear()
            await self._arrived.wait()

    def _check_connection(self) -> None:
        """There is one, or there will be."""
        if self._connection.closed:
            raise ClosedError("the client is closed")
        if self._connection.gone:
            raise UnavailableError("the connection to the daemon is gone")

    # --- request and reply ---

    async def request(
        self,
        channel: str,
        payload: bytes | str = b"",
        timeout: float | None = None,
        replies: int | None = 1,
        *,
        wait_anyway: bool = False,
    ) -> list[Message]:
        """Ask on ``channel`` and await so many replies, or None for all until ``timeout``; see ``Client.request``."""
        coming = self.replies_to(channel, payload, timeout, replies, wait_anyway=wait_anyway)
        return [reply async for reply in coming]

    async def replies_to(
        self,
        channel: str,
        payload: bytes | str = b"",
        timeout: float | None = None,
        replies: int | None = None,
        *,
        wait_anyway: bool = False,
    ) -> AsyncGenerator[Message]:
        """The replies as they come; see ``Client.replies_to``."""
        session, connection = self._session, self._connection
        timeout = connection.timeout if timeout is None else timeout
        exchange = session.exchanges.begin(
            channel, payload, time.monotonic(), timeout, wanted=replies, anyway=wait_anyway
        )
        arrived = asyncio.Event()
        exchange.wake = arrived.set
        try:
            await self._publish_request(exchange)
            while True:
                arrived.clear()
                while (reply := exchange.next_reply()) is not None:
                    yield reply
                now = time.monotonic()
                if exchange.over(now):
                    return
                if exchange.must_ask(now):
                    exchange.asked(
                        await self._ask("listeners", exchange.question, timeout=exchange.deadline - now)
                    )
                self._check_connection()
                connection.check_backlog()
                with suppress(TimeoutError):
                    async with asyncio.timeout(exchange.until - time.monotonic()):
                        await arrived.wait()
        finally:
            session.exchanges.end(exchange)
            connection.regulate()

    async def _publish_request(self, exchange: Exchange) -> None:
        """Hand it to the daemon, once, and learn who listens here. What was published before is settled first."""
        await self._send_batch()
        if not self._session.exchanges.listening:
            await self._ask("listen")
            self._session.exchanges.listening = True
        elif self._session.unconfirmed:
            await self._ask("ping")
        exchange.on_its_way = True
        await self._transmit([(exchange.packet, 1)])
        exchange.published(await self._ask("listeners", exchange.channel), time.monotonic())

    async def reply(self, request: Request, payload: bytes | str = b"") -> None:
        """Answer a request; as ``publish``."""
        await self.publish(*request.reply(payload))

    async def serve(self, pattern: str, handler: Handler, *, concurrency: int = 1) -> None:
        """Answer requests with what ``handler`` returns, or its coroutine; see ``Client.serve``.

        ``concurrency``: so many at a time; the next waits in the daemon's queue.
        """
        self._session.require_full()
        service = Service(self, handler, concurrency)
        self._services.append(service)
        if pattern == "!":
            await self.listen(service.take)
        else:
            await self.subscribe(pattern, service.take)

    # --- asking ---

    @property
    def name(self) -> str:
        """Own src, as others see it; empty while there is no connection."""
        return self._session.name or ""

    @property
    def lost(self) -> int:
        """Messages the daemon had to drop for this client because it read too slowly."""
        return self._session.lost

    @property
    def connected(self) -> bool:
        return self._connection.greeted

    async def set_name(self, name: str) -> None:
        """Take another src; kept over reconnections. Raises RejectedError (bad-name, name-taken, refused)."""
        self._session.name = await self._ask("name", name)
        self._session.wanted_name = name

    async def heartbeat(self, seconds: int, text: str = "") -> None:
        """Have the daemon say regularly that we are there; see ``Client.heartbeat``."""
        value = self._session.heartbeat_request(seconds, text)
        await self._ask("heartbeat", value)
        self._session.heartbeat = value if seconds else ""

    async def control(self, key: str, value: str | None = None) -> str:
        """Any control request; see ``Client.control``."""
        return await self._ask(key, value)

    async def status(self) -> dict[str, Any]:
        """The daemon's state and counters."""
        state: dict[str, Any] = json.loads(await self._ask("status"))
        return state

    async def clients(self) -> list[dict[str, Any]]:
        """The programs on this bus."""
        return await self._pages("clients")

    async def sources(self) -> list[dict[str, Any]]:
        """The senders heard from the network."""
        return await self._pages("sources")

    async def _pages(self, key: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = json.loads(await self._ask(key, cursor))
            rows += page[key]
            if page["next"] is None:
                return rows
            cursor = str(page["next"])

    async def _ask(
        self,
        key: str,
        value: str | None = None,
        *,
        before: bytes | None = None,
        enter: Callable[[], object] | None = None,
        timeout: float | None = None,
    ) -> str:
        await self._send_batch()
        return await self._connection.ask(key, value, before=before, enter=enter, timeout=timeout)

    # --- batches ---

    def open_batch(self) -> bool:
        """For ``AsyncBatch``: False when one is open."""
        if self._packer is not None:
            return False
        self._packer = Packer(self._session.pack_limit)
        return True

    async def close_batch(self) -> None:
        try:
            await self._send_batch()
        finally:
            self._packer = None

    async def _send_batch(self) -> None:
        if self._packer is not None:
            await self._transmit(self._packer.flush())

    async def _transmit(self, packets: list[tuple[bytes, int]]) -> None:
        for packet, messages in packets:
            await self._connection.transmit(packet)
            self._session.published += messages

    # --- life ---

    async def connect(self) -> None:
        """Connect; tries for ``wait`` seconds. Raises UnavailableError, RejectedError."""
        if self._connection.closed:
            raise ClosedError("the client is closed")
        if self._connection.greeted:
            return
        for error in await self._connection.connect(self._wait):
            await self.close()
            raise error

    async def close(self) -> None:
        """Let go of the connection at once; ``async with`` waits for a barrier first."""
        await self._connection.close()
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
        """Give messages to whom they are for (with callbacks: to their task), pass on notices."""
        session = self._session
        if self._caller is not None:
            self._callable.set()
            if session.waiting_size > READ_AHEAD_LIMIT and not session.backlog and not self._has_receiver:
                self._drop_unclaimed()
        else:
            while session.backlog:
                session.take()
        over = self._connection.closed or self._connection.gone
        if over:
            session.exchanges.wake()
        if over or session.received:
            self._arrived.set()
        while session.notices:
            (self.on_notice or log_notice)(session.notices.popleft())

    def _call_from_now_on(self, callback: Callback | None) -> None:
        if callback is not None and self._caller is None:
            self._caller = asyncio.get_running_loop().create_task(self._call_back())

    async def _call_back(self) -> None:
        while not self._connection.closed:
            await self._callable.wait()
            self._callable.clear()
            while self._session.backlog and not self._connection.closed:
                message, callbacks = self._session.take()
                for callback in callbacks:
                    await self._call(callback, message)
                self._on_news()
                self._connection.regulate()

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
        self._session.notices.append(Notice("unclaimed", text, count))


class AsyncBatch:
    """See ``AsyncClient.batch``. An inner one is part of the outer one."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._outermost = False

    async def __aenter__(self) -> None:
        self._outermost = self._client.open_batch()

    async def __aexit__(self, *_: object) -> None:
        if self._outermost:
            await self._client.close_batch()


class Service:
    """See ``AsyncClient.serve``."""

    def __init__(self, client: AsyncClient, handler: Handler, concurrency: int) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        self._client = client
        self._handler = handler
        self._places = asyncio.Semaphore(concurrency)

    async def take(self, message: Message) -> None:
        request = request_in(message)
        if request is None:
            return
        await self._places.acquire()
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        self._places.release()
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
