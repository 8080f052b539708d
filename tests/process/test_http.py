"""What HTTP requests are answered with, and what badly behaved peers cost."""

import asyncio
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from bccnd.process import http
from bccnd.process.http import CONNECTIONS, HEAD_LIMIT, HttpServer, Response, answer, plain
from tests.packet_client import PATIENCE


def handler(path: str, headers: dict[str, str]) -> Response | None:
    if path == "/fault":
        raise ZeroDivisionError
    return {
        "/": plain(HTTPStatus.OK, headers.get("accept", "here")),
        "/big": Response(HTTPStatus.OK, BIG),
    }.get(path)


BIG = bytes(4 << 20)  # more than any socket takes at once


def status(request: bytes) -> int:
    head, _, body = answer(request, handler).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    length = int(next(line for line in lines if line.startswith("Content-Length")).split()[1])
    assert len(body) == (0 if request.startswith(b"HEAD ") else length)
    return int(lines[0].split()[1])


@pytest.mark.parametrize(
    ("request_head", "expected"),
    [
        (b"GET / HTTP/1.1\r\nHost: x", 200),
        (b"GET /?a=b HTTP/1.0", 200),
        (b"HEAD / HTTP/1.1", 200),
        (b"GET /no HTTP/1.1", 404),
        (b"HEAD /no HTTP/1.1", 404),
        (b"POST / HTTP/1.1", 405),
        (b"GET / HTTP/2", 400),
        (b"GET /", 400),
        (b"GET  / HTTP/1.1", 400),
        (b"GET http://x/ HTTP/1.1", 400),
        (b"GET / HTTP/1.1\r\nno colon", 400),
        (b"GET / HTTP/1.1\r\n folded: x", 400),
        (b"", 400),
    ],
)
def test_requests(request_head: bytes, expected: int) -> None:
    assert status(request_head) == expected


def test_header_names_ignore_case() -> None:
    assert answer(b"GET / HTTP/1.1\r\naCCept:  text/x ", handler).endswith(b"\r\n\r\ntext/x\n")


def test_another_method_is_answered_with_the_allowed_ones() -> None:
    assert b"\r\nAllow: GET, HEAD\r\n" in answer(b"DELETE / HTTP/1.1", handler)


@given(st.binary(max_size=200))
def test_any_bytes_have_an_answer(head: bytes) -> None:
    assert status(head) in (200, 400, 404, 405)


class Served:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setblocking(False)
        self.server = HttpServer(loop, self.listening, handler)
        self.server.resume()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.listening.getsockname(), limit=8 << 20)

    async def get(self, path: str) -> bytes:
        reader, writer = await self.connect()
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        try:
            return await asyncio.wait_for(reader.read(), PATIENCE)
        finally:
            writer.close()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served(asyncio.get_running_loop())
    yield made
    made.server.close()
    made.listening.close()


async def test_a_request_in_pieces_and_an_answer_in_pieces(served: Served) -> None:
    reader, writer = await served.connect()
    for byte in b"GET /big HTTP/1.1\r\nA: b\r\n\r\n":
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    writer.write(b"and more that nobody asked for" * 100)
    answered = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    assert answered.endswith(BIG)


async def test_a_head_without_end_is_refused(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(b"GET / HTTP/1.1\r\nA: " + b"a" * HEAD_LIMIT)
    assert (await asyncio.wait_for(reader.read(), PATIENCE)).startswith(b"HTTP/1.1 431 ")
    writer.close()


async def test_a_fault_of_ours_is_answered_and_logged_once(served: Served) -> None:
    with structlog.testing.capture_logs() as logged:
        answered = await served.get("/fault")
        assert await served.get("/fault") == answered
    assert answered.startswith(b"HTTP/1.1 500 ")
    assert answered.endswith(b"\r\n\r\nInternal Server Error\n")
    assert [(line["event"], line["where"]) for line in logged] == [("fault", "a request by HTTP")]
    assert (await served.get("/big")).endswith(BIG)


async def test_the_oldest_connection_is_closed_for_a_new_one(served: Served) -> None:
    idle = [await served.connect() for _ in range(CONNECTIONS + 3)]
    assert b" 200 " in await served.get("/")
    assert len(served.server._connections) <= CONNECTIONS
    assert await asyncio.wait_for(idle[0][0].read(), PATIENCE) == b""
    for _, writer in idle:
        writer.close()


async def test_an_idle_connection_is_closed_in_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SECONDS", 0.05)
    silent, silent_writer = await served.connect()
    deaf = socket.create_connection(served.listening.getsockname())
    deaf.send(b"GET /big HTTP/1.1\r\n\r\n")
    assert await asyncio.wait_for(silent.read(), PATIENCE) == b""
    async with asyncio.timeout(PATIENCE):
        while served.server._connections:
            await asyncio.sleep(0.01)
    silent_writer.close()
    deaf.close()


async def test_a_connection_during_a_pause_is_answered_after_it(served: Served) -> None:
    served.server.pause()
    asked = asyncio.create_task(served.get("/"))
    done, _ = await asyncio.wait([asked], timeout=0.1)
    assert not done
    served.server.resume()
    assert b" 200 " in await asked
