"""What a client of the bus does, written once: coroutines that wait only where the session's driver waits.

They are methods of ``AsyncClient``. ``Client`` runs each to its end: its driver blocks where the other suspends.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from time import monotonic

from bccn.errors import BacklogError, InvalidError, NobodyListensError, TimedOutError
from bccn.exchange import ASK_AFTER, ASK_EVERY, QUESTIONS, REPLIES_LIMIT, Exchange, Request, request_in
from bccn.inbox import Callback, Notice
from bccn.protocol import Message, Packer, build_control, build_msg, build_sub, build_unsub
from bccn.session import Entry, Session

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    from typing import Any

Handler = Callable[[Request], bytes | str | Awaitable[bytes | str | None] | None]

# Messages published in a row before others have their turn.
PUBLISH_TURN = 64


class Bus:
    _driver: type[Session]

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, name: str | None = None,
        format: str = "plain",  # noqa: A002 - the protocol's word
        pack: bool = False, echo: bool = True, separator: str = "/",
        queue: Mapping[str, int | str] | None = None, tap: bool = False, reconnect: bool = True,
        timeout: float = 5.0, wait: float = 0.0, on_notice: Callable[[Notice], object] | None = None,
    ) -> None:  # fmt: skip
        """
        path       the daemon's socket; None: $BCCN_SOCKET, else the usual places (``socket_path``)
        name       own src; None: the daemon's ``<host>/<program>/<pid>``
        format     ``plain``: channel and payload; ``full``: src, seq, peer, time too
        pack       agree on packed packets: many times the throughput for bursts
        echo       receive own messages that match
        separator  of the tokens in patterns, ``/`` or ``.``
        queue      the daemon's queue for us: ``{"packets": 1000, "bytes": 10**6, "policy": "drop-oldest"}``;
                   the policies are drop-oldest, drop-newest, block, disconnect
        tap        also receive every datagram of the segment, with the daemon's verdict on it (needs the right)
        reconnect  False: calls raise UnavailableError once the connection is gone
        timeout    seconds a call waits for the daemon: to be there again, to answer, to take a message
        wait       seconds to keep trying for the first connection
        on_notice  called with each ``Notice``; None: they are warnings of the logger ``bccn``
        """
        if format not in ("plain", "full"):
            raise InvalidError(f"format {format!r}: must be plain or full")
        if separator not in ("/", "."):
            raise InvalidError(f"separator {separator!r}: must be / or .")
        limits = " ".join(f"{key}={value}" for key, value in (queue or {}).items())
        wishes = (
            ("separator", separator, separator != "/"), ("format", format, format != "plain"),
            ("pack", "on", pack), ("echo/off", None, not echo), ("queue", limits, queue), ("tap", "on", tap),
        )  # fmt: skip
        wanted = {key: value for key, value, is_wanted in wishes if is_wanted}
        self._session = self._driver(path, name, separator, wanted, reconnect=reconnect, timeout=timeout)
        self._session.on_notice = on_notice
        self._begin(wait)

    def _begin(self, wait: float) -> None:
        """Have the connection made, within ``wait`` seconds."""

    @property
    def on_notice(self) -> Callable[[Notice], object] | None:
        """Called with each ``Notice``; None: they are warnings of the logger ``bccn``."""
        return self._session.on_notice

    @on_notice.setter
    def on_notice(self, function: Callable[[Notice], object] | None) -> None:
        self._session.on_notice = function

    @property
    def lost(self) -> int:
        """Messages that the daemon dropped because this client read too slowly."""
        return self._session.lost

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as known without looking."""
        return self._session.ready


class Operations:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def publish(self, channel: str, payload: bytes | str = b"") -> None:
        """Hand one message to the daemon; see ``Client.publish``."""
        packet, session = build_msg(channel, payload), self._session
        if session.packer is None and session.send_now(packet):
            if session.published % PUBLISH_TURN == 0:
                await session.give_way()
        else:
            for full, count in session.gather(packet):
                await session.transmit(full, count)
                await session.give_way()

    async def publish_many(self, messages: Iterable[tuple[str, bytes | str]]) -> None:
        """Publish (channel, payload) pairs, packed where that was agreed."""
        is_outermost = await self.open_batch()
        try:
            for channel, payload in messages:
                await self.publish(channel, payload)
        finally:
            if is_outermost:
                await self.close_batch()

    async def open_batch(self) -> bool:
        """Gather what is published from now on, if packing was agreed; False when a batch is open already."""
        session = self._session
        session.check()
        if session.packer is not None:
            return False
        if not session.ready:
            await session.available()
        session.packer = Packer(session.pack_limit) if session.pack_limit else None
        return True

    async def close_batch(self) -> None:
        try:
            await self._session.send_batch()
        finally:
            self._session.packer = None

    async def send_all(self, payload: bytes | str) -> None:
        """To every listening program of the segment."""
        await self.publish("!", payload)

    async def send_to(self, target: str, payload: bytes | str) -> None:
        """To the program whose src is ``target``, or all below it (``bccnd/wire/BCCN1.md``, "Directed targets")."""
        await self.publish("!" + target, payload)

    async def reply(self, request: Request, payload: bytes | str = b"") -> None:
        """Answer a request; as ``publish``."""
        await self.publish(*request.reply(payload))

    async def send_datagram(self, datagram: bytes) -> None:
        """Relay a whole BCCN1 datagram from elsewhere as it is. Needs the bridge right."""
        await self._session.transmit(datagram)

    async def barrier(self, timeout: float | None = None) -> None:
        """Return when the daemon has processed everything sent before.

        Raises the first RejectedError for a message since the last barrier, UnconfirmedError when the connection
        broke in between and messages may be missing, TimedOutError.
        """
        await self._session.ask("ping", timeout=timeout)
        self._session.raise_rejections()

    async def subscribe(self, pattern: str, callback: Callback | None = None) -> None:
        """Returns when it is in force; raises when there is none, also when it is cancelled.

        Its messages go to ``callback``, or without one to ``receive``.
        """
        session, inbox = self._session, self._session.inbox
        entry = Entry(build_sub(pattern), build_control("ping"), key="ping")
        await session.send_batch()
        session.check_backlog()
        subscription, newest = inbox.subscribe(pattern, callback), inbox.newest()
        entry.subscription = subscription
        inbox.pending.append(subscription)
        try:
            await session.deliver(entry)
        except BaseException:
            entry.subscription = None
            granted = any(each is subscription for each in inbox.held)
            inbox.forget(subscription)
            if granted or (entry.sent and session.ready and entry.error is None):
                session.withdraw(subscription, newest)
            raise

    async def unsubscribe(self, pattern: str, callback: Callback | None = None) -> None:
        """Take back one ``subscribe``, the last one of that pattern (and callback, where given).

        It has ended even if this raises because the daemon does not answer.
        """
        session, inbox = self._session, self._session.inbox
        entry = Entry(build_unsub(pattern), build_control("ping"), key="ping")
        subscription = inbox.unsubscribe(pattern, callback)
        try:
            await session.send_batch()
            session.check_backlog()
            await session.deliver(entry)
        except BaseException:
            if not entry.sent:
                session.withdraw(subscription, inbox.newest())
            raise

    async def listen(self, callback: Callback | None = None) -> None:
        """Receive messages to all (``!``) and to this program without subscribing; ``callback`` as above."""
        self._session.inbox.listen(callback)
        await self._session.ask("listen")

    async def request(
        self, channel: str, payload: bytes | str = b"", timeout: float | None = None, replies: int | None = 1,
        *, wait_anyway: bool = False,
    ) -> list[Message]:  # fmt: skip
        """Ask on ``channel``; returns ``replies`` replies, or with None all that come within ``timeout`` seconds.

        Raises NobodyListensError early, unless ``wait_anyway``: for programs without a daemon, which cannot be asked;
        TimedOutError for too few replies (``clients/PROTOCOL.md``, "Request and reply").
        """
        coming = self.replies_to(channel, payload, timeout, replies, wait_anyway=wait_anyway)
        return [reply async for reply in coming]

    async def replies_to(
        self, channel: str, payload: bytes | str = b"", timeout: float | None = None, replies: int | None = None,
        *, wait_anyway: bool = False,
    ) -> AsyncGenerator[Message]:  # fmt: skip
        """The replies as they come. The request is published when the first is asked for; else as ``request``."""
        session = self._session
        timeout = session.timeout if timeout is None else timeout
        await session.available(timeout)
        exchange = session.exchanges.begin(channel, replies)
        deadline, questions = monotonic() + timeout, QUESTIONS
        try:
            listeners = await self._publish_request(exchange, payload)
            exchange.settled |= wait_anyway or listeners != "0"
            ask_at = monotonic() + ASK_AFTER
            while True:
                exchange.done = False
                while exchange.replies:
                    if len(exchange.replies) > REPLIES_LIMIT:
                        raise BacklogError(f"more than {REPLIES_LIMIT} replies on {channel} wait to be taken")
                    yield exchange.replies.popleft()
                now = monotonic()
                if exchange.came == replies or (now >= deadline and replies is None):
                    return
                if now >= deadline:
                    came = f"{exchange.came} of {replies} replies" if exchange.came else "no reply"
                    raise TimedOutError(f"{came} on {channel} within {timeout:g} s")
                if not exchange.settled and now >= ask_at:
                    if not questions:
                        raise NobodyListensError(f"nobody listens to {channel}")
                    questions, ask_at = questions - 1, now + ASK_EVERY
                    await self._ask_other_hosts(exchange, deadline - now)
                session.check()
                session.check_backlog()
                await session.wait(exchange, deadline if exchange.settled else min(deadline, ask_at))
                session.pass_on_notices()
        finally:
            session.exchanges.end(exchange)

    async def _publish_request(self, exchange: Exchange, payload: bytes | str) -> str:
        """Publish it once; returns how many listen on this host. What was published before is confirmed first."""
        session, packet = self._session, exchange.packet(payload)
        if not session.exchanges.listening:
            await session.ask("listen")
            session.exchanges.listening = True
        elif session.published != session.confirmed or session.packer is not None:
            await session.ask("ping")
        exchange.on_its_way = True
        await session.transmit(packet)
        listeners = await session.ask("listeners", exchange.channel)
        exchange.on_its_way = False
        if exchange.error is not None:
            raise exchange.error
        return listeners

    async def _ask_other_hosts(self, exchange: Exchange, timeout: float) -> None:
        """The daemon answers ``<n>``, ``<n> asked`` or ``<n> busy``; those of other hosts with a message."""
        question = f"{exchange.channel} {exchange.token.decode()}?"
        answer = await self._session.ask("listeners", question, timeout=timeout)
        listeners, _, outcome = answer.partition(" ")
        exchange.settled |= listeners != "0" or outcome == "busy"
        if not exchange.settled and outcome != "asked":
            raise NobodyListensError(f"nobody on this host listens to {exchange.channel}, a local channel")

    async def set_name(self, name: str) -> None:
        """Take another src; kept over reconnections. Raises RejectedError (bad-name, name-taken, refused)."""
        self._session.name = await self._session.ask("name", name)
        self._session.wanted_name = name

    async def heartbeat(self, seconds: int, text: str = "") -> None:
        """Have the daemon publish every so many seconds that this program is there; kept over reconnections.

        ``text`` is its state. Another call changes both, 0 seconds end it (``clients/PROTOCOL.md``, "Who is there").
        """
        value = (f"{seconds} {text}" if text else str(seconds)) if seconds else "off"
        await self._session.ask("heartbeat", value)
        self._session.wishes["heartbeat"] = value
        if not seconds:
            del self._session.wishes["heartbeat"]

    async def control(self, key: str, value: str | None = None) -> str:
        """Make any control request (``clients/PROTOCOL.md``), once; returns the value of its answer."""
        return await self._session.ask(key, value)

    async def status(self) -> dict[str, Any]:
        """The daemon's state and counters."""
        return await self._answer("status")

    async def clients(self) -> list[dict[str, Any]]:
        """The programs on this bus."""
        return await self._rows("clients")

    async def sources(self) -> list[dict[str, Any]]:
        """The senders heard from the network."""
        return await self._rows("sources")

    async def _rows(self, key: str) -> list[dict[str, Any]]:
        page = await self._answer(key)
        rows: list[dict[str, Any]] = page[key]
        while page["next"] is not None:
            page = await self._answer(key, str(page["next"]))
            rows += page[key]
        return rows

    async def _answer(self, key: str, value: str | None = None) -> dict[str, Any]:
        import json  # most programs never need it

        answer: dict[str, Any] = json.loads(await self._session.ask(key, value))
        return answer


async def answer(bus: Operations, handler: Handler, request: Request) -> None:
    """Reply with what the handler returns, or its coroutine; None: it replies later, if at all."""
    reply = handler(request)
    if isinstance(reply, Awaitable):
        reply = await reply
    if reply is not None:
        await bus.reply(request, reply)


async def take_requests(bus: Operations, pattern: str, take: Callable[[Request], object]) -> None:
    """Have the requests on ``pattern`` come to ``answer``; ``!`` stands for those to all and to this program."""
    session = bus._session  # noqa: SLF001 - not for programs, hence no method
    if session.wishes.get("format") != "full":
        raise InvalidError('serving needs the client to be made with format="full"')

    def call(message: Message) -> object:
        request = request_in(message)
        return None if request is None else take(request)

    await (bus.listen(call) if pattern == "!" else bus.subscribe(pattern, call))
