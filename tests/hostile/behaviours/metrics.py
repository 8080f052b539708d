"""The metrics port, which every program of the host may reach."""

from contextlib import suppress

from tests.hostile.attack import Attack
from tests.hostile.behaviour import behaviour

REQUEST = b"GET /metrics HTTP/1.1\r\n\r\n"


@behaviour("200 connections that send a byte now and then", metrics=True)
def slow_requests(attack: Attack) -> None:
    open_ones = [attack.scrape() for _ in range(200)]
    while attack.goes_on:
        for connection in open_ones:
            with suppress(OSError):
                connection.send(b"G")


@behaviour("connections that come and go", metrics=True, suite=True)
def connections(attack: Attack) -> None:
    while attack.goes_on:
        with suppress(OSError):
            attack.scrape().close()


@behaviour("requests without end, one after another", metrics=True)
def requests(attack: Attack) -> None:
    while attack.goes_on:
        with suppress(OSError):
            connection = attack.scrape()
            connection.sendall(REQUEST)
            while connection.recv(65536):
                pass
            connection.close()


@behaviour("requests whose answers are not read", metrics=True)
def unread_answers(attack: Attack) -> None:
    while attack.goes_on:
        with suppress(OSError):
            attack.scrape().sendall(REQUEST)


@behaviour("heads of a megabyte", metrics=True, suite=True)
def huge_heads(attack: Attack) -> None:
    while attack.goes_on:
        with suppress(OSError):
            connection = attack.scrape()
            connection.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 1_000_000)
            connection.close()


@behaviour("halves of requests", metrics=True)
def half_requests(attack: Attack) -> None:
    while attack.goes_on:
        with suppress(OSError):
            connection = attack.scrape()
            connection.sendall(REQUEST[:20])
            connection.close()


@behaviour("requests that are none", metrics=True)
def no_requests(attack: Attack) -> None:
    while attack.goes_on:
        with suppress(OSError):
            connection = attack.scrape()
            connection.sendall(b"\0\xff\r\n\r\n" * 100)
            connection.close()


@behaviour("requests with a thousand headers", metrics=True)
def many_headers(attack: Attack) -> None:
    head = REQUEST[:-2] + b"".join(b"A%d:\r\n" % number for number in range(900)) + b"\r\n"
    while attack.goes_on:
        with suppress(OSError):
            connection = attack.scrape()
            connection.sendall(head)
            connection.close()


@behaviour("requests for a version that is none", metrics=True)
def odd_versions(attack: Attack) -> None:
    request = REQUEST[:-2] + b"Accept: application/openmetrics-text;version=abc\r\n\r\n"
    while attack.goes_on:
        with suppress(OSError):
            connection = attack.scrape()
            connection.sendall(request)
            connection.close()
