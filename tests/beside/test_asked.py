"""A program that answers what it is asked about itself, with a real daemon."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import bccn
from bccnd.beside import asked as module
from bccnd.beside.answers import CHANNEL
from bccnd.beside.asked import Asked
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE, PacketClient
from tests.plain_bccn import free_port
from tests.waiting import until


@asynccontextmanager
async def asked(path: Path, parts: list[bytes]) -> AsyncIterator[None]:
    task = asyncio.create_task(Asked(str(path), lambda: True, lambda name: [name.encode(), *parts]).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def heard(path: Path, count: int) -> list[bytes]:
    """What it answers; it sends its name first."""
    with PacketClient(path) as client:
        await until(lambda: client.request("listeners", CHANNEL) != "0", "somebody who listens")
    async with bccn.AsyncClient(str(path), format="full") as asking:
        replies = [reply async for reply in asking.request_many(CHANNEL, b"", PATIENCE, count)]
    assert {reply.src for reply in replies} == {replies[0].payload.decode()}
    return [reply.payload for reply in replies[1:]]


async def test_it_answers_under_its_own_name(shared_daemon: DaemonProcess) -> None:
    async with asked(shared_daemon.socket, [b"one", b"two"]):
        for _ in range(2):
            assert await heard(shared_daemon.socket, 3) == [b"one", b"two"]


async def test_who_asks_in_a_flood_leaves_others_their_answers(shared_daemon: DaemonProcess) -> None:
    async with asked(shared_daemon.socket, 100 * [b"x"]):
        await heard(shared_daemon.socket, 101)
        async with bccn.AsyncClient(str(shared_daemon.socket)) as greedy:
            for number in range(200):
                await greedy.publish(CHANNEL, f"{number}\n")
            await greedy.barrier()
            assert len(await heard(shared_daemon.socket, 101)) == 100


async def test_it_waits_for_the_daemon_and_outlives_it(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path, "--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()))
    async with asked(daemon.socket, [b"one"]):
        for _ in range(2):
            await asyncio.to_thread(daemon.start)
            try:
                assert await heard(daemon.socket, 2) == [b"one"]
            finally:
                await asyncio.to_thread(daemon.terminate)


async def test_that_it_may_not_answer_is_said_once(
    tmp_path: Path, loopback_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFUSED_SECONDS", 0.01)
    settings = tmp_path / "bccnd.toml"
    settings.write_text('[[rights]]\npublish = ["dndm/>"]\nsubscribe = ["dndm/>"]\n')
    flags = ("--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port), "--config", str(settings))
    looked: list[None] = []
    with DaemonProcess(tmp_path, *flags) as daemon, capture_logs() as logged:
        task = asyncio.create_task(
            Asked(str(daemon.socket), lambda: looked.append(None) or True, lambda _: []).run()  # type: ignore[func-returns-value]
        )
        await until(lambda: len(looked) > 3, "the third try to be over")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    (line,) = logged
    assert (line["event"], CHANNEL in line["reason"]) == ("bccn doctor gets no answer", True)
