"""What systemd receives from a loop that makes progress and from one that does not."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.process import supervision
from bccnd.process.supervision import Supervision
from tests.waiting import until

INTERVAL = 0.1  # seconds
WATCHDOG = INTERVAL * supervision.PINGS


class Manager:
    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        received = []
        with contextlib.suppress(BlockingIOError):
            while True:
                received.append(self.socket.recv(4096).decode())
        return received


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.socket.close()


async def test_ready_comes_when_it_serves_and_not_from_a_successor(manager: Manager) -> None:
    supervised = Supervision(asyncio.get_running_loop(), 0)
    assert manager.heard() == []
    supervised.serving("3 clients", succeeded=False)
    assert manager.heard() == ["READY=1\nSTATUS=3 clients"]
    successor = Supervision(asyncio.get_running_loop(), WATCHDOG)
    successor.serving("3 clients", succeeded=True)
    await asyncio.sleep(0)
    successor.ticked("3 clients")
    heard: list[str] = []
    await until(lambda: heard.extend(manager.heard()) or "WATCHDOG=1" in heard)
    successor.close()
    assert [line for line in heard if line != "WATCHDOG=1"] == ["STATUS=3 clients"]


async def test_the_status_is_sent_when_it_changes(manager: Manager) -> None:
    supervised = Supervision(asyncio.get_running_loop(), 0)
    supervised.serving("a", succeeded=False)
    for status in "a", "b", "b", "a":
        supervised.ticked(status)
    assert manager.heard() == ["READY=1\nSTATUS=a", "STATUS=b", "STATUS=a"]


async def test_a_reload_ends_ready_even_if_it_fails(manager: Manager) -> None:
    supervised = Supervision(asyncio.get_running_loop(), 0)
    supervised.serving("a", succeeded=False)
    before = time.monotonic_ns() // 1000
    supervised.reloading()
    after = time.monotonic_ns() // 1000
    supervised.reloaded("port: must be a whole number")
    supervised.ticked("a")
    _, reloading, reloaded, ticked = manager.heard()
    assert reloading.startswith("RELOADING=1\nMONOTONIC_USEC=")
    # The loop's clock is the kernel's, though it may be a millisecond behind (uvloop).
    assert before - 1000 <= int(reloading.rpartition("=")[2]) <= after
    assert reloaded == "READY=1\nSTATUS=not reloaded: port: must be a whole number"
    assert ticked == "STATUS=a"


async def test_pings_go_on_while_the_daemon_ticks(manager: Manager) -> None:
    supervised = Supervision(asyncio.get_running_loop(), WATCHDOG)
    supervised.serving("", succeeded=False)
    heard: list[str] = []

    def five() -> bool:
        supervised.ticked("")
        heard.extend(manager.heard())
        return heard.count("WATCHDOG=1") >= 5

    await until(five)
    supervised.close()
    manager.heard()
    await asyncio.sleep(3 * INTERVAL)
    assert manager.heard() == []


async def test_a_daemon_that_does_not_tick_sends_no_ping(manager: Manager) -> None:
    """The loop turns, timers run, descriptors are polled, and still nothing is settled."""
    supervised = Supervision(asyncio.get_running_loop(), WATCHDOG)
    supervised.serving("", succeeded=False)
    await until(lambda: "WATCHDOG=1" in manager.heard())
    supervised._ticked -= supervision.TICK_SECONDS  # as if the last tick was so long ago
    manager.heard()
    await asyncio.sleep(5 * INTERVAL)
    assert manager.heard() == []
    supervised.ticked("")
    heard: list[str] = []
    await until(lambda: heard.extend(manager.heard()) or "WATCHDOG=1" in heard)
    supervised.close()


async def test_a_loop_that_hangs_sends_no_ping(manager: Manager) -> None:
    supervised = Supervision(asyncio.get_running_loop(), WATCHDOG)
    supervised.serving("", succeeded=False)
    await asyncio.sleep(0)
    manager.heard()
    time.sleep(3 * WATCHDOG)
    assert manager.heard() == []
    supervised.close()


async def test_without_a_watchdog_no_descriptor_is_used() -> None:
    supervised = Supervision(asyncio.get_running_loop(), 0)
    supervised.serving("", succeeded=False)
    assert supervised._pulse == -1
    supervised.close()
