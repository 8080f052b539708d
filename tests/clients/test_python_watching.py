"""``watch`` of both Python clients."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import bccn
from tests.clients.conftest import Connect
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until


@pytest.fixture
def connect(shared_daemon: DaemonProcess) -> Iterator[Connect]:
    with ExitStack() as clients:
        yield lambda: clients.enter_context(bccn.Client(shared_daemon.socket, timeout=PATIENCE))


Told = list[tuple[str, bool]]


def seeing(client: bccn.Client, told: Told, expected: Told) -> Callable[[], bool]:
    def looked() -> bool:
        client.dispatch()
        return told == expected

    return looked


def test_each_change_is_told(connect: Connect) -> None:
    told: Told = []
    client, listener = connect(), connect()
    client.watch("a/>", lambda *news: told.append(news))
    client.subscribe("a/>")  # which does not count
    wait_until(seeing(client, told, [("a/>", False)]), "nobody")
    subscription = listener.subscribe("a/b")
    wait_until(seeing(client, told, [("a/>", False), ("a/>", True)]), "somebody")
    subscription.close()
    wait_until(seeing(client, told, [("a/>", False), ("a/>", True), ("a/>", False)]), "nobody again")


def test_another_callback_is_told_anew(connect: Connect) -> None:
    client, listener = connect(), connect()
    listener.subscribe("a")
    first: Told = []
    second: Told = []
    client.watch("a", lambda *news: first.append(news))
    wait_until(seeing(client, first, [("a", True)]), "the first")
    client.watch("a", lambda *news: second.append(news))
    wait_until(seeing(client, second, [("a", True)]), "the second")
    assert len(first) == 1


def test_a_watch_given_up_is_taken_back(tmp_path: Path) -> None:
    """But not one that was there before."""
    silent: list[bytes] = [b"CMSG watch\0a"]
    with (
        ScriptedDaemon(tmp_path / "bus", lambda _, packet: packet in silent) as daemon,
        bccn.Client(daemon.path, timeout=PATIENCE) as client,
    ):
        client.watch("b", lambda *_: None)
        silent.append(b"CMSG watch\0b")
        client._timeout = 0.2
        for pattern in ("a", "b"):
            with pytest.raises(bccn.TimedOutError):
                client.watch(pattern, lambda *_: None)
        client._timeout = PATIENCE
        silent.clear()
        wait_until(lambda: b"CMSG unwatch\0a" in daemon.seen, "the end of the watch")
        assert b"CMSG unwatch\0b" not in daemon.seen


def test_a_watch_that_ended_tells_nothing(connect: Connect) -> None:
    told: Told = []
    client, listener = connect(), connect()
    client.watch("a", lambda *news: told.append(news))
    client.unwatch("a")
    client.unwatch("a")
    listener.subscribe("a")
    client.barrier()
    client.dispatch()
    assert told == []


def test_what_cannot_be_watched_leaves_nothing(connect: Connect) -> None:
    client = connect()
    with pytest.raises(bccn.RejectedError, match="bad-pattern"):
        client.watch("!here", print)
    assert not client._watches


def test_only_changes_are_told_over_connections(tmp_path: Path) -> None:
    told: Told = []
    states = [b"here"]

    def answer(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"MSG end\0":
            connection.shutdown(socket.SHUT_RDWR)
            return True
        if packet == b"CMSG watch\0a":
            connection.send(packet)
            connection.send(b"CMSG wanted\0%b a" % states[-1])
        return packet == b"CMSG watch\0a"

    with (
        ScriptedDaemon(tmp_path / "bus", answer) as daemon,
        bccn.Client(tmp_path / "bus", timeout=PATIENCE, on_notice=lambda _: None) as client,
    ):
        client.watch("a", lambda *news: told.append(news))
        wait_until(seeing(client, told, [("a", True)]), "the first news")
        for state, expected in ((b"elsewhere", [("a", True)]), (b"no", [("a", True), ("a", False)])):
            states.append(state)
            asked = daemon.seen.count(b"CMSG watch\0a")
            client.publish("end")

            def asked_again(asked: int = asked) -> bool:
                client.dispatch()
                return daemon.seen.count(b"CMSG watch\0a") > asked

            wait_until(asked_again, "the next connection")
            client.control("ping")
            wait_until(seeing(client, told, expected), "what differs")
        client.close()


def test_the_asyncio_client_tells_in_its_loop(shared_daemon: DaemonProcess) -> None:
    async def main() -> None:
        told: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        async with asyncio.timeout(PATIENCE), bccn.AsyncClient(shared_daemon.socket) as bus:
            await bus.watch("b/*", lambda *news: told.put_nowait(news))
            assert await told.get() == ("b/*", False)
            with PacketClient(shared_daemon.socket) as listener:
                listener.subscribe("b/>")
                assert await told.get() == ("b/*", True)
            assert await told.get() == ("b/*", False)
            await bus.unwatch("b/*")

    asyncio.run(main())
