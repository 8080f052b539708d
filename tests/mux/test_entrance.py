"""Whom the door lets in."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from errno import EMFILE
from pathlib import Path
from typing import Any

import pytest

from bccnd.mux import limits
from bccnd.mux.accounts import TOO_MANY_OF_USER, Accounts
from bccnd.mux.connection import House
from bccnd.mux.daemon import Daemon
from bccnd.mux.entrance import Entrance, local_entrance
from bccnd.process import local_stream
from bpmux.events import Closed
from tests.mux.in_process import until
from tests.mux.test_connection import Talker


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    loop = asyncio.get_running_loop()
    made = House(loop, Daemon(loop, str(tmp_path / "bus.sock"), 10), Accounts(4, 2))
    yield made
    for connection in list(made.connections):
        connection.drop("stopped")
    await asyncio.sleep(0)


@pytest.fixture
async def entrance(house: House, tmp_path: Path) -> AsyncIterator[Entrance]:
    made = local_entrance(house, local_stream.listen(str(tmp_path / "mux.sock"), 0o600))
    made.open()
    yield made
    made.close()


def connect(tmp_path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(tmp_path / "mux.sock"))
    made.setblocking(False)
    return made


@pytest.mark.usefixtures("entrance")
async def test_a_program_of_this_host_is_who_the_kernel_says(house: House, tmp_path: Path) -> None:
    with connect(tmp_path):
        await until(lambda: house.connections)
        (connection,) = house.connections
    peer = connection.peer
    assert (peer.uid, peer.groups[0], peer.pid) == (os.getuid(), os.getgid(), os.getpid())
    assert set(peer.groups) == {os.getgid(), *os.getgroups()}
    assert peer.program == Path("/proc/self/comm").read_bytes().strip()


@pytest.mark.usefixtures("entrance")
async def test_so_many_who_find_no_place_are_told(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REFUSALS", 1)
    first, second = connect(tmp_path), connect(tmp_path)
    await until(lambda: len(house.connections) == 2)
    with connect(tmp_path) as third:
        await until(lambda: len(house.connections) == 3)
        with connect(tmp_path) as fourth:
            assert await asyncio.get_running_loop().sock_recv(fourth, 1) == b""
        talker = Talker(third)
        assert (await talker.sees(Closed)).payload == TOO_MANY_OF_USER
    assert house.counts["turned_away"] == 2
    first.close()
    await until(lambda: len(house.accounts) == 1)
    with connect(tmp_path):
        await until(lambda: len(house.accounts) == 2)
    second.close()


class NoDescriptors:
    """A listening socket that accepts nobody at first."""

    def __init__(self, listening: Any) -> None:
        self.listening = listening
        self.refused = 0

    def fileno(self) -> int:
        return int(self.listening.fileno())

    def accept(self) -> Any:
        if self.refused < 2:
            self.refused += 1
            raise OSError(EMFILE, "Too many open files")
        return self.listening.accept()


async def test_without_descriptors_who_connects_waits(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ACCEPT_SECONDS", 0.001)
    listening = local_stream.listen(str(tmp_path / "mux.sock"), 0o600)
    poor = NoDescriptors(listening)
    came: list[socket.socket] = []
    entrance = Entrance(house, poor, came.append)  # type: ignore[arg-type]
    entrance.open()
    with connect(tmp_path):
        await until(lambda: came)
    assert poor.refused == 2
    came[0].close()
    house.loop.remove_reader(listening)
    local_stream.close(listening)
