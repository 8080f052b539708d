"""The blocking client's connection: a socket that is made again when it breaks, under a ``Session``.

Rules:
1. The socket does not block; every wait is a poll(2) with a deadline.
2. Waiting to be heard (for an answer, for room to send) goes on reading, or two who wait for each other would
   wait for ever. What is read meanwhile waits in the session.
3. A connection that ends is read to its end before it is closed: what the daemon had sent is not lost.
4. A child of fork never touches the parent's connection: its first call makes one of its own.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time

from bccn.errors import (
    BacklogError,
    BccnError,
    ClosedError,
    RefusedError,
    RejectedError,
    TimedOutError,
    UnavailableError,
)
from bccn.path import socket_address, socket_path
from bccn.protocol import RECEIVE_LIMIT
from bccn.session import BACKLOG_LIMIT, BACKOFF_FIRST, BACKOFF_LIMIT, Notice, Session, worth_waiting

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    from bccn.readiness import Readiness
    from bccn.session import Question

GONE = (BrokenPipeError, ConnectionResetError, ConnectionRefusedError)
POLL_LIMIT = 86400.0  # seconds; poll(2) counts milliseconds in an int
MEMORY_PAUSE = 0.001  # seconds, when the kernel has no memory for a packet: poll(2) does not wait for that


class Connection:
    def __init__(self, session: Session, path: str | os.PathLike[str] | None, *, reconnect: bool) -> None:
        self.timeout = 5.0
        self.closed = False
        self._session = session
        self._path = path
        self._reconnect = reconnect
        self._socket: socket.socket | None = None
        self._pid = os.getpid()
        self._buffer = bytearray(RECEIVE_LIMIT)
        self._view = memoryview(self._buffer)
        self._readiness: Readiness | None = None
        self._was_connected = False
        self._backoff = BACKOFF_FIRST
        self._retry_at = 0.0

    @property
    def connected(self) -> bool:
        return self._socket is not None and self._pid == os.getpid()

    def deadline(self, timeout: float | None = None) -> float:
        return time.monotonic() + (self.timeout if timeout is None else timeout)

    # --- making it ---

    def ensure(self, deadline: float | None) -> socket.socket:
        """The connection, made again if need be; tries until ``deadline``, or for ever with None."""
        self._check_process()
        if self._socket is None:
            for error in self.connect(deadline):
                if isinstance(error, RejectedError):
                    self._session.notices.append(Notice("rejected", str(error), 1, error))
        if self._socket is None:  # only a signal handler or another thread can have done that
            raise ClosedError("the client is closed")
        return self._socket

    def connect(self, deadline: float | None) -> list[BccnError]:
        """Connect and say what is wanted; returns what the daemon had against that."""
        if self._was_connected and not self._reconnect:
            raise UnavailableError("the connection to the daemon is gone")
        while True:
            try:
                errors = self._attempt()
                break
            except UnavailableError:
                pause = self._backoff * (0.5 + os.urandom(1)[0] / 255)
                self._backoff = min(self._backoff * 2, BACKOFF_LIMIT)
                self._retry_at = time.monotonic() + pause
                if deadline is not None and self._retry_at > deadline:
                    raise
                time.sleep(pause)
        if self._was_connected:
            self._session.notices.append(Notice("reconnected", "connected to the daemon again"))
        self._was_connected = True
        self._backoff = BACKOFF_FIRST
        self._retry_at = 0.0
        return errors

    def try_if_due(self) -> bool:
        """Connected, perhaps by one attempt if one is due; does not wait."""
        self._check_process()
        if self._socket is None and time.monotonic() >= self._retry_at:
            try:
                self.ensure(0.0)
            except UnavailableError:
                if not self._reconnect:
                    raise
        return self._socket is not None

    def _attempt(self) -> list[BccnError]:
        path = socket_path(self._path)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.setblocking(False)
            connection.connect(socket_address(path))
            self._socket = connection
            errors = self._greet(connection)
            if self._was_connected and any(worth_waiting(error) for error in errors):
                raise UnavailableError(str(errors[0]))
        except BaseException as error:
            connection.close()
            self._socket = None
            self._session.unconnected("the connection to the daemon could not be made")
            if isinstance(error, PermissionError) and not self._was_connected:
                raise RefusedError("refused", f"no permission to connect to {path}") from None
            if isinstance(error, OSError) and not isinstance(error, UnavailableError):
                raise UnavailableError(f"no daemon at {path}: {error.strerror or error}") from None
            raise
        if self._readiness is not None:
            self._readiness.watch(connection.fileno())
        return errors

    def _greet(self, connection: socket.socket) -> list[BccnError]:
        deadline = self.deadline()
        for packet in self._session.greeting():
            while not self._try_send(connection, packet):
                if not self._wait(select.POLLOUT, deadline):
                    raise UnavailableError("the daemon does not listen")
        while (errors := self._session.greeted()) is None:
            if not self.read() and not self._wait(select.POLLIN, deadline):
                raise UnavailableError("the daemon does not answer")
        return errors

    def _check_process(self) -> None:
        if self.closed:
            raise ClosedError("the client is closed")
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        if self._readiness is not None:
            self._readiness.abandon()
            self._readiness = None
        self._let_go()  # of our copy of the descriptor; the parent's connection lives on
        self._session.forked(self._pid)
        self._was_connected = False
        self._backoff, self._retry_at = BACKOFF_FIRST, 0.0

    def _let_go(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._readiness is not None:
            self._readiness.close()
            self._readiness = None

    def close(self) -> None:
        self.closed = True
        self._let_go()

    def _lose(self, reason: str) -> None:
        """It ended and has been read to its end."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._session.disconnected(reason)

    # --- reading ---

    def read(self) -> bool:
        """One packet, if there is one. Raises UnavailableError at the end of the connection."""
        if self._socket is None:
            raise UnavailableError("the connection to the daemon is gone")
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

    def read_pending(self, limit: int) -> None:
        """Up to ``limit`` packets that are there already."""
        if self._socket is None:
            return
        try:
            while limit > 0 and self.read():
                limit -= 1
        except UnavailableError as error:
            self._lose(str(error))

    def read_next(self, deadline: float | None) -> bool:
        """Wait until something may have happened; False: ``deadline`` passed."""
        try:
            self.ensure(deadline)
        except UnavailableError:
            if not self._reconnect or deadline is None:
                raise
            time.sleep(max(0.0, deadline - time.monotonic()))  # the next attempt would be later than that
            return False
        try:
            return self.read() or self._wait(select.POLLIN, deadline)
        except UnavailableError as error:
            self._lose(str(error))
            return True

    # --- writing ---

    def transmit(self, packet: bytes) -> None:
        """Send, through reconnections and a full socket, within ``timeout``."""
        connection = self._socket
        try:
            if connection is not None and self._pid == os.getpid() and self._try_send(connection, packet):
                return
        except GONE:
            self._read_to_end()
        deadline = self.deadline()
        while not self._send(self.ensure(deadline), packet, deadline):
            pass

    def _send(self, connection: socket.socket, packet: bytes, deadline: float) -> bool:
        """Send on this connection; False when it broke first."""
        try:
            while not self._try_send(connection, packet):
                self._make_room(deadline)
                if self._socket is not connection:
                    return False
        except GONE:
            self._read_to_end()
            return False
        return True

    def _try_send(self, connection: socket.socket, packet: bytes) -> bool:
        try:
            connection.send(packet, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise RejectedError("too-large", f"packet: {len(packet)} bytes, too many to send") from None
            if error.errno in (errno.ENOBUFS, errno.ENOMEM):
                time.sleep(MEMORY_PAUSE)
                return False
            raise
        return True

    def _read_to_end(self) -> None:
        """Sending failed: take what still came, then let go."""
        while self._socket is not None:
            try:
                if not self.read():
                    raise UnavailableError("the daemon went away")
            except UnavailableError as error:
                self._lose(str(error))

    def _make_room(self, deadline: float) -> None:
        """Wait until the socket takes more, reading meanwhile: the daemon may be waiting for us to read."""
        reading = select.POLLIN if self._session.waiting_size < BACKLOG_LIMIT else 0
        if not self._wait(select.POLLOUT | reading, deadline):
            raise TimedOutError("not sent: the daemon takes no more messages")
        if reading:
            self.read_pending(1)

    def _wait(self, events: int, deadline: float | None) -> bool:
        """poll(2); False: ``deadline`` passed."""
        if self._socket is None:
            return True
        poll = select.poll()
        poll.register(self._socket, events)
        if deadline is None:
            return bool(poll.poll())
        while True:
            left = max(0.0, deadline - time.monotonic())
            if poll.poll(min(left, POLL_LIMIT) * 1000):
                return True
            if left <= POLL_LIMIT:
                return False

    # --- asking ---

    def ask(
        self, key: str, value: str | None = None, *, before: bytes | None = None, timeout: float | None = None
    ) -> str:
        """Send ``before`` and a control request, return the value of its answer.

        When the connection breaks on the way the request is made again on the next one, whose greeting has
        said what was in ``before``.
        """
        deadline = self.deadline(timeout)
        while True:
            connection = self.ensure(deadline)
            self.check_backlog()
            said = before is None or self._send(connection, before, deadline)
            before = None
            if not said:
                continue
            packet, request = self._session.ask(key, value)
            if self._send_request(connection, packet, request, deadline):
                self._await(request, deadline)
            if not isinstance(request.error, UnavailableError):
                return request.result()

    def check_backlog(self) -> None:
        """Who waits to be heard reads; who never receives must not go on like that."""
        if self._session.waiting_size > BACKLOG_LIMIT:
            waiting = len(self._session.backlog) + len(self._session.received)
            raise BacklogError(f"{waiting} messages wait to be received: call receive() or dispatch()")

    def _send_request(
        self, connection: socket.socket, packet: bytes, request: Question, deadline: float
    ) -> bool:
        try:
            return self._send(connection, packet, deadline)
        except BaseException:
            self._session.withdraw(request)
            raise

    def _await(self, request: Question, deadline: float) -> None:
        try:
            while not request.done:
                if not self.read() and not self._wait(select.POLLIN, deadline):
                    raise TimedOutError("the daemon does not answer")
        except UnavailableError as error:
            self._lose(str(error))  # which is the answer to all requests

    # --- select loops ---

    def fileno(self) -> int:
        self._check_process()
        if self._readiness is None:
            from bccn.readiness import Readiness

            self._readiness = Readiness()
            if self._socket is not None:
                self._readiness.watch(self._socket.fileno())
        return self._readiness.fileno()

    def settle(self) -> None:
        """Tell select loops how things stand."""
        if self._readiness is None:
            return
        self._readiness.settle(pending=self._session.waiting)
        if self._socket is None:
            self._readiness.ring_in(max(0.0, self._retry_at - time.monotonic()))
