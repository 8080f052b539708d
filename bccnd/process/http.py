"""HTTP for a few readers on this host: GET and HEAD, one request a connection, on the loop of its program.

Rules
- The body of a request is ignored, and each answer ends its connection (RFC 9112, section 9.6). That leaves so
  little of the protocol that a library would take more lines.
- Nobody can cost more than a few buffers: there are at most CONNECTIONS, and the oldest is closed for a new one;
  each has at most HEAD_LIMIT bytes and SECONDS, whatever its peer does.
- An answer is made at once and in one piece; it goes out as fast as the peer takes it.
- A fault of ours while it is made is answered with 500, and logged, but not each time that somebody asks.
"""

import contextlib
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable
from http import HTTPStatus
from math import inf
from typing import NamedTuple

import structlog

from bccnd.process import fatal

CONNECTIONS = 16
HEAD_LIMIT = 8192  # bytes of request line and headers
SECONDS = 5.0
ACCEPTS = CONNECTIONS  # in one turn
FAULT_SECONDS = 60.0  # from one line about a fault to the next


class Response(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


log = structlog.get_logger()

Handler = Callable[[str, dict[str, str]], Response | None]


def plain(status: HTTPStatus, text: str = "") -> Response:
    return Response(status, (text or status.phrase).encode() + b"\n")


def answer(head: bytes, handler: Handler) -> bytes:
    """The whole answer to a request, of which ``head`` is all up to its empty line.

    ``handler`` gets the path and the headers, their names in lower case. It returns None for an unknown path.
    """
    method, target, headers = _parse(head)
    if not method:
        response = plain(HTTPStatus.BAD_REQUEST)
    elif method not in ("GET", "HEAD"):
        response = plain(HTTPStatus.METHOD_NOT_ALLOWED)
    else:
        response = handler(target.partition("?")[0], headers) or plain(HTTPStatus.NOT_FOUND)
    return _serialize(response, with_body=method != "HEAD")


def _parse(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, target and headers; all empty when it is not an HTTP/1 request (RFC 9112, sections 3 and 5)."""
    request, *lines = head.decode("latin-1").replace("\r\n", "\n").rstrip("\n").split("\n")
    parts = request.split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.0", "HTTP/1.1") or not parts[0] or parts[1][:1] != "/":
        return "", "", {}
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return "", "", {}
        headers[name.lower()] = value.strip()
    return parts[0], parts[1], headers


def _serialize(response: Response, *, with_body: bool = True) -> bytes:
    status = response.status
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    head = "".join([f"{line}\r\n" for line in lines]).encode() + b"\r\n"
    return head + response.body if with_body else head


class HttpServer:
    """Serves connections to ``listening`` (bound, listening, non-blocking) between ``resume`` and ``pause``."""

    def __init__(self, loop: AbstractEventLoop, listening: socket.socket, handler: Handler) -> None:
        self._loop = loop
        self._listening = listening
        self._handler = handler
        self._connections: dict[_Connection, None] = {}  # the oldest first
        self._fault_at = -inf  # when the last one was logged

    def resume(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def pause(self) -> None:
        """Let new connections wait. Those that have sent a request are answered."""
        self._loop.remove_reader(self._listening)
        for connection in list(self._connections):
            connection.readable()

    def close(self) -> None:
        self._loop.remove_reader(self._listening)
        for connection in list(self._connections):
            connection.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                # Nobody is left, or no descriptors: the bus reports that, and the next turn tries again.
                return
            if len(self._connections) >= CONNECTIONS:
                next(iter(self._connections)).close()
            accepted.setblocking(False)
            connection = _Connection(self._loop, accepted, self._answer, self._connections)
            self._connections[connection] = None

    def _answer(self, head: bytes) -> bytes:
        try:
            return answer(head, self._handler)
        except Exception as error:
            fatal.unless_out_of_memory(error)
            now = self._loop.time()
            if now - self._fault_at >= FAULT_SECONDS:
                self._fault_at = now
                log.error("fault", where="a request by HTTP", exc_info=error)
            return _serialize(plain(HTTPStatus.INTERNAL_SERVER_ERROR))


class _Connection:
    def __init__(
        self,
        loop: AbstractEventLoop,
        accepted: socket.socket,
        answer: Callable[[bytes], bytes],
        others: dict["_Connection", None],
    ) -> None:
        self._loop = loop
        self._socket = accepted
        self._answer = answer
        self._others = others
        self._head = bytearray()
        self._rest: memoryview | None = None  # of the answer
        self._end = loop.call_later(SECONDS, self.close)
        loop.add_reader(accepted, self.readable)

    def readable(self) -> None:
        try:
            data = self._socket.recv(HEAD_LIMIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
        elif self._rest is None:  # what follows the request is ignored
            self._head += data
            self._ask()

    def _ask(self) -> None:
        head, found, _ = bytes(self._head).replace(b"\r\n", b"\n").partition(b"\n\n")
        if len(head) > HEAD_LIMIT or (not found and len(self._head) > HEAD_LIMIT):
            self._rest = memoryview(_serialize(plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)))
        elif found:
            self._rest = memoryview(self._answer(head))
        else:
            return
        self._head.clear()
        self._writable()

    def _writable(self) -> None:
        assert self._rest is not None  # noqa: S101 - only called once there is an answer
        try:
            self._rest = self._rest[self._socket.send(self._rest) :]
            if not self._rest:
                # The peer closes when it has read everything: closing with anything unread would cut it off.
                self._loop.remove_writer(self._socket)
                self._socket.shutdown(socket.SHUT_WR)
                return
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        self._loop.add_writer(self._socket, self._writable)

    def close(self) -> None:
        if self._others.pop(self, self) is self:
            return
        self._end.cancel()
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        with contextlib.suppress(OSError):
            self._socket.close()
