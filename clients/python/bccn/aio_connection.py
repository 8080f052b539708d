"""The asyncio client's connection: a socket that is made again when it breaks, under a ``Session``.

Rules:
1. The raw socket is watched with ``add_reader`` and, only while it takes no more, ``add_writer``: this works
   on asyncio's own loops and on uvloop.
2. Reading pauses while READ_AHEAD_LIMIT bytes of messages wait to be received (then the daemon's queue for
   this client fills, as it was chosen to), but never while an answer is awaited.
3. Nothing is sent on a connection before it is greeted. A request and the packet it confirms go together.
4. A connection that ends is read to its end before it is closed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Callable

from bccn.errors import (
    BacklogError,
    BccnError,
    ClosedError,
    ProtocolError,
    RefusedError,
    RejectedError,
    TimedOutError,
    UnavailableError,
)
from bccn.path import socket_address, socket_path
from bccn.protocol import RECEIVE_LIMIT
from bccn.session import (
    BACKLOG_LIMIT,
    BACKOFF_FIRST,
    BACKOFF_LIMIT,
    Notice,
    Question,
    Session,
    worth_waiting,
)

READ_AHEAD_LIMIT = 1024 * 1024
READ_LIMIT = 64  # packets read in one turn of the loop
MEMORY_PAUSE = 0.001  # seconds, when the kernel has no memory for a packet
GONE = (BrokenPipeError, ConnectionResetError, ConnectionRefusedError)


class AsyncConnection:
    """``on_news`` is called when something was read, and when the connection came, went or was closed."""

    def __init__(
        self,
        session: Session,
        path: str | os.PathLike[str] | None,
        *,
        reconnect: bool,
        timeout: float,
        on_news: Callable[[], None],
    ) -> None:
        self.timeout = timeout
        self.closed = False
        self.greeted = False  # ready for use
        self._session = session
        self._path = path
        self._reconnect = reconnect
        self._on_news = on_news
        self._pid = os.getpid()
        self._buffer = bytearray(RECEIVE_LIMIT)
        self._view = memoryview(self._buffer)
        self._socket: socket.socket | None = None
        self._reading = False
        self._was_connected = False
        self._changed = asyncio.Event()
        self._sending = asyncio.Lock()
        self._writable: asyncio.Future[None] | None = None
        self._returning: asyncio.Task[None] | None = None

    @property
    def gone(self) -> bool:
        """Whether it broke and is not to be made again."""
        return self._socket is None and self._was_connected and not self._reconnect

    # --- making it ---

    async def connect(self, wait: float) -> list[BccnError]:
        """Connect, trying for ``wait`` seconds; returns what the daemon had against what is wanted."""
        deadline = time.monotonic() + wait
        backoff = BACKOFF_FIRST
        while True:
            try:
                return await self._attempt()
            except UnavailableError:
                if time.monotonic() + backoff > deadline:
                    raise
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, BACKOFF_LIMIT)

    async def close(self) -> None:
        self.closed = True
        if self._socket is not None:
            self._release()
            self._session.unconnected("the client is closed")
        self._changed.set()
        self._on_news()
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.gather(self._returning, return_exceptions=True)

    async def ready(self) -> socket.socket:
        """Wait for a greeted connection."""
        while True:
            self._check_usable()
            if self.greeted and self._socket is not None:
                return self._socket
            if self.gone or not self._was_connected:
                raise UnavailableError("there is no connection to the daemon")
            self._changed.clear()
            await self._changed.wait()

    def _check_usable(self) -> None:
        if self.closed:
            raise ClosedError("the client is closed")
        if self._pid != os.getpid():
            raise ClosedError("the client was made before fork: make another one here")

    async def _attempt(self) -> list[BccnError]:
        path = socket_path(self._path)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        self._socket = connection
        try:
            connection.connect(socket_address(path))
            async with asyncio.timeout(self.timeout):
                errors = await self._greet(connection)
            if self._was_connected and any(worth_waiting(error) for error in errors):
                raise UnavailableError(str(errors[0]))
        except BaseException as error:
            self._release()
            connection.close()
            self._session.unconnected("the connection to the daemon could not be made")
            if isinstance(error, PermissionError) and not self._was_connected:
                raise RefusedError("refused", f"no permission to connect to {path}") from None
            if isinstance(error, TimeoutError):
                raise UnavailableError("the daemon does not answer") from None
            if isinstance(error, OSError) and not isinstance(error, UnavailableError):
                raise UnavailableError(f"no daemon at {path}: {error.strerror or error}") from None
            raise
        if self._was_connected:
            self._session.notices.append(Notice("reconnected", "connected to the daemon again"))
        self._was_connected = self.greeted = True
        self._changed.set()
        self._on_news()
        return errors

    async def _greet(self, connection: socket.socket) -> list[BccnError]:
        packets = self._session.greeting()
        self.regulate()
        for packet in packets:
            if not await self._send(connection, packet):
                break
        while (errors := self._session.greeted()) is None:
            await _answered(self._session.greeting_end)
        if self._socket is not connection:
            raise UnavailableError("the daemon went away")
        return errors

    def _lose(self, reason: str) -> None:
        """It ended and has been read to its end."""
        if not self.greeted:  # ``_attempt`` is under way and takes it from here
            self._release()
            self._session.unconnected(reason)
            return
        self._release()
        self._session.disconnected(reason)
        self._changed.set()
        self._on_news()
        if self._reconnect and not self.closed:
            self._returning = asyncio.get_running_loop().create_task(self._come_back())

    async def _come_back(self) -> None:
        backoff = BACKOFF_FIRST
        while True:
            try:
                errors = await self._attempt()
                break
            except (UnavailableError, ProtocolError):
                await asyncio.sleep(backoff * (0.5 + os.urandom(1)[0] / 255))
                backoff = min(backoff * 2, BACKOFF_LIMIT)
        for error in errors:
            if isinstance(error, RejectedError):
                self._session.notices.append(Notice("rejected", str(error), 1, error))
        self._on_news()

    def _release(self) -> None:
        connection, self._socket, self.greeted = self._socket, None, False
        if connection is None:
            return
        loop = asyncio.get_running_loop()
        if self._reading:
            loop.remove_reader(connection.fileno())
            self._reading = False
        if self._writable is not None:
            loop.remove_writer(connection.fileno())
            self._on_writable()
        connection.close()

    # --- reading ---

    def regulate(self) -> None:
        """Read or pause, as rule 2 says."""
        if self._socket is None:
            return
        wanted = self._session.asking or self._session.waiting_size <= READ_AHEAD_LIMIT
        if wanted == self._reading:
            return
        loop = asyncio.get_running_loop()
        if wanted:
            loop.add_reader(self._socket.fileno(), self._on_readable)
        else:
            loop.remove_reader(self._socket.fileno())
        self._reading = wanted

    def _on_readable(self) -> None:
        try:
            for _ in range(READ_LIMIT):
                if not self._read():
                    break
        except (UnavailableError, ProtocolError) as error:
            self._lose(str(error))
        self._on_news()
        self.regulate()

    def _read(self) -> bool:
        """One packet, if there is one. Raises UnavailableError at the end of the connection."""
        if self._socket is None:
            return False
        while True:
            try:
                size = self._socket.recv_into(self._buffer)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                continue  # told once; what was sent before can still be read
            if size == 0:
                raise UnavailableError("the daemon went away")
            self._session.feed(bytes(self._view[:size]))
            return True

    def _read_to_end(self) -> None:
        """Sending failed: take what still came, then let go."""
        while self._socket is not None:
            try:
                if not self._read():
                    raise UnavailableError("the daemon went away")
            except (UnavailableError, ProtocolError) as error:
                self._lose(str(error))

    # --- writing ---

    async def transmit(self, packet: bytes) -> None:
        """Send, through reconnections and a full socket, within ``timeout``."""
        connection = self._socket
        if (
            connection is not None
            and self.greeted
            and self._pid == os.getpid()
            and not self._sending.locked()
            and self._try_send(connection, packet) == "sent"
        ):
            return
        self._check_usable()
        try:
            async with asyncio.timeout(self.timeout), self._sending:
                while not await self._send(await self.ready(), packet):
                    pass
        except TimeoutError:
            raise self._too_late("not sent: the daemon takes no more messages") from None

    async def _send(self, connection: socket.socket, packet: bytes) -> bool:
        """Send on this connection; False when it broke first."""
        while self._socket is connection:
            outcome = self._try_send(connection, packet)
            if outcome == "sent":
                return True
            if outcome == "full":
                await self._wait_writable(connection)
            elif outcome == "no memory":
                await asyncio.sleep(MEMORY_PAUSE)
        return False

    def _try_send(self, connection: socket.socket, packet: bytes) -> str:
        """``sent``, ``full``, ``no memory``; ``gone``: and the connection has been let go."""
        try:
            connection.send(packet, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return "full"
        except GONE:
            self._read_to_end()
            return "gone"
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise RejectedError("too-large", f"packet: {len(packet)} bytes, too many to send") from None
            if error.errno in (errno.ENOBUFS, errno.ENOMEM):
                return "no memory"
            raise
        return "sent"

    async def _wait_writable(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._writable = loop.create_future()
        loop.add_writer(connection.fileno(), self._on_writable)
        try:
            await self._writable
        finally:
            self._writable = None
            if self._socket is connection:
                loop.remove_writer(connection.fileno())

    def _on_writable(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def _too_late(self, text: str) -> BccnError:
        return TimedOutError(text) if self.greeted else UnavailableError("the daemon is away")

    # --- asking ---

    async def ask(
        self,
        key: str,
        value: str | None = None,
        *,
        before: bytes | None = None,
        enter: Callable[[], object] | None = None,
        timeout: float | None = None,
    ) -> str:
        """``before`` and a control request in one go; the value of the answer.

        ``enter`` is called once there is a connection to send on. Should that break, the greeting of the next
        one says what was in ``before``, and only the request is made again.
        """
        self._check_usable()
        try:
            async with asyncio.timeout(self.timeout if timeout is None else timeout):
                while True:
                    async with self._sending:
                        connection = await self.ready()
                        if enter is not None:
                            enter()
                            enter = None
                        request = await self._send_request(connection, key, value, before)
                        before = None
                    if request is not None and await _answered(request):
                        return request.result()
        except TimeoutError:
            raise self._too_late("the daemon does not answer") from None

    def check_backlog(self) -> None:
        """Who waits to be heard reads; who never receives must not go on like that."""
        if self._session.waiting_size > BACKLOG_LIMIT:
            waiting = len(self._session.backlog) + len(self._session.received)
            raise BacklogError(f"{waiting} messages wait to be received: await receive()")

    async def _send_request(
        self, connection: socket.socket, key: str, value: str | None, before: bytes | None
    ) -> Question | None:
        """None: the connection broke first."""
        self.check_backlog()
        if before is not None and not await self._send(connection, before):
            return None
        packet, request = self._session.ask(key, value)
        self.regulate()
        try:
            sent = await self._send(connection, packet)
        except BaseException:
            self._session.withdraw(request)
            raise
        return request if sent else None


async def _answered(request: Question) -> bool:
    """Wait for the answer; False: the connection broke first."""
    if not request.done:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request.wake = lambda: None if answer.done() else answer.set_result(None)
        await answer
    return not isinstance(request.error, UnavailableError)
