"""Requests to the metrics: any head has one whole answer, and only a GET or HEAD of a known path one of ours."""

from collections.abc import Iterable
from http import HTTPStatus

from bccnd.process.http import Response, answer

KNOWN = "/metrics"


def one_input(data: bytes) -> None:
    asked: list[tuple[str, dict[str, str]]] = []

    def handler(path: str, headers: dict[str, str]) -> Response | None:
        asked.append((path, headers))
        return Response(HTTPStatus.OK, b"counted\n") if path == KNOWN else None

    head, _, body = answer(data, handler).partition(b"\r\n\r\n")
    status, *lines = head.decode("ascii").split("\r\n")
    version, code, reason = status.split(" ", 2)
    assert (version, HTTPStatus(int(code)).phrase) == ("HTTP/1.1", reason)
    fields = dict(line.split(": ", 1) for line in lines)
    assert fields["Connection"] == "close"
    is_head = data.startswith(b"HEAD ")
    assert len(body) == (0 if is_head and asked else int(fields["Content-Length"]))
    assert len(asked) <= 1
    if code == "200":
        assert asked[0][0] == KNOWN
        assert data.startswith((b"GET ", b"HEAD "))
    for path, headers in asked:
        assert path.startswith("/")
        assert all(name == name.lower() and "\n" not in name + value for name, value in headers.items())


def seeds() -> Iterable[bytes]:
    yield b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*"
    yield b"HEAD /metrics?x=1 HTTP/1.0\nHost: x"
    yield b"POST / HTTP/1.1\r\nContent-Length: 3"
    yield b"GET /readyz HTTP/2"
    yield b"GET / HTTP/1.1\r\n folded\r\nName : value"
