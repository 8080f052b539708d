"""The blocking client.

Messages are read when ``receive``, ``dispatch`` or iteration ask for them, so the daemon's queue for this
client, not memory here, holds what is not asked for. Callbacks and ``on_notice`` run inside the client's
calls, on the caller's thread, never while a packet is half processed: they may call the client.
"""

from __future__ import annotations

import os
import time

from bccn.connection import Connection
from bccn.errors import ClosedError, RejectedError
from bccn.exchange import Request, request_in
from bccn.protocol import Message, Packer, build_msg, build_sub, build_unsub
from bccn.session import Notice, Session, log_notice

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Any, Self

    from bccn.exchange import Exchange
    from bccn.session import Callback

GLANCE_INTERVAL = 0.1  # seconds between looks, while only publishing, at what the daemon has to say about it
GLANCE_LIMIT = 1024 * 1024  # bytes waiting to be received above which such looks would only fill memory
READ_LIMIT = 1024  # packets read without waiting by one call; a flood leaves the caller's loop its turn


class Client:
    """A connection to the bus of this host, made again by itself when it breaks. One thread at a time.

    path       the daemon's socket; None: $BCCN_SOCKET, else the usual places (``socket_path``)
    name       own src; None: the daemon's ``<host>/<program>/<pid>``
    format     ``plain``: channel and payload; ``full``: src, seq, peer, time too
    pack       agree on packed packets: many times the throughput for bursts
    echo       receive own messages that match
    separator  of the tokens in patterns, ``/`` or ``.``
    queue      the daemon's queue for us: ``{"packets": 1000, "bytes": 10**6, "policy": "drop-oldest"}``;
               the policies are drop-oldest, drop-newest, block, disconnect
    tap        also receive every datagram of the segment, with what the daemon thinks of it (needs the right)
    reconnect  False: calls raise UnavailableError once the connection is gone
    timeout    seconds a call waits for the daemon: to be there again, to answer, to take a message
    wait       seconds to keep trying for the first connection
    on_notice  called with each ``Notice``; None: they are warnings of the logger ``bccn``

    Raises UnavailableError when there is no daemon, RejectedError when it does not grant what was asked.
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
        self._connection = Connection(self._session, path, reconnect=reconnect)
        self._connection.timeout = timeout
        self._packer: Packer | None = None
        self._packer_pid = 0
        self._glance_at = 0.0
        for error in self._connection.connect(time.monotonic() + wait):
            self.close()
            raise error

    # --- publishing ---

    def publish(self, channel: str, payload: bytes | str = b"") -> None:
        """Hand one message to the daemon; waits only while it is away or takes no more.

        What the daemon then rejects (too large, no right) arrives later: as a notice, and from ``barrier``.
        Raises UnavailableError or TimedOutError after ``timeout``: this message was not sent.
        """
        packet = build_msg(channel, payload)
        if self._packer is not None:
            self._publish_packed(packet, self._packer)
            return
        self._connection.transmit(packet)
        self._session.published += 1
        now = time.monotonic()
        if now >= self._glance_at:
            self._glance_at = now + GLANCE_INTERVAL
            if self._session.waiting_size < GLANCE_LIMIT:
                self._connection.read_pending(READ_LIMIT)
            self._settle()

    def publish_many(self, messages: Iterable[tuple[str, bytes | str]]) -> None:
        """Publish (channel, payload) pairs, packed where that was agreed."""
        with self.batch():
            for channel, payload in messages:
                self.publish(channel, payload)

    def batch(self) -> Batch:
        """``with client.batch():`` what is published inside goes packed (with ``pack=True``)."""
        return Batch(self)

    def send_all(self, payload: bytes | str) -> None:
        """To every listening program of the segment."""
        self.publish("!", payload)

    def send_to(self, target: str, payload: bytes | str) -> None:
        """To the program whose src is ``target``, or all below it (``bccn.txt``, "Directed-form")."""
        self.publish("!" + target, payload)

    def send_datagram(self, datagram: bytes) -> None:
        """Relay a whole BCCN1 datagram from elsewhere as it is. Needs the bridge right."""
        self._connection.transmit(datagram)
        self._session.published += 1

    def barrier(self, timeout: float | None = None) -> None:
        """Return when the daemon has processed everything sent before.

        Raises RejectedError for the first message since the last barrier that it rejected, UnavailableError
        when the connection broke in between and messages may be missing, TimedOutError.
        """
        self._ask("ping", timeout=timeout)
        self._session.raise_rejections()

    # --- subscribing ---

    def subscribe(self, pattern: str, callback: Callback | None = None) -> None:
        """Returns when it is in force. Its messages go to ``callback``, or without one to ``receive``."""
        packet = build_sub(pattern)
        self._connection.ensure(self._connection.deadline())
        self._session.subscribe(pattern, callback)
        try:
            self._ask("ping", before=packet)
        except RejectedError:
            self._session.unsubscribe(pattern, callback)
            raise

    def unsubscribe(self, pattern: str, callback: Callback | None = None) -> None:
        """Take back one ``subscribe``, the last one of that pattern (and callback, where given)."""
        packet = build_unsub(pattern)
        self._connection.ensure(self._connection.deadline())
        self._session.unsubscribe(pattern, callback)
        self._ask("ping", before=packet)

    def listen(self, callback: Callback | None = None) -> None:
        """Receive messages to all (``!``) and to this program without subscribing; ``callback`` as above."""
        self._session.listen(callback)
        self._ask("listen")

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that is not for callbacks only (these are called); None after ``timeout`` s."""
        deadline = None if timeout is None else time.monotonic() + timeout
        session = self._session
        while True:
            if session.backlog:
                self._call_back()
            if session.received:
                self._settle()
                return session.next_received()
            if session.notices:
                self._settle()
            if not self._connection.read_next(deadline) and not session.waiting:
                self._settle()
                return None

    def dispatch(self) -> list[Message]:
        """Handle all that is pending without waiting: call callbacks, return the messages which none took.

        The call for select loops: whenever ``fileno()`` is readable.
        """
        if self._connection.try_if_due():
            self._connection.read_pending(READ_LIMIT)
        received: list[Message] = []
        try:
            while self._session.backlog:
                message, callbacks = self._session.take()
                for callback in callbacks:
                    callback(message)
            while self._session.received:
                received.append(self._session.next_received())
        finally:
            self._settle()
        return received

    def fileno(self) -> int:
        """A descriptor for select loops: readable means ``dispatch``. It survives reconnections, not fork."""
        descriptor = self._connection.fileno()
        self._connection.settle()
        return descriptor

    def __iter__(self) -> Iterator[Message]:
        """Messages, until the client is closed."""
        while not self._connection.closed:
            try:
                message = self.receive()
            except ClosedError:
                if self._connection.closed:
                    return
                raise  # another client's, out of a callback
            if message is not None:
                yield message

    def _call_back(self) -> None:
        """Take from the backlog up to the first message that is (also) for ``receive``."""
        while self._session.backlog and not self._session.received:
            message, callbacks = self._session.take()
            for callback in callbacks:
                callback(message)

    # --- request and reply ---

    def request(
        self,
        channel: str,
        payload: bytes | str = b"",
        timeout: float | None = None,
        replies: int | None = 1,
        *,
        wait_anyway: bool = False,
    ) -> list[Message]:
        """Ask on ``channel``; so many replies, or with None all that come within ``timeout``, as ``payload`` of each.

        Raises NobodyListensError, at once or within a third of a second, when no program of this host or of another
        with a daemon would get it; ``wait_anyway`` for programs without one. TimedOutError for too few replies.
        """
        return list(self.replies_to(channel, payload, timeout, replies, wait_anyway=wait_anyway))

    def replies_to(
        self,
        channel: str,
        payload: bytes | str = b"",
        timeout: float | None = None,
        replies: int | None = None,
        *,
        wait_anyway: bool = False,
    ) -> Iterator[Message]:
        """The replies as they come. The request is published when the first is asked for; else as ``request``."""
        session, connection = self._session, self._connection
        timeout = connection.timeout if timeout is None else timeout
        connection.ensure(connection.deadline(timeout))
        exchange = session.exchanges.begin(
            channel, payload, time.monotonic(), timeout, wanted=replies, anyway=wait_anyway
        )
        try:
            self._publish_request(exchange)
            while True:
                now = time.monotonic()
                while (reply := exchange.next_reply()) is not None:
                    yield reply
                if exchange.over(now):
                    return
                if exchange.must_ask(now):
                    exchange.asked(self._ask("listeners", exchange.question, timeout=exchange.deadline - now))
                connection.check_backlog()
                connection.read_next(exchange.until)
                self._settle()
        finally:
            session.exchanges.end(exchange)

    def _publish_request(self, exchange: Exchange) -> None:
        """Hand it to the daemon, once, and learn who listens here. What was published before is settled first."""
        self._send_batch()
        if not self._session.exchanges.listening:
            self._ask("listen")
            self._session.exchanges.listening = True
        elif self._session.unconfirmed:
            self._ask("ping")
        exchange.on_its_way = True
        self._transmit([(exchange.packet, 1)])
        exchange.published(self._ask("listeners", exchange.channel), time.monotonic())

    def reply(self, request: Request, payload: bytes | str = b"") -> None:
        """Answer a request; as ``publish``."""
        self.publish(*request.reply(payload))

    def serve(self, pattern: str, handler: Callable[[Request], bytes | str | None]) -> None:
        """Answer requests on the channels that match with what ``handler`` returns, or later if that is None.

        Needs ``format="full"``. The pattern ``!`` stands for requests to all and to this program. The handler runs
        as every callback does, inside ``receive`` or ``dispatch``; messages that are no requests are passed over.
        """
        self._session.require_full()

        def answer(message: Message) -> None:
            request = request_in(message)
            reply = handler(request) if request else None
            if request and reply is not None:
                self.reply(request, reply)

        if pattern == "!":
            self.listen(answer)
        else:
            self.subscribe(pattern, answer)

    # --- asking ---

    @property
    def name(self) -> str:
        """Own src, as others see it."""
        self._connection.ensure(self._connection.deadline())
        return self._session.name or ""

    def set_name(self, name: str) -> None:
        """Take another src; kept over reconnections. Raises RejectedError (bad-name, name-taken, refused)."""
        self._session.name = self._ask("name", name)
        self._session.wanted_name = name

    def heartbeat(self, seconds: int, text: str = "") -> None:
        """Have the daemon say every so many seconds on ``heartbeat/<name>`` that we are there, and ``leaving``
        when we leave. ``text`` says how we are; another call changes it, 0 seconds end it. Kept over reconnections.
        """
        value = self._session.heartbeat_request(seconds, text)
        self._ask("heartbeat", value)
        self._session.heartbeat = value if seconds else ""

    def control(self, key: str, value: str | None = None) -> str:
        """Any control request (README, "The local protocol"); returns the value of its answer.

        Unlike the settings of the constructor it is not said again to a new connection."""
        return self._ask(key, value)

    def status(self) -> dict[str, Any]:
        """The daemon's state and counters."""
        import json

        state: dict[str, Any] = json.loads(self._ask("status"))
        return state

    def clients(self) -> list[dict[str, Any]]:
        """The programs on this bus."""
        return self._pages("clients")

    def sources(self) -> list[dict[str, Any]]:
        """The senders heard from the network."""
        return self._pages("sources")

    def _pages(self, key: str) -> list[dict[str, Any]]:
        import json

        rows: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = json.loads(self._ask(key, cursor))
            rows += page[key]
            if page["next"] is None:
                return rows
            cursor = str(page["next"])

    def _ask(
        self, key: str, value: str | None = None, *, before: bytes | None = None, timeout: float | None = None
    ) -> str:
        self._send_batch()
        try:
            return self._connection.ask(key, value, before=before, timeout=timeout)
        finally:
            self._settle()

    @property
    def lost(self) -> int:
        """Messages the daemon had to drop for this client because it read too slowly."""
        return self._session.lost

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as known without looking."""
        return self._connection.connected

    # --- batches ---

    def open_batch(self) -> bool:
        """For ``Batch``: False when one is open."""
        if self._packer is not None and self._packer_pid == os.getpid():
            return False
        self._connection.ensure(self._connection.deadline())
        self._packer, self._packer_pid = Packer(self._session.pack_limit), os.getpid()
        return True

    def close_batch(self) -> None:
        try:
            self._send_batch()
        finally:
            self._packer = None

    def _publish_packed(self, packet: bytes, packer: Packer) -> None:
        if self._packer_pid != os.getpid():  # forked inside a batch: what it gathered is the parent's
            self._packer = None
            self._transmit([(packet, 1)])
        else:
            self._transmit(packer.add(packet))

    def _send_batch(self) -> None:
        if self._packer is not None and self._packer_pid == os.getpid():
            self._transmit(self._packer.flush())

    def _transmit(self, packets: list[tuple[bytes, int]]) -> None:
        for packet, messages in packets:
            self._connection.transmit(packet)
            self._session.published += messages

    # --- life ---

    def close(self) -> None:
        """Let go of the connection at once; ``with`` waits for a barrier first. Never raises."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self._connection.closed and self._session.unsettled:
                self.barrier()
        finally:
            self.close()

    def _settle(self) -> None:
        """At the end of each call: pass on notices, tell select loops how things stand."""
        while self._session.notices:
            (self.on_notice or log_notice)(self._session.notices.popleft())
        if not self._connection.closed:
            self._connection.settle()


class Batch:
    """See ``Client.batch``. An inner one is part of the outer one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._outermost = False

    def __enter__(self) -> None:
        self._outermost = self._client.open_batch()

    def __exit__(self, *_: object) -> None:
        if self._outermost:
            self._client.close_batch()
