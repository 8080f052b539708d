"""``watch`` of both Python clients."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import bccn
from tests.clients.conftest import Connect
from tests.clients.scripted_daemon import Reticent, ScriptedDaemon
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


@pytest.mark.parametrize("room", [0, 1], ids=["unsent", "sent"])
def test_a_watch_given_up_ends_no_other_call(room: int, tmp_path: Path) -> None:
    """Neither one that is to be answered, nor one that has not left yet."""
    script = Reticent(b"CMSG ping")
    with ScriptedDaemon(tmp_path / "bus", script) as daemon:

        async def main() -> None:
            told: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
            async with asyncio.timeout(PATIENCE), bccn.AsyncClient(daemon.path, timeout=PATIENCE) as bus:

                def watch() -> asyncio.Task[None]:
                    return asyncio.create_task(bus.watch("a", lambda *news: told.put_nowait(news)))

                script.silence = b"CMSG watch\0"
                first = watch()
                await asyncio.to_thread(wait_until, lambda: b"CMSG watch\0a" in daemon.seen, "a watch")
                assert bus._transport is not None
                with pytest.MonkeyPatch.context() as patch:
                    if not room:
                        patch.setattr(bus._transport, "send", lambda _: False)
                    second = watch()
                    await asyncio.sleep(0)
                    first.cancel()
                    await asyncio.wait([first])
                await bus.barrier()
                await second
                daemon.say(b"CMSG wanted\0here a")
                assert await told.get() == ("a", True)

        asyncio.run(main())
    asked = [packet for packet in daemon.seen if b"watch\0" in packet]
    assert (
        asked == [b"CMSG watch\0a"] * 2 if room else [b"CMSG watch\0a", b"CMSG unwatch\0a", b"CMSG watch\0a"]
    )


def test_a_watch_given_up_while_away_is_not_made(tmp_path: Path) -> None:
    """It had left on the connection that has ended."""

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"CMSG watch\0a":
            connection.shutdown(socket.SHUT_RDWR)
        return packet == b"CMSG watch\0a"

    with ScriptedDaemon(tmp_path / "bus", script) as daemon:

        async def main() -> None:
            async with asyncio.timeout(PATIENCE), bccn.AsyncClient(daemon.path, timeout=PATIENCE) as bus:
                watching = asyncio.create_task(bus.watch("a", print))
                bus.on_notice = lambda notice: notice.kind == "disconnected" and watching.cancel()
                await asyncio.wait([watching])
                assert watching.cancelled()
                await bus.barrier()

        asyncio.run(main())
    assert daemon.seen.count(b"CMSG watch\0a") == 1


def test_an_unwatch_given_up_in_a_greeting_is_said(tmp_path: Path) -> None:
    """The greeting had asked for that watch, and is not answered yet."""
    withheld: list[bytes] = []
    connections: list[socket.socket] = []

    def script(connection: socket.socket, packet: bytes) -> bool:
        connections.append(connection)
        if connection is not connections[0] and len(withheld) < 2:
            withheld.append(packet)
            return True
        return False

    with ScriptedDaemon(tmp_path / "bus", script) as daemon:

        async def main() -> None:
            async with asyncio.timeout(PATIENCE), bccn.AsyncClient(daemon.path, timeout=PATIENCE) as bus:
                await bus.watch("a", print)
                daemon.hang_up()
                await asyncio.to_thread(wait_until, lambda: len(withheld) == 2, "a greeting")
                calls = [asyncio.create_task(bus.unwatch("a")), asyncio.create_task(bus.watch("a", print))]
                await asyncio.sleep(0)
                for call in calls:
                    call.cancel()
                    await asyncio.wait([call])
                daemon.say(b"CMSG watch\0a")
                daemon.say(b"CMSG whoami\0here/test/1")
                await bus.barrier()

        asyncio.run(main())
    assert withheld == [b"CMSG watch\0a", b"CMSG whoami"]
    assert daemon.seen[daemon.seen.index(b"CMSG whoami", 2) + 1 :] == [b"CMSG unwatch\0a", b"CMSG ping"]


def test_an_unwatch_ends_a_watch_asked_for_before(tmp_path: Path) -> None:
    """And leaves the next one."""
    script = Reticent(b"CMSG ping")
    with ScriptedDaemon(tmp_path / "bus", script) as daemon:

        async def main() -> None:
            async with asyncio.timeout(PATIENCE), bccn.AsyncClient(daemon.path, timeout=PATIENCE) as bus:
                script.silence = b"CMSG watch\0"
                calls = (bus.watch("a", print), bus.watch("b", print), bus.unwatch("a"), bus.unwatch("b"))
                await asyncio.gather(*calls, bus.watch("b", print), bus.barrier())
                assert list(bus._watches) == ["b"]

        asyncio.run(main())


def test_news_of_a_watch_that_ended_are_forgotten(tmp_path: Path) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"CMSG unwatch\0"):
            connection.send(b"CMSG wanted\0here " + packet.partition(b"\0")[2])
        return False

    with (
        ScriptedDaemon(tmp_path / "bus", script) as daemon,
        bccn.Client(daemon.path, timeout=PATIENCE) as client,
    ):
        for pattern in ("a", "b"):
            client.watch(pattern, print)
            client.unwatch(pattern)
        assert not client._news


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
