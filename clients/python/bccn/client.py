"""The blocking client.

It reads messages when ``receive``, ``dispatch`` or iteration ask for them; until then they wait in the daemon's
queue for this client, not in memory here. Callbacks and ``on_notice`` run inside the client's calls, on the caller's
thread, and never while a packet is half processed: they may call the client.
"""

from __future__ import annotations

import time
from contextlib import contextmanager

from bccn.blocking_driver import BlockingConnection, finish
from bccn.connection import FOREVER
from bccn.errors import ClosedError
from bccn.exchange import Request, request_in
from bccn.operations import Bus, Operations
from bccn.protocol import Message, build_msg
from bccn.session import Notice, Session

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Any, Self, TypeVar

    from bccn.session import Callback

    T = TypeVar("T")

# Seconds between looks, while a program only publishes, at what the daemon has to say about it.
GLANCE_INTERVAL = 0.1
# Bytes that wait to be received, above which such looks would only fill memory.
GLANCE_LIMIT = 1024 * 1024
# Packets read without waiting by one call: in a flood the caller's loop has its turn.
READ_LIMIT = 1024


class Client(Bus):
    """A connection to the bus of this host, made again by itself when it breaks. One thread at a time.

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

    Raises UnavailableError when there is no daemon, RejectedError when it does not grant what was asked.
    """

    _connection: BlockingConnection

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
        session = Session(
            name=name, format=format, pack=pack, echo=echo, separator=separator, queue=queue, tap=tap
        )
        super().__init__(session, BlockingConnection(session, path, reconnect=reconnect, timeout=timeout))
        self.on_notice = on_notice
        self._bus = Operations(session, self._connection)
        self._glance_at = 0.0
        try:
            finish(self._connection.connect(wait))
        except BaseException:
            self.close()
            raise

    def _run(self, operation: Coroutine[Any, Any, T]) -> T:
        try:
            return finish(operation)
        finally:
            self._settle()

    def _settle(self) -> None:
        """At the end of each call: pass on notices, have select loops know how things stand."""
        self._session.pass_on_notices()
        self._connection.attend()

    # --- publishing ---

    def publish(self, channel: str, payload: bytes | str = b"") -> None:
        """Hand one message to the daemon; waits only while it is away or takes no more.

        What the daemon then rejects (too large, no right) arrives later: as a notice, and from ``barrier``.
        Raises UnavailableError or TimedOutError after ``timeout``: this message was not sent.
        """
        packet = build_msg(channel, payload)
        if self._session.packer is not None:
            finish(self._bus.publish_packed(packet))
            return
        if not self._connection.send_now(packet):
            finish(self._connection.transmit(packet))
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

    @contextmanager
    def batch(self) -> Iterator[None]:
        """``with client.batch():`` what is published inside goes packed (with ``pack=True``).

        A batch inside another is part of it.
        """
        is_outermost = self._run(self._bus.open_batch())
        try:
            yield
        finally:
            if is_outermost:
                self._run(self._bus.close_batch())

    def send_all(self, payload: bytes | str) -> None:
        """To every listening program of the segment."""
        self.publish("!", payload)

    def send_to(self, target: str, payload: bytes | str) -> None:
        """To the program whose src is ``target``, or all below it (``bccnd/wire/BCCN1.md``, "Directed targets")."""
        self.publish("!" + target, payload)

    def send_datagram(self, datagram: bytes) -> None:
        """Relay a whole BCCN1 datagram from elsewhere as it is. Needs the bridge right."""
        self._run(self._bus.send_datagram(datagram))

    def barrier(self, timeout: float | None = None) -> None:
        """Return when the daemon has processed everything sent before.

        Raises the first RejectedError for a message since the last barrier, UnconfirmedError when the connection
        broke in between and messages may be missing, TimedOutError.
        """
        self._run(self._bus.barrier(timeout))

    # --- subscribing ---

    def subscribe(self, pattern: str, callback: Callback | None = None) -> None:
        """Returns when it is in force. Its messages go to ``callback``, or without one to ``receive``."""
        self._run(self._bus.subscribe(pattern, callback))

    def unsubscribe(self, pattern: str, callback: Callback | None = None) -> None:
        """Take back one ``subscribe``, the last one of that pattern (and callback, where given)."""
        self._run(self._bus.unsubscribe(pattern, callback))

    def listen(self, callback: Callback | None = None) -> None:
        """Receive messages to all (``!``) and to this program without subscribing; ``callback`` as above."""
        self._run(self._bus.listen(callback))

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that is not for callbacks only (these are called); None after ``timeout`` seconds."""
        deadline = FOREVER if timeout is None else time.monotonic() + timeout
        session = self._session
        while True:
            while session.backlog and not session.received:
                self._call_back()
            if session.received:
                self._settle()
                return session.next_received()
            if session.notices:
                self._settle()
            if not self._connection.step(deadline) and not session.waiting:
                self._settle()
                return None

    def dispatch(self) -> list[Message]:
        """Handle all that is pending without waiting: call callbacks, return the messages which none took.

        The call for select loops: whenever ``fileno()`` is readable.
        """
        self._connection.check()
        self._connection.read_pending(READ_LIMIT)
        received: list[Message] = []
        try:
            while self._session.backlog:
                self._call_back()
            while self._session.received:
                received.append(self._session.next_received())
        finally:
            self._settle()
        return received

    def fileno(self) -> int:
        """A descriptor for select loops: readable means ``dispatch``. It survives reconnections, not fork."""
        descriptor = self._connection.fileno()
        self._connection.attend()
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
        """Ask on ``channel``; returns ``replies`` replies, or with None all that come within ``timeout`` seconds.

        The ``payload`` of each is the reply. Raises NobodyListensError, within a third of a second, when no program
        of this host or of another with a daemon would get the request; ``wait_anyway`` is for programs without a
        daemon. Raises TimedOutError for too few replies (``clients/PROTOCOL.md``, "Request and reply").
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
        exchange = self._run(self._bus.begin_request(channel, payload, timeout, replies, anyway=wait_anyway))
        try:
            while (reply := self._run(self._bus.next_reply(exchange))) is not None:
                yield reply
        finally:
            self._bus.end_request(exchange)

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
        self._run(self._connection.available(time.monotonic() + self._connection.timeout))
        return self._session.name or ""

    def set_name(self, name: str) -> None:
        """Take another src; kept over reconnections. Raises RejectedError (bad-name, name-taken, refused)."""
        self._run(self._bus.set_name(name))

    def heartbeat(self, seconds: int, text: str = "") -> None:
        """Have the daemon publish on ``heartbeat/<name>`` every so many seconds that this program is there, and
        ``leaving`` when it leaves. ``text`` is its state; another call changes it, 0 seconds end it. Kept over
        reconnections (``clients/PROTOCOL.md``, "Who is there").
        """
        self._run(self._bus.heartbeat(seconds, text))

    def control(self, key: str, value: str | None = None) -> str:
        """Make any control request (``clients/PROTOCOL.md``, "Control requests"); returns the value of its answer.

        Unlike the settings of the constructor it is not repeated on a new connection."""
        return self._run(self._bus.control(key, value))

    def status(self) -> dict[str, Any]:
        """The daemon's state and counters."""
        return self._run(self._bus.status())

    def clients(self) -> list[dict[str, Any]]:
        """The programs on this bus."""
        return self._run(self._bus.clients())

    def sources(self) -> list[dict[str, Any]]:
        """The senders heard from the network."""
        return self._run(self._bus.sources())

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
