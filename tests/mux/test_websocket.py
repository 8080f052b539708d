"""WebSocket without a socket: a client of the library and the carrier, joined in memory."""

from typing import Any

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.protocol import State
from websockets.uri import parse_uri

from bccnd.mux import limits
from bccnd.mux.carrier import CarrierError, Plain
from bccnd.mux.pages import Page
from bccnd.mux.peer import Peer
from bccnd.mux.websocket import FRAME_LIMIT, PORTION, Stacked, Tokens, WebSocket

BOARD, OTHER = Peer(1000, (1000,), 0, b"board"), Peer(1001, (1001,), 0, b"other")
TOKENS = Tokens(
    ((b"sixteen-letters-1", BOARD), (b"sixteen-letters-2", OTHER)),
    {"127.0.0.1:5480"},
    {"https://board.example.org"},
)


class Browser:
    """A client that asks at once. ``headers``: besides those that each client sends."""

    def __init__(
        self,
        protocols: tuple[str, ...] = ("bpmux", "token.sixteen-letters-1"),
        url: str = "ws://127.0.0.1:5480/bus",
        **headers: str,
    ) -> None:
        self.protocol = ClientProtocol(parse_uri(url), subprotocols=list(protocols))  # type: ignore[arg-type]
        request = self.protocol.connect()
        for name, value in headers.items():
            if name in request.headers:
                del request.headers[name]
            request.headers[name] = value
        self.protocol.send_request(request)

    def says(self) -> bytes:
        return b"".join(self.protocol.data_to_send())

    def hears(self, data: bytes) -> list[Any]:
        self.protocol.receive_data(data)
        return self.protocol.events_received()


def entered(**options: Any) -> tuple[WebSocket, Browser]:
    carrier, browser = WebSocket(TOKENS), Browser(**options)
    assert carrier.received(browser.says()) == b""
    browser.hears(carrier.outgoing())
    assert browser.protocol.state is State.OPEN
    return carrier, browser


@pytest.mark.parametrize(
    ("options", "peer"),
    [
        ({}, BOARD),
        ({"protocols": ("token.sixteen-letters-2", "bpmux")}, OTHER),
        ({"protocols": ("bpmux", "token.wrong", "token.sixteen-letters-1")}, BOARD),
        ({"Origin": "https://board.example.org"}, BOARD),
        ({"Origin": "http://127.0.0.1:5480"}, BOARD),
    ],
)
def test_a_token_says_who_it_is(options: dict[str, Any], peer: Peer) -> None:
    carrier, browser = entered(**options)
    assert carrier.is_ready
    assert carrier.peer == peer
    assert browser.protocol.subprotocol == "bpmux"


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ({"protocols": ("bpmux",)}, 401, b"token is nobody's"),
        ({"protocols": ("bpmux", "token.sixteen-letters-3")}, 401, b"token is nobody's"),
        ({"protocols": ("bpmux", "token.")}, 401, b"token is nobody's"),
        ({"protocols": ("mqtt", "token.sixteen-letters-1")}, 400, b"Offer the subprotocols"),
        ({"Origin": "https://evil.example.org"}, 403, b"see origins"),
        ({"Origin": "null"}, 403, b"see origins"),
        ({"Origin": "https://127.0.0.1:5480"}, 403, b"see origins"),
        ({"Host": "evil.example.org:5480"}, 403, b"no name of the door"),
        ({"url": "ws://127.0.0.1:5480/"}, 404, b"a WebSocket at /bus"),
        ({"url": "ws://127.0.0.1:5480/bus?token=sixteen-letters-1"}, 404, b"a WebSocket at /bus"),
    ],
)
def test_who_may_not_come_in_is_told_why(options: dict[str, Any], status: int, said: bytes) -> None:
    carrier, browser = WebSocket(TOKENS), Browser(**options)
    with pytest.raises(CarrierError):
        carrier.received(browser.says())
    answer = carrier.outgoing()
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert said in answer
    assert not carrier.is_ready


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /bus HTTP/1.1\r\nHost: 127.0.0.1:5480\r\nSec-WebSocket-Protocol: bpmux,token.sixteen-letters-1\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET /bus HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
    ids=["no upgrade", "no HTTP", "too long"],
)
def test_what_is_no_websocket_is_a_fault(request_: bytes) -> None:
    carrier = WebSocket(TOKENS)
    with pytest.raises(CarrierError):
        carrier.received(request_)
    assert not carrier.is_ready


def test_borders_of_frames_mean_nothing() -> None:
    carrier, browser = entered()
    browser.protocol.send_binary(b"one")
    browser.protocol.send_binary(b"two", fin=False)
    browser.protocol.send_continuation(b"three", fin=True)
    sent = browser.says()
    assert b"".join(carrier.received(sent[at : at + 1]) for at in range(len(sent))) == b"onetwothree"
    frames = browser.hears(carrier.outgoing(b"x" * 70_000))
    assert b"".join(frame.data for frame in frames if isinstance(frame, Frame)) == b"x" * 70_000
    assert (carrier.chatter, carrier.replies) == (0, 0)


def test_many_frames_are_taken_apart_some_at_a_time() -> None:
    carrier, browser = entered()
    for number in range(2000):
        browser.protocol.send_binary(bytes([number % 256]))
    data = browser.says()
    before = carrier.frames
    taken, frames = carrier.received(data), carrier.frames
    assert frames - before <= limits.FRAMES + PORTION // 7
    assert carrier.held >= len(data) - 7 * frames
    while carrier.is_behind:
        taken += carrier.received(b"")
        assert carrier.frames - frames <= limits.FRAMES + PORTION // 7
        frames = carrier.frames
    assert taken == bytes(number % 256 for number in range(2000))
    assert carrier.frames - before == 2000
    assert carrier.held == 0


def test_frames_that_carry_nothing_are_counted() -> None:
    carrier, browser = entered()
    browser.protocol.send_binary(b"")
    browser.protocol.send_ping(b"1234")
    browser.protocol.send_pong(b"")
    assert carrier.received(browser.says()) == b""
    assert carrier.chatter == 3
    assert carrier.replies > len(b"1234")
    (pong,) = browser.hears(carrier.outgoing())
    assert pong.data == b"1234"
    assert carrier.replies == 0


@pytest.mark.parametrize("kind", ["text", "long", "unmasked"])
def test_a_frame_that_may_not_be_ends_it(kind: str) -> None:
    carrier, browser = entered()
    if kind == "text":
        browser.protocol.send_text(b"bus")
    elif kind == "long":
        browser.protocol.send_binary(bytes(FRAME_LIMIT + 1))
    data = browser.says() or b"\x82\x01x"
    with pytest.raises(CarrierError):
        carrier.received(data)


def test_a_client_that_closes_has_ended() -> None:
    carrier, browser = entered()
    browser.protocol.send_binary(b"last")
    browser.protocol.send_close()
    assert carrier.received(browser.says()) == b"last"
    assert carrier.has_ended
    carrier.outgoing(b"too late")


def test_one_carrier_lies_in_another() -> None:
    stacked, browser = Stacked(Plain(), WebSocket(TOKENS)), Browser()
    assert not stacked.is_ready
    stacked.received(browser.says())
    browser.hears(stacked.outgoing())
    assert stacked.is_ready
    browser.protocol.send_binary(b"hello")
    browser.protocol.send_ping(b"")
    assert stacked.received(browser.says()) == b"hello"
    assert (stacked.chatter, stacked.replies, stacked.has_ended) == (1, 2, False)
    browser.protocol.send_close()
    stacked.received(browser.says())
    assert stacked.has_ended


def test_a_page_needs_a_right_host_and_no_token() -> None:
    pages = {"/": Page.of("text/html; charset=utf-8", b"<!doctype html>")}
    for host, status, body in [("127.0.0.1:5480", b"200 OK", b"<!doctype html>"), ("evil:5480", b"403", b"")]:
        carrier = WebSocket(TOKENS, pages)
        with pytest.raises(CarrierError, match="page" if body else "http"):
            carrier.received(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        said = carrier.outgoing()
        assert said.startswith(b"HTTP/1.1 " + status)
        assert said.endswith(body)
        assert (b"Content-Security-Policy: default-src 'none'" in said) == bool(body)
        assert not carrier.is_ready


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("HEAD", "/", b"200", b""), ("POST", "/", b"405", b"something to get here.\n"),
        ("TRACE", "/", b"405", b"something to get here.\n"), ("HEAD", "/bus", b"405", b"something to get here.\n"),
        ("POST", "/bus", b"405", b"something to get here.\n"), ("PUT", "/other", b"405", b"something to get here.\n"),
    ],
)  # fmt: skip
def test_nothing_but_getting_is_allowed(method: str, path: str, status: bytes, body: bytes) -> None:
    carrier = WebSocket(TOKENS, {"/": Page.of("text/html; charset=utf-8", b"<!doctype html>")})
    with pytest.raises(CarrierError, match="page" if status == b"200" else "http"):
        carrier.received(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:5480\r\n\r\n".encode())
    head, _, said = carrier.outgoing().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert said == (b"There is only " + body if body else b"")
    assert (b"Allow: GET" in head) == (status == b"405")
    assert not carrier.is_ready


@pytest.mark.parametrize(
    ("known", "status"),
    [("{tag}", b"304"), ('"other", W/{tag}', b"304"), ("*", b"304"), ('"other"', b"200"), ("", b"200")],
)
def test_a_page_that_the_browser_has_is_not_sent_again(known: str, status: bytes) -> None:
    page = Page.of("text/html; charset=utf-8", b"<!doctype html>")
    carrier = WebSocket(TOKENS, {"/": page})
    asked = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:5480\r\nIf-None-Match: {known.format(tag=page.tag)}\r\n\r\n"
    with pytest.raises(CarrierError, match="page"):
        carrier.received(asked.encode())
    said = carrier.outgoing()
    assert said.startswith(b"HTTP/1.1 " + status)
    assert said.endswith(page.body if status == b"200" else b"\r\n\r\n")
    assert f"ETag: {page.tag}\r\n".encode() in said
    assert b"Content-Security-Policy: " in said


def test_a_frame_that_is_not_whole_weighs() -> None:
    carrier, browser = entered()
    browser.protocol.send_binary(bytes(5000))
    frame = browser.says()
    carrier.received(frame[:2000])
    carrier.received(frame[2000:3000])
    assert carrier.held == 3000
    carrier.received(frame[3000:])
    assert carrier.held == 0


def test_frames_are_counted_whatever_is_in_them() -> None:
    carrier, browser = entered()
    before = carrier.frames
    for data in (b"", b"a", b"a" * 1000):
        browser.protocol.send_binary(data)
    browser.protocol.send_ping(b"")
    carrier.received(browser.says())
    assert carrier.frames == before + 4
    assert Stacked(Plain(), carrier).frames == before + 4


def test_a_token_of_no_characters_is_nobodys() -> None:
    assert TOKENS.bearer(["token.\udcff"]) is None
