"""One socket to the daemon: find it, connect, send a packet, receive a packet, close. It knows of no requests.

Rules:
1. The socket does not block: ``send`` and ``receive_into`` say when they could do nothing. The caller waits.
2. After ECONNRESET, what the daemon had sent is still there (``clients/PROTOCOL.md``, "The socket").
3. ``close`` ends the connection even if a child of fork has a copy of the socket, and wakes a thread that waits on
   it. In such a child it closes the copy only.
"""

import errno
import os
import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

from bccn.errors import ProtocolError, RefusedError, RejectedError, UnavailableError

SERVICE_SOCKET = "/run/bccnd/bus.sock"
# Seconds between attempts to connect. One to a local socket that is not there costs microseconds.
BACKOFF_FIRST = 0.02
BACKOFF_LIMIT = 1.0
# The reason of an UnavailableError: a daemon is there, and as many wait to be accepted as may.
BUSY = "busy"
# Seconds; poll(2) counts milliseconds in an int.
POLL_LIMIT = 86400.0
# Seconds to wait when the kernel has no memory for a packet: neither poll(2) nor epoll(7) waits for that.
MEMORY_PAUSE = 0.001
# Bytes; no packet is longer (``clients/PROTOCOL.md``, "The socket").
PACKET_LIMIT = 128 * 1024

READABLE, WRITABLE = select.POLLIN, select.POLLOUT
# Plain integers: the enums of the socket module cost a conversion for each packet.
NO_SIGNAL, REAL_SIZE = int(socket.MSG_NOSIGNAL), int(socket.MSG_TRUNC)


Path = str | os.PathLike[str]
# Of TLS: the files ``ca``, ``cert`` and ``key``, and the name that the certificate of the door must have.
Credentials = tuple[Path | None, Path | None, Path | None, str | None]


def socket_path(path: Path | None = None) -> str:
    """The socket to use, ``@name`` for an abstract one (``clients/PROTOCOL.md``, "The socket")."""
    chosen = os.fspath(path) if path else os.environ.get("BCCN_SOCKET")
    if chosen:
        return chosen
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    places = [SERVICE_SOCKET, f"{runtime}/bccnd/bus.sock"] if runtime else []
    return next((place for place in places if os.access(place, os.F_OK)), SERVICE_SOCKET)


def socket_address(path: str) -> str | bytes:
    """The address for connect(2), where an abstract name begins with a NUL."""
    return b"\0" + os.fsencode(path[1:]) if path.startswith("@") else path


def pauses() -> Iterator[float]:
    """Seconds to wait before each attempt to connect: longer each time, and not the same for every client."""
    seconds = BACKOFF_FIRST
    while True:
        yield seconds * (0.5 + os.urandom(1)[0] / 255)
        seconds = min(seconds * 2, BACKOFF_LIMIT)


class Transport:
    """A connection to the daemon at ``path``, which is looked up as ``socket_path`` does.

    Raises RefusedError without the permission to connect, UnavailableError where no daemon listens, or where
    one has no room for a connection at this moment.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = socket_path(path)
        opened = off_standard(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        try:
            opened.setblocking(False)
            opened.connect(socket_address(self.path))
        except BaseException as error:
            opened.close()
            if isinstance(error, PermissionError):
                raise RefusedError("refused", f"no permission to connect to {self.path}") from None
            if isinstance(error, BlockingIOError):
                text = f"the daemon at {self.path} is busy: more programs connect than it accepts"
                raise UnavailableError(text, BUSY) from None
            if isinstance(error, OSError):
                raise UnavailableError(f"no daemon at {self.path}: {error.strerror or error}") from None
            raise
        self._use(opened)

    def _use(self, opened: socket.socket) -> None:
        self._pid = os.getpid()
        self._socket = opened
        self._receive, self.send_raw, self.fileno = opened.recv_into, opened.send, opened.fileno
        self._poll, self._polled = select.poll(), 0

    def send(self, packet: bytes) -> bool:
        """Send one packet; False: there is no room for it. Where the kernel lacks memory, that takes a moment.

        Raises RejectedError for a packet that no socket takes, UnavailableError at the end of the connection.
        """
        try:
            self.send_raw(packet, NO_SIGNAL)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise RejectedError("too-large", f"packet: {len(packet)} bytes, too many to send") from None
            if error.errno not in (errno.ENOBUFS, errno.ENOMEM):
                raise UnavailableError("the daemon went away") from None
            time.sleep(MEMORY_PAUSE)
            return False
        return True

    def receive_into(self, memory: bytearray | memoryview) -> int | None:
        """Receive one packet into PACKET_LIMIT bytes; returns its size, or None while there is no packet.

        Raises UnavailableError at the end of the connection, ProtocolError for a packet that is longer, and was cut.
        """
        while True:
            try:
                size = self._receive(memory, 0, REAL_SIZE)
            except BlockingIOError:
                return None
            except ConnectionResetError:
                continue
            except OSError as error:
                raise UnavailableError(f"the connection broke: {error.strerror or error}") from None
            if 0 < size <= PACKET_LIMIT:
                return size
            if size == 0:
                raise UnavailableError("the daemon went away")
            raise ProtocolError(f"the daemon sent {size} bytes, a packet has at most {PACKET_LIMIT}")

    def wait(self, events: int, deadline: float) -> bool:
        """Wait for READABLE, WRITABLE or both until ``deadline`` (monotonic seconds), or a day; False: neither."""
        descriptor = self.fileno()
        if descriptor < 0:  # another thread has closed it
            return True
        if events != self._polled:
            self._poll.register(descriptor, events)
            self._polled = events
        return bool(self._poll.poll(min(max(0.0, deadline - time.monotonic()), POLL_LIMIT) * 1000))

    def close(self) -> None:
        if self._pid == os.getpid():
            with suppress(OSError):  # the daemon has closed it, or this is the second call
                self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def off_standard(opened: socket.socket) -> socket.socket:
    """Never descriptor 0, 1 or 2: in a program that was started without these, what it prints would go there."""
    if opened.fileno() > 2:
        return opened
    import fcntl  # few programs need it

    with opened:
        return socket.socket(fileno=fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 3))
