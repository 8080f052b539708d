"""WebSocket between a socket and the bytes of bpmux, without I/O, by the library ``websockets``.

Rules
- A client asks for the path /bus and offers the subprotocols ``bpmux`` and ``token.<TOKEN>``: a browser can set no
  header of its own, and a token in the address would be logged. It is answered with ``bpmux``.
- A token alone does not prove what a browser sends. Host must be a name of the door, or a page could reach the door
  under a name of its own. Origin, if present, must be in the settings, or be Host with the door's scheme.
- Any other path belongs to the page (``pages.py``), which says nothing about the bus and so needs no token.
- The bytes are those of binary frames. The limits between frames mean nothing.
- The library decodes everything that it is given at once. So it gets one PORTION after the other, until these have
  had FRAMES frames.
"""

import hmac
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus

from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from bccnd.mux import limits
from bccnd.mux.carrier import Carrier, CarrierError
from bccnd.mux.pages import HEADERS, NONE, Page, Pages
from bccnd.mux.peer import Peer

PATH = "/bus"
PROTOCOL = "bpmux"
TOKEN = "token."  # noqa: S105 - how one is announced
# Tokens that one client may offer.
TOKENS_LIMIT = 8
# Bytes of a frame. Ours have 64 KiB.
FRAME_LIMIT = 256 * 1024
# Bytes that the library is given at a time: two milliseconds of work, if all its frames are short.
PORTION = 2048


@dataclass(frozen=True, slots=True)
class Tokens:
    """``users``: the peer of each token. ``hosts``: names of the door; ``origins``: those of pages.

    ``scheme``: http, or https where the door speaks TLS.
    """

    users: Sequence[tuple[bytes, Peer]]
    hosts: Collection[str]
    origins: Collection[str] = ()
    scheme: str = "http"

    def bearer(self, tokens: Sequence[str]) -> Peer | None:
        """The peer of a token. All are compared, in constant time."""
        pairs = [
            (known, peer, token.encode(errors="surrogatepass"))
            for known, peer in self.users
            for token in tokens[:TOKENS_LIMIT]
        ]
        found = [peer for known, peer, token in pairs if hmac.compare_digest(known, token)]
        return found[0] if found else None


class WebSocket:
    """The server's side of one connection. ``peer``: the bearer of its token, once it ``is_ready``."""

    def __init__(self, tokens: Tokens, pages: Pages = NONE) -> None:
        self._pages = pages
        self.peer: Peer | None = None
        self.chatter = self.frames = self.replies = 0
        self._begun = 0  # bytes of a frame that has not come as a whole
        self._unread = b""
        self._tokens = tokens
        self._protocol = ServerProtocol(subprotocols=[Subprotocol(PROTOCOL)], max_size=FRAME_LIMIT)

    @property
    def is_ready(self) -> bool:
        return self.peer is not None

    @property
    def has_ended(self) -> bool:
        return self.is_ready and self._protocol.state is not State.OPEN

    @property
    def is_behind(self) -> bool:
        return bool(self._unread)

    @property
    def held(self) -> int:
        return self._begun + len(self._unread)

    def received(self, data: bytes, most: int = limits.FRAMES) -> bytes:
        self._unread += data
        pieces: list[bytes] = []
        end = self.frames + most
        while self._unread and self.frames < end and not self.has_ended:
            portion, self._unread = self._unread[:PORTION], self._unread[PORTION:]
            self._parse(portion, pieces)
        if self.has_ended:
            self._unread = b""
        return b"".join(pieces)

    def _parse(self, data: bytes, pieces: list[bytes]) -> None:
        protocol = self._protocol
        protocol.receive_data(data)
        events = protocol.events_received()
        self._begun = 0 if events else self._begun + len(data)
        self.frames += len(events)
        for event in events:
            if isinstance(event, Request):
                self._asked(event)
            elif isinstance(event, Frame):
                self._framed(event, pieces)
        if protocol.parser_exc is not None:
            raise CarrierError("websocket")
        if protocol.handshake_exc is not None:
            raise CarrierError("http")

    def outgoing(self, data: bytes = b"") -> bytes:
        self.replies = 0
        if data and self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
        return b"".join(self._protocol.data_to_send())

    def _framed(self, frame: Frame, pieces: list[bytes]) -> None:
        if frame.opcode is Opcode.TEXT:
            raise CarrierError("websocket")
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            pieces.append(bytes(frame.data))
            self.chatter += not frame.data
        else:
            self.chatter += 1
            self.replies += len(frame.data) + 2

    def _asked(self, request: Request) -> None:
        protocol = self._protocol
        status, text, peer = self._judged(request)
        if not status and request.path != PATH:
            protocol.send_response(_answer(self._pages[request.path], request))
            raise CarrierError("page")
        if status:
            refused = protocol.reject(status, text)
            if status == HTTPStatus.METHOD_NOT_ALLOWED:
                refused.headers["Allow"] = "GET"
            protocol.send_response(refused)
            raise CarrierError("http")
        response = protocol.accept(request)
        protocol.send_response(response)
        if protocol.state is State.OPEN:
            self.peer = peer

    def _judged(self, request: Request) -> tuple[int, str, Peer | None]:
        """The HTTP status of a refusal, its text, and the peer; status 0 if it is let in."""
        headers = request.headers
        host, origin = _only(headers, "Host"), ", ".join(headers.get_all("Origin"))
        if host not in self._tokens.hosts:
            return 403, "This is no name of the door: see hosts in its settings.\n", None
        own = f"{self._tokens.scheme}://{host}"
        if origin and origin != own and origin not in self._tokens.origins:
            return 403, "Pages from there may not come in: see origins in the settings.\n", None
        is_page = request.path in self._pages
        if _method(request) not in (("GET", "HEAD") if is_page else ("GET",)):
            return HTTPStatus.METHOD_NOT_ALLOWED, "There is only something to get here.\n", None
        if is_page:
            return 0, "", None
        if request.path != PATH:
            return 404, f"There is a WebSocket at {PATH}, and nothing of that name.\n", None
        offered = [
            word.strip() for line in headers.get_all("Sec-WebSocket-Protocol") for word in line.split(",")
        ]
        if PROTOCOL not in offered:
            return 400, f"Offer the subprotocols {PROTOCOL} and {TOKEN}<TOKEN>.\n", None
        peer = self._tokens.bearer([word.removeprefix(TOKEN) for word in offered if word.startswith(TOKEN)])
        if peer is None:
            return 401, "That token is nobody's.\n", None
        return 0, "", peer


def _only(headers: Headers, name: str) -> str:
    """The one value of a header; empty where there is none, or more than one."""
    values = headers.get_all(name)
    return values[0] if len(values) == 1 else ""


def _method(request: Request) -> str:
    """The method of a request. Versions of the library that do not report it accept only GET."""
    return getattr(request, "method", "GET")


def _answer(page: Page, request: Request) -> Response:
    """The page, its headers alone, or the answer that the browser's copy is still good."""
    tags = ",".join(request.headers.get_all("If-None-Match"))
    known = {each.strip().removeprefix("W/") for each in tags.split(",")}
    dated = [("Date", formatdate(usegmt=True)), ("ETag", page.tag)]
    if known & {page.tag, "*"}:
        status, body, described = HTTPStatus.NOT_MODIFIED, b"", []
    else:
        status, body = HTTPStatus.OK, page.body if _method(request) == "GET" else b""
        described = [("Content-Type", page.kind), ("Content-Length", str(len(page.body)))]
    return Response(status.value, status.phrase, Headers([*dated, *described, *HEADERS]), body)


class Stacked:
    """One carrier in another, such as WebSocket in TLS."""

    def __init__(self, outer: Carrier, inner: Carrier) -> None:
        self._outer, self._inner = outer, inner

    @property
    def is_ready(self) -> bool:
        return self._inner.is_ready

    @property
    def is_behind(self) -> bool:
        return self._outer.is_behind or self._inner.is_behind

    @property
    def has_ended(self) -> bool:
        return self._outer.has_ended or self._inner.has_ended

    @property
    def chatter(self) -> int:
        return self._outer.chatter + self._inner.chatter

    @property
    def frames(self) -> int:
        return self._outer.frames + self._inner.frames

    @property
    def replies(self) -> int:
        return self._outer.replies + self._inner.replies

    @property
    def held(self) -> int:
        return self._outer.held + self._inner.held

    def received(self, data: bytes, most: int = limits.FRAMES) -> bytes:
        brought = self._outer.received(data, most) if data or self._outer.is_behind else b""
        return self._inner.received(brought, most)

    def outgoing(self, data: bytes = b"") -> bytes:
        return self._outer.outgoing(self._inner.outgoing(data) if self._outer.is_ready else b"")
