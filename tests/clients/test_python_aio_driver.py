"""The driver of the asyncio client: cancelled calls, a full socket, and a daemon that misspeaks."""

import asyncio
import random
import socket
from pathlib import Path

import pytest

import bccn
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE


def test_cancelled_requests_do_not_shift_answers(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with bccn.AsyncClient(daemon.socket, timeout=PATIENCE) as client:
            for turn in range(20):
                tokens = [f"{turn}/{number}" for number in range(30)]
                tasks = [asyncio.create_task(client.control("ping", token)) for token in tokens]
                await asyncio.sleep(random.random() * 0.002 * (turn % 2))
                for task in random.sample(tasks, 15):
                    task.cancel()
                answers = await asyncio.gather(*tasks, return_exceptions=True)
                for token, answer in zip(tokens, answers, strict=True):
                    assert answer == token or isinstance(answer, asyncio.CancelledError)

    asyncio.run(test(), debug=True)


def test_a_message_cancelled_in_a_full_socket_is_not_sent(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def script(connection: socket.socket, packet: bytes) -> bool:
        while packet.startswith(b"MSG") and not gate.exists():
            pass
        return packet.startswith(b"MSG")

    async def test() -> None:
        async with bccn.AsyncClient(scripted.path, timeout=PATIENCE) as client:
            flood = asyncio.create_task(client.publish_many([("a", b"x" * 1000)] * 1000))
            await asyncio.sleep(0.05)
            cancelled = asyncio.create_task(client.publish("b", "never"))
            await asyncio.sleep(0.05)
            cancelled.cancel()
            gate.touch()
            await flood
            await client.publish("c", "last")
            await client.barrier()

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        asyncio.run(test(), debug=True)
    sent = [packet[4:5] for packet in scripted.seen if packet.startswith(b"MSG")]
    assert sent == [b"a"] * 1000 + [b"c"]


def test_a_daemon_that_misspeaks_is_left_and_found_again(tmp_path: Path) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        return packet.endswith(b"bad") and scripted.seen.count(packet) == 1 and bool(connection.send(b"HTTP"))

    async def test() -> None:
        kinds: list[str] = []
        async with bccn.AsyncClient(
            scripted.path, timeout=PATIENCE, on_notice=lambda notice: kinds.append(notice.kind)
        ) as client:
            assert await client.control("ping", "bad") == "bad"
        assert kinds == ["disconnected", "reconnected"]

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        asyncio.run(test(), debug=True)


def test_a_cancelled_connect_leaves_no_connection(tmp_path: Path) -> None:
    async def test() -> None:
        client = bccn.AsyncClient(scripted.path, timeout=PATIENCE)
        connecting = asyncio.create_task(client.connect())
        await asyncio.sleep(0.05)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        assert not client.connected
        with pytest.raises(bccn.UnavailableError):
            await client.publish("a")
        await client.close()

    with ScriptedDaemon(tmp_path / "bus", lambda *_: True) as scripted:
        asyncio.run(test(), debug=True)
