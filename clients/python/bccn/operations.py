"""What a client of the bus does, written once: coroutines that wait in ``Session._wait`` only.

They are methods of ``AsyncClient``. ``Client`` runs each to its end: it blocks where the other suspends. So they need
nothing but a session, and one calls another as a function: the method of that name may be a blocking one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from time import monotonic

from bccn.errors import InvalidError, NobodyListensError, TimedOutError
from bccn.exchange import ASK_AFTER, ASK_EVERY, QUESTIONS, Entry, Exchange, Request, with_token
from bccn.inbox import Callback, Held
from bccn.protocol import Message, build_control, build_msg, build_sub
from bccn.session import Session
from bccn.transport import NO_SIGNAL

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    from typing import Any, TypeVar

    H = TypeVar("H", bound=Held)

Handler = Callable[[Request], bytes | str | Awaitable[bytes | str | None] | None]

# Messages published in a row before others have their turn.
PUBLISH_TURN = 64
PING = b"CMSG ping"


class Operations(Session):
    async def publish(self: Session, channel: str, payload: bytes | str = b"") -> None:
        """Hand one message to the daemon; see ``Client.publish``."""
        packet = build_msg(channel, payload)
        if self._batches:
            for full in self._batches.gather(packet):
                await self._transmit(full)
                await self._give_way()
            return
        try:
            self._send(packet, NO_SIGNAL)
        except OSError:  # no room, or no connection
            await self._transmit((packet, 1))
        else:
            self._published += 1
        if self._published % PUBLISH_TURN == 0:
            await self._give_way()

    async def publish_all(self: Session, payload: bytes | str) -> None:
        """Publish to every listening program of the segment."""
        await Operations.publish(self, "!", payload)

    async def publish_to(self: Session, target: str, payload: bytes | str) -> None:
        """Publish to the program whose src is ``target``, or all below it (``bccnd/wire/BCCN1.md``, "Channels")."""
        await Operations.publish(self, "!" + target, payload)

    async def reply(self: Session, request: Request, payload: bytes | str = b"") -> None:
        """Reply to a request; as ``publish``."""
        await Operations.publish(self, *request.reply(payload))

    async def send_datagram(self: Session, datagram: bytes) -> None:
        """Relay a whole BCCN1 datagram from elsewhere as it is. Needs the bridge right."""
        await self._transmit(*self._batches.gather(datagram))

    @asynccontextmanager
    async def batch(self: Session) -> AsyncIterator[None]:
        """``async with client.batch():`` what is published meanwhile goes packed; see ``Client.batch``."""
        self._check()
        await self._available()
        is_outer = self._batches.begin(self._granted.get("pack", ""))
        try:
            yield
        finally:
            await self._transmit(*self._batches.flush(ends=is_outer))

    async def barrier(self: Session, timeout: float | None = None) -> None:
        """Return when the daemon has processed everything sent before.

        Raises the first RejectedError for a message since the last barrier, UnconfirmedError when the connection
        broke in between and messages may be missing, TimedOutError.
        """
        await self._ask("ping", timeout=timeout)
        self._raise_rejections()

    async def _subscribe(self: Session, held: H) -> H:
        entry, inbox = Entry(build_sub(held.pattern), PING, key="ping"), self._inbox
        newest, entry.subscription, held.pending = inbox.newest(), held, True
        inbox.add(held)
        try:
            await self._deliver(entry)
        except BaseException:
            entry.subscription = None
            inbox.remove(held)
            if not held.pending or (entry.sent and self.connected and entry.error is None):
                Operations._withdraw(self, held, newest)
            raise
        return held

    async def _unsubscribe(self: Session, held: Held) -> None:
        """It has ended even if this raises because the daemon does not answer."""
        if held.ended or self._closed:
            return
        held.ended = True
        self._inbox.remove(held)
        if held.pattern == "!":
            self._inbox.listen(None)
            return
        entry = Entry(b"UN" + build_sub(held.pattern), PING, key="ping")
        try:
            await self._deliver(entry)
        except BaseException:
            if not entry.sent:
                Operations._withdraw(self, held, self._inbox.newest())
            raise

    def _withdraw(self: Session, held: Held, newest: list[Message]) -> None:
        """Have an UNSUB sent, without waiting for it (``clients/PROTOCOL.md``, "A subscribe that fails")."""
        entry = Entry(b"UN" + build_sub(held.pattern), PING, key="ping")
        self._inbox.withdraw(held, newest)
        entry.wakers = frozenset({lambda: self._inbox.withdrawn.discard(held)})
        self._held.append(entry)
        self._flush()

    async def listen(self: Session, callback: Callback | None = None) -> None:
        """Have messages to all (``!``) and to this program delivered, to ``callback`` or to the stream of the client.

        Any subscription has them delivered as well.
        """
        inbox, newest = self._inbox, self._inbox.newest()
        before = inbox.listener
        inbox.listen(callback)
        ours = inbox.listener
        try:
            await self._ask("listen")
        except BaseException:
            if inbox.listener is ours:
                inbox.listener = before
            inbox.drop_unasked(newest)
            raise
        self._wishes["listen"] = None

    async def request(
        self: Session, channel: str, payload: bytes | str = b"", timeout: float | None = None,
        *, wait_anyway: bool = False,
    ) -> Message:  # fmt: skip
        """Ask on ``channel``; returns the first reply (``clients/PROTOCOL.md``, "Request and reply").

        Raises TimedOutError when none comes within ``timeout`` seconds, and NobodyListensError early, unless
        ``wait_anyway``: for programs without a daemon, which cannot be asked whether they listen.
        """
        timeout = self._timeout if timeout is None else timeout
        replies = Operations.request_many(self, channel, payload, timeout, 1, wait_anyway=wait_anyway)
        async with aclosing(replies):
            async for reply in replies:
                return reply
        raise TimedOutError(f"no reply on {channel} within {timeout:g} s")

    async def request_many(
        self: Session, channel: str, payload: bytes | str = b"", timeout: float | None = None,
        count: int | None = None, *, wait_anyway: bool = False,
    ) -> AsyncGenerator[Message]:  # fmt: skip
        """The replies as they come, at most ``count``, until ``timeout`` seconds have passed; see ``Client``."""
        timeout = self._timeout if timeout is None else timeout
        deadline, questions = monotonic() + timeout, QUESTIONS
        await self._available(timeout)
        # Messages of a batch that are not sent in time are an error; a request is not.
        await self._transmit(*self._batches.flush(), timeout=deadline - monotonic())
        exchanges = self._exchanges
        exchange = exchanges.begin(channel, count)
        try:
            try:
                listeners = await Operations._publish_request(self, exchange, payload, deadline)
            except TimedOutError:  # the time is over, which ends the replies
                return
            exchange.settled |= wait_anyway or listeners != "0"
            ask_at = monotonic() + ASK_AFTER
            while True:
                exchange.done = False
                while exchange.replies:
                    yield exchanges.next_of(exchange.replies)
                if exchange.error is not None:
                    raise exchange.error
                now = monotonic()
                if exchange.came == count or now >= deadline:
                    return
                if not exchange.settled and now >= ask_at:
                    if not questions:
                        raise NobodyListensError(f"nobody listens to {channel}")
                    questions, ask_at = questions - 1, now + ASK_EVERY
                    with suppress(TimedOutError):
                        await Operations._ask_other_hosts(self, exchange, deadline - now)
                self._check(asks=True)
                await self._wait(exchange, deadline if exchange.settled else min(deadline, ask_at))
                self._settle()
        finally:
            exchanges.drop(exchange.replies)
            exchanges.pop(exchange.token, None)

    async def watch(self: Session, pattern: str, callback: Callable[[str, bool], object]) -> None:
        """Have ``callback(pattern, wanted)`` told whether anybody else listens to what matches, and each change.

        Kept over reconnections (``clients/PROTOCOL.md``, "Watches"). Another call replaces the callback.
        """
        entry = Entry(build_control("watch", pattern), key="watch")
        try:
            await self._deliver(entry)
        except BaseException:
            if entry.sent and self.connected and entry.error is None and pattern not in self._watches:
                Operations._take_back(self, pattern)
            raise
        self._watches[pattern] = callback, None
        self._settle()

    def _take_back(self: Session, pattern: str) -> None:
        """Have a watch ended, without waiting for it, unless another call waits for one like it."""
        packets = (build_control("watch", pattern),)
        alike = [each for each in (*self._asked, *self._held) if each.packets == packets]
        other = next((each for each in alike if not each.done and each not in self._greeting), None)
        if other not in self._asked:
            end = Entry(build_control("unwatch", pattern), key="unwatch")
            end.done = True  # a new connection has no such watch
            self._held.insert(self._held.index(other) if other else len(self._held), end)
            self._flush()

    async def unwatch(self: Session, pattern: str) -> None:
        """Tell no more of that."""
        watch = self._watches.pop(pattern, None)
        entry = Entry(build_control("unwatch", pattern), key="unwatch")
        try:
            await self._deliver(entry)
        except BaseException:
            if watch is not None and not entry.sent and self._transport is not None:  # or a greeting has it
                Operations._take_back(self, pattern)
            raise
        self._watches.pop(pattern, None)  # that another call had asked for

    async def set_name(self: Session, name: str) -> None:
        """Take another src; kept over reconnections. Raises RejectedError (bad-name, name-taken, refused)."""
        self._granted["whoami"] = await self._ask("name", name)
        self._wishes["name"] = name

    async def heartbeat(self: Session, seconds: int, text: str = "") -> None:
        """Have the daemon publish every so many seconds that this program is there; kept over reconnections.

        ``text`` is its state. Another call changes both, 0 seconds end it (``clients/PROTOCOL.md``, "Who is there").
        """
        value = (f"{seconds} {text}" if text else str(seconds)) if seconds else "off"
        await self._ask("heartbeat", value)
        self._wishes["heartbeat"] = value
        if not seconds:
            del self._wishes["heartbeat"]

    async def control(self: Session, key: str, value: str | None = None) -> str:
        """Make any control request (``clients/PROTOCOL.md``), once; returns the value of its answer."""
        return await self._ask(key, value)

    async def status(self: Session) -> dict[str, Any]:
        """The daemon's state and counters."""
        return await Operations._ask_json(self, "status")

    async def clients(self: Session) -> list[dict[str, Any]]:
        """The programs on this bus."""
        return await Operations._ask_pages(self, "clients")

    async def sources(self: Session) -> list[dict[str, Any]]:
        """The senders heard from the network."""
        return await Operations._ask_pages(self, "sources")

    async def _ask_pages(self: Session, key: str) -> list[dict[str, Any]]:
        page = await Operations._ask_json(self, key)
        rows: list[dict[str, Any]] = page[key]
        while page["next"] is not None:
            page = await Operations._ask_json(self, key, str(page["next"]))
            rows += page[key]
        return rows

    async def _ask_json(self: Session, key: str, value: str | None = None) -> dict[str, Any]:
        import json  # most programs never need it

        answer: dict[str, Any] = json.loads(await self._ask(key, value))
        return answer

    async def _publish_request(
        self: Session, exchange: Exchange, payload: bytes | str, deadline: float
    ) -> str:
        """Publish it once; returns how many listen on this host. What was published before is confirmed first."""
        packet = build_msg(exchange.channel, with_token(exchange.token, payload))
        if "listen" not in self._wishes:
            self._inbox.overhears = True  # also if it fails
            self._inbox.reroute()
            await self._ask("listen", timeout=deadline - monotonic())
            self._wishes["listen"] = None
        elif self._published != self._confirmed:
            await self._ask("ping", timeout=deadline - monotonic())
        exchange.on_its_way = True
        await self._transmit((packet, 1), timeout=deadline - monotonic())
        listeners = await self._ask("listeners", exchange.channel, timeout=deadline - monotonic())
        exchange.on_its_way = False
        return listeners

    async def _ask_other_hosts(self: Session, exchange: Exchange, timeout: float) -> None:
        """The daemon answers ``<n>``, ``<n> asked`` or ``<n> busy``; those of other hosts with a message."""
        question = f"{exchange.channel} {exchange.token.decode()}?"
        listeners, _, outcome = (await self._ask("listeners", question, timeout=timeout)).partition(" ")
        exchange.settled |= listeners != "0" or outcome == "busy"
        if not exchange.settled and outcome != "asked":
            raise NobodyListensError(f"nobody on this host listens to {exchange.channel}, a local channel")

    async def _serve(self: Session, held: H, handler: Handler, carry_out: Callable[..., object]) -> H:
        """Call ``carry_out(answer, request)`` for each request; ``answer`` replies what ``handler`` returns."""
        if self._wishes.get("format") != "full":
            raise InvalidError('serving needs the client to be made with format="full"')

        async def answer(request: Request) -> None:
            reply = handler(request)
            if isinstance(reply, Awaitable):
                reply = await reply
            if reply is not None:
                await Operations.reply(self, request, reply)

        def call(message: Message) -> object:
            try:
                request = Request(message)
            except InvalidError:
                return None
            # A last value was replied to when it was new.
            return None if message.retained else carry_out(answer, request)

        held.callback = call
        await (Operations.listen(self, call) if held.pattern == "!" else Operations._subscribe(self, held))
        return held
