"""Connections whose carrier is not ready."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bccnd.mux import limits
from bccnd.mux.accounts import Accounts
from bccnd.mux.carrier import CarrierError
from bccnd.mux.connection import House
from bccnd.mux.daemon import Daemon
from bccnd.mux.threshold import READ_IN_ALL, Threshold
from tests.mux.in_process import until


class Slow:
    """A carrier that is ready after ``ready``, answers each read with a dot, takes no ``!``, and counts ``~``."""

    has_ended = is_ready = False
    chatter = replies = 0

    def received(self, data: bytes) -> bytes:
        self.chatter += data.count(b"~")
        if b"!" in data:
            raise CarrierError("tls")
        _, found, rest = data.partition(b"ready")
        self.is_ready = bool(found)
        return rest

    def outgoing(self, data: bytes = b"") -> bytes:
        return b"." + data


class Hall:
    def __init__(self, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        self.house = House(loop, Daemon(loop, str(folder / "bus.sock"), 10), Accounts(4, 2))
        self.thresholds: dict[Threshold, None] = {}
        self.welcomed: list[tuple[socket.socket, bytes]] = []
        self.sockets: list[socket.socket] = []

    def enter(self, address: str = "") -> socket.socket:
        """``address``: of the loopback, where the peer is."""
        ours, theirs = _connected(address) if address else socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.sockets.append(theirs)
        Threshold(self.house, ours, Slow(), self.welcome, self.thresholds)
        return theirs

    def welcome(self, accepted: socket.socket, early: bytes) -> None:
        self.welcomed.append((accepted, early))

    async def gone(self) -> str:
        await until(lambda: not self.thresholds)
        ((why, _),) = self.house.dropped.items()
        return why


def _connected(address: str) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname(), source_address=(address, 0))
        return listening.accept()[0], theirs


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    made = Hall(tmp_path)
    yield made
    for threshold in list(made.thresholds):
        threshold.drop("stopped")
    for each in [*made.sockets, *(accepted for accepted, _ in made.welcomed)]:
        each.close()


async def test_who_is_ready_goes_on_with_what_came_early(hall: Hall) -> None:
    theirs = hall.enter()
    theirs.send(b"hello")
    assert await asyncio.get_running_loop().sock_recv(theirs, 10) == b"."
    assert hall.welcomed == []
    theirs.send(b"ready, and more")
    await until(lambda: hall.welcomed)
    assert hall.welcomed[0][1] == b", and more"
    assert not hall.thresholds
    assert not hall.house.dropped


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"!", "tls"),
        (b"", "left"),
        (b"~" * limits.HANDSHAKE + b"~", "protocol-limit"),
        (b"ready" + b"~" * limits.HANDSHAKE + b"~", "protocol-limit"),
    ],
    ids=["foreign", "left", "chatter", "chatter-behind"],
)
async def test_who_is_not_what_is_wanted_is_dropped(hall: Hall, said: bytes, why: str) -> None:
    theirs = hall.enter()
    if said:
        theirs.send(said)
    else:
        theirs.shutdown(socket.SHUT_WR)
    assert await hall.gone() == why


async def test_a_handshake_has_its_time_and_its_bytes(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    talking = hall.enter()
    for _ in range(READ_IN_ALL // 10_000 + 1):
        await asyncio.get_running_loop().sock_sendall(talking, bytes(10_000))
    assert await hall.gone() == "left"
    hall.house.dropped.clear()
    monkeypatch.setattr(limits, "GREETING_SECONDS", 0.01)
    hall.enter()
    assert await hall.gone() == "no greeting"


async def test_the_oldest_makes_room_for_one_too_many(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "THRESHOLDS", 2)
    first, _, _ = hall.enter(), hall.enter(), hall.enter()
    assert await asyncio.get_running_loop().sock_recv(first, 10) == b""
    assert len(hall.thresholds) == 2


async def test_a_long_farewell_is_read_as_its_reader_likes(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = b"page" * 1_000_000
    monkeypatch.setattr(Slow, "outgoing", lambda *_: page)
    theirs = hall.enter()
    theirs.send(b"!")
    loop, read = asyncio.get_running_loop(), bytearray()
    while data := await loop.sock_recv(theirs, 1 << 16):
        read += data
    assert read == page
    assert await hall.gone() == "tls"


async def test_one_address_makes_room_among_its_own(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "THRESHOLDS", 3)
    other, *many = (hall.enter(address) for address in ("127.0.0.2", *["127.0.0.3"] * 4))
    for pushed_out in many[:2]:
        assert await asyncio.get_running_loop().sock_recv(pushed_out, 10) == b""
    other.send(b"ready")
    await until(lambda: hall.welcomed)
