"""The blocking client.

It reads messages when ``receive``, ``dispatch`` or iteration ask for them; until then they wait in the daemon's
queue for this client, not in memory here. Callbacks and ``on_notice`` run inside the client's calls, on the caller's
thread, and never while a packet is half processed: they may call the client.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from time import monotonic

from bccn.blocking_driver import BlockingConnection, finish
from bccn.connection import FOREVER
from bccn.errors import ClosedError
from bccn.exchange import Request, request_in
from bccn.operations import Bus, Operations
from bccn.protocol import Message, build_msg

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
    from types import TracebackType
    from typing import Any, Concatenate, ParamSpec, Self, TypeVar

    P = ParamSpec("P")
    T = TypeVar("T")

# Seconds between looks, while a program only publishes, at what the daemon has to say about it.
GLANCE_INTERVAL = 0.1
# Bytes that wait to be received, above which such looks would only fill memory.
GLANCE_LIMIT = 1024 * 1024
# Packets read without waiting by one call: in a flood the caller's loop has its turn.
READ_LIMIT = 1024


def blocking(
    operation: Callable[Concatenate[Operations, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """The method of ``Client`` that runs an operation to its end."""

    @wraps(operation)
    def method(self: Client, /, *arguments: P.args, **settings: P.kwargs) -> T:
        try:
            return finish(operation(self._bus, *arguments, **settings))
        finally:
            self._settle()

    return method


def iterating(
    operation: Callable[Concatenate[Operations, P], AsyncGenerator[T]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """The method of ``Client`` that yields what an operation yields."""

    @wraps(operation)
    def method(self: Client, /, *arguments: P.args, **settings: P.kwargs) -> Iterator[T]:
        results = operation(self._bus, *arguments, **settings)
        try:
            while True:
                yield self._run(results.__anext__())
        except StopAsyncIteration:
            return
        finally:
            finish(results.aclose())

    return method


class Client(Bus):
    """A connection to the bus of this host, made again by itself when it breaks. One thread at a time.

    ``Bus`` says what the arguments mean. Raises UnavailableError when there is no daemon, RejectedError when it does
    not grant what was asked.
    """

    _driver = BlockingConnection
    _connection: BlockingConnection

    def _begin(self, wait: float) -> None:
        self._bus = Operations(self._session, self._connection)
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
        if self._session.notices:
            self._session.pass_on_notices()
        self._connection.attend()

    # --- publishing ---

    def publish(self, channel: str, payload: bytes | str = b"") -> None:
        """Hand one message to the daemon; waits only while it is away or takes no more.

        What the daemon then rejects (too large, no right) arrives later: as a notice, and from ``barrier``.
        Raises UnavailableError or TimedOutError after ``timeout``: this message was not sent.
        """
        packet = build_msg(channel, payload)
        session, connection = self._session, self._connection
        if session.packer is not None:
            connection.check_process()  # what was gathered before a fork is the parent's
            packs = [(packet, 1)] if session.packer is None else session.packer.add(packet)
            for full, messages in packs:
                finish(connection.transmit(full, messages))
            return
        if not connection.send_now(packet):
            finish(connection.transmit(packet))
        now = monotonic()
        if now >= self._glance_at:
            self._glance_at = now + GLANCE_INTERVAL
            if session.waiting_size < GLANCE_LIMIT:
                connection.read_pending(READ_LIMIT)
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
        is_outermost = self.open_batch()
        try:
            yield
        finally:
            if is_outermost:
                self.close_batch()

    def send_all(self, payload: bytes | str) -> None:
        """To every listening program of the segment."""
        self.publish("!", payload)

    def send_to(self, target: str, payload: bytes | str) -> None:
        """To the program whose src is ``target``, or all below it (``bccnd/wire/BCCN1.md``, "Directed targets")."""
        self.publish("!" + target, payload)

    open_batch = blocking(Operations.open_batch)
    close_batch = blocking(Operations.close_batch)
    send_datagram = blocking(Operations.send_datagram)
    barrier = blocking(Operations.barrier)

    # --- subscribing ---

    subscribe = blocking(Operations.subscribe)
    unsubscribe = blocking(Operations.unsubscribe)
    listen = blocking(Operations.listen)

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message that is not for callbacks only (these are called); None after ``timeout`` seconds."""
        deadline = FOREVER if timeout is None else monotonic() + timeout
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

    request = blocking(Operations.request)
    replies_to = iterating(Operations.replies_to)

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
        self._run(self._connection.available(monotonic() + self._connection.timeout))
        return self._session.name or ""

    set_name = blocking(Operations.set_name)
    heartbeat = blocking(Operations.heartbeat)
    control = blocking(Operations.control)
    status = blocking(Operations.status)
    clients = blocking(Operations.clients)
    sources = blocking(Operations.sources)

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
