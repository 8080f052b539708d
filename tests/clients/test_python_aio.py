"""The asyncio Python client against a real daemon, on asyncio's own loop and on uvloop."""

import asyncio
import os
import random
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

import bccn
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient
from tests.waiting import until

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param, debug=True) as runner:
            runner.run(asyncio.wait_for(test, PATIENCE * 3))

    return run


async def received(client: bccn.AsyncClient) -> tuple[str, bytes]:
    message = await client.receive(PATIENCE)
    assert message is not None, "nothing came"
    return message.channel, message.payload


async def publish(client: bccn.AsyncClient, messages: Iterable[tuple[str, bytes | str]]) -> None:
    async with client.batch():
        for channel, payload in messages:
            await client.publish(channel, payload)


def test_publish_subscribe_unsubscribe(daemon: DaemonProcess, run: Run) -> None:
    async def test() -> None:
        async with (
            bccn.AsyncClient(daemon.socket, format="full") as reader,
            bccn.AsyncClient(daemon.socket) as writer,
        ):
            subscription = await reader.subscribe("a/*")
            await writer.publish("a/b", "text")
            await writer.publish("a/b/c", "not for us")
            await writer.publish("a/c", b"\0\xff")
            first = await reader.receive(PATIENCE)
            assert first
            assert (first.channel, first.text, first.src, first.peer) == ("a/b", "text", writer.name, "local")
            assert await received(reader) == ("a/c", b"\0\xff")
            await subscription.close()
            await writer.publish("a/b")
            await writer.barrier()
            await reader.barrier()
            assert await reader.receive(0.01) is None

    run(test())


def test_heartbeats_survive_a_reconnection(daemon: DaemonProcess, run: Run) -> None:
    async def test() -> None:
        kinds: list[str] = []
        async with bccn.AsyncClient(
            daemon.socket, on_notice=lambda notice: kinds.append(notice.kind)
        ) as client:
            await client.heartbeat(1, "at work")
            daemon.kill()
            daemon.start()
            await until(lambda: "reconnected" in kinds)
            await client.subscribe("heartbeat/>")
            assert await received(client) == (f"heartbeat/{client.name}", b"at work")
            await client.heartbeat(0)
            while (beat := await received(client)) == (f"heartbeat/{client.name}", b"at work"):
                pass  # one that was due meanwhile
            assert beat == (f"heartbeat/{client.name}", b"leaving")

    run(test())


def test_iteration_ends_when_the_client_is_closed(daemon: DaemonProcess, run: Run) -> None:
    async def test() -> None:
        client = bccn.AsyncClient(daemon.socket)
        await client.connect()
        await client.subscribe("n")
        await publish(client, [("n", str(number)) for number in range(3)])
        seen = []
        async for message in client:
            seen.append(message.text)
            if len(seen) == 3:
                asyncio.get_running_loop().call_soon(asyncio.ensure_future, client.close())
        assert seen == ["0", "1", "2"]
        with pytest.raises(bccn.ClosedError):
            await client.publish("n")

    run(test())


def test_plain_and_coroutine_callbacks_run_in_order(daemon: DaemonProcess, run: Run) -> None:
    async def test() -> None:
        calls: list[str] = []
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

        async def slow(message: bccn.Message) -> None:
            await asyncio.sleep(0.001)
            calls.append(f"slow {message.text}")

        def broken(message: bccn.Message) -> None:
            raise KeyError(message.text)

        async with bccn.AsyncClient(daemon.socket) as client:
            await client.subscribe("a", slow)
            await client.subscribe("a", lambda message: calls.append(f"fast {message.text}"))
            await client.subscribe("b", broken)
            await client.subscribe("c")
            await client.listen(slow)
            await publish(client, [("a", "1"), ("b", "x"), ("a", "2"), ("c", "3")])
            await client.publish_all("4")
            await client.publish_to(client.name, "5")
            assert await received(client) == ("c", b"3")
            await until(lambda: len(calls) == 6)
        assert calls == ["slow 1", "fast 1", "slow 2", "fast 2", "slow 4", "slow 5"]
        assert [repr(context["exception"]) for context in failures] == ["KeyError('x')"]

    run(test())


def test_a_callback_may_close_the_client(daemon: DaemonProcess, run: Run) -> None:
    async def test() -> None:
        client = bccn.AsyncClient(daemon.socket)
        await client.connect()
        calls: list[str] = []

        async def last(message: bccn.Message) -> None:
            calls.append(message.text)
            await client.close()

        await client.subscribe("a", last)
        await publish(client, [("a", "1"), ("a", "2")])
        with pytest.raises(bccn.ClosedError):
            await client.receive()
        assert calls == ["1"]
        with pytest.raises(bccn.ClosedError):
            await client.connect()

    run(test())


def test_many_packed_messages_all_arrive(daemon: DaemonProcess, run: Run) -> None:
    async def test() -> None:
        async with (
            bccn.AsyncClient(daemon.socket, pack=True, queue={"policy": "block"}) as reader,
            bccn.AsyncClient(daemon.socket, pack=True) as writer,
        ):
            await reader.subscribe("n")
            total = 50_000
            publishing = asyncio.create_task(publish(writer, (("n", str(number)) for number in range(total))))
            for number in range(total):
                assert await received(reader) == ("n", str(number).encode())
            await publishing
            await writer.barrier()
            assert reader.lost == 0

    run(test())


def test_reading_pauses_but_answers_still_come(
    daemon: DaemonProcess, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bccn.aio.AsyncClient._read_ahead", 10_000)

    async def test() -> None:
        async with bccn.AsyncClient(daemon.socket) as reader, bccn.AsyncClient(daemon.socket) as writer:
            await reader.subscribe("n")
            payload = b"x" * 1000
            for number in range(1000):
                await writer.publish("n", b"%d " % number + payload)
            await writer.barrier()
            await asyncio.sleep(0.05)
            held = reader._inbox.waiting_size
            assert held < 200_000, "the rest waits with the daemon"
            assert (await reader.status())["subscriptions"] == 1
            for number in range(1000):
                assert (await received(reader))[1].startswith(b"%d " % number)

    run(test())


def test_each_task_reads_the_stream_of_its_own(
    daemon: DaemonProcess, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while another one is slow, and more of it waits than is read ahead."""
    monkeypatch.setattr("bccn.aio.AsyncClient._read_ahead", 10_000)

    async def take(subscription: bccn.AsyncSubscription, count: int) -> list[str]:
        return [message.text[:2] async for message, _ in zipped(subscription, count)]

    async def zipped(
        subscription: bccn.AsyncSubscription, count: int
    ) -> AsyncIterator[tuple[bccn.Message, int]]:
        for number in range(count):
            message = await subscription.receive(PATIENCE)
            assert message
            yield message, number

    async def test() -> None:
        async with bccn.AsyncClient(daemon.socket) as client:
            slow, fast = await client.subscribe("slow"), await client.subscribe("fast")
            assert await slow.receive(0) is None
            reading = asyncio.create_task(take(fast, 3))
            await publish(client, [("slow", f"{number:02}" + "x" * 1000) for number in range(50)])
            await publish(client, [("fast", f"{number:02}") for number in range(3)])
            assert await reading == ["00", "01", "02"]
            assert await take(slow, 50) == [f"{number:02}" for number in range(50)]
            await slow.close()
            with pytest.raises(bccn.ClosedError):
                await slow.receive()
            assert [message async for message in slow] == []

    run(test())


def test_unclaimed_messages_do_not_stop_callbacks(
    daemon: DaemonProcess, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bccn.aio.AsyncClient._read_ahead", 10_000)

    async def test() -> None:
        calls: list[str] = []
        notices: list[bccn.Notice] = []
        async with bccn.AsyncClient(daemon.socket, on_notice=notices.append) as client:
            await client.subscribe("a", lambda message: calls.append(message.text))
            for _ in range(50):
                await client.publish_all(b"x" * 1000)
            await client.publish("a", "heard")
            await until(lambda: calls == ["heard"])
        assert {notice.kind for notice in notices} == {"unclaimed"}
        assert "no callback takes" in str(notices[0])

    run(test())


def test_sending_waits_for_room(tmp_path: Path, run: Run) -> None:
    """EAGAIN: with nobody reading a batch of publishers fills the socket; all arrives, each one's in its order."""
    gate = tmp_path / "gate"

    def script(connection: socket.socket, packet: bytes) -> bool:
        if not packet.startswith(b"MSG"):
            return False
        while not gate.exists():
            pass
        return True

    async def test() -> None:
        async with bccn.AsyncClient(scripted.path) as client:
            tasks = [asyncio.create_task(publish(client, batch(name))) for name in "ab"]
            await asyncio.sleep(0.05)
            assert not any(task.done() for task in tasks)
            gate.touch()
            await asyncio.gather(*tasks)

    def batch(name: str) -> list[tuple[str, bytes]]:
        return [(name, b"%03d" % number + b"x" * 1000) for number in range(400)]

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        run(test())
    for name in (b"a", b"b"):
        numbers = [packet[6:9] for packet in scripted.seen if packet.startswith(b"MSG " + name)]
        assert numbers == [b"%03d" % number for number in range(400)]


def test_the_client_survives_a_killed_daemon(daemon: DaemonProcess, run: Run) -> None:
    async def test() -> None:
        notices: list[str] = []
        settings: dict[str, Any] = {"format": "full", "timeout": PATIENCE}  # for the start of a daemon
        async with bccn.AsyncClient(
            daemon.socket, **settings, on_notice=lambda notice: notices.append(notice.kind)
        ) as client:
            await client.set_name(client.name + "/worker")
            name = client.name
            await client.subscribe("a")
            daemon.kill()
            await until(lambda: not client.connected)
            assert client.name == ""
            publishing = asyncio.create_task(client.publish("a", "waited for the daemon"))
            await asyncio.sleep(0)
            daemon.start()
            await publishing
            message = await client.receive(PATIENCE)
            assert message
            assert (message.text, message.src) == ("waited for the daemon", name)
        assert notices == ["disconnected", "reconnected"]

    run(test())


def test_calls_time_out_while_the_daemon_is_away(daemon: DaemonProcess, run: Run) -> None:
    async def test() -> None:
        async with bccn.AsyncClient(daemon.socket, on_notice=lambda _: None) as client:
            client._timeout = 1.0
            daemon.kill()
            await until(lambda: not client.connected)
            attempts: list[Awaitable[object]] = [
                client.publish("a"), client.subscribe("a"), client.status(), client.barrier()
            ]  # fmt: skip
            for attempt in attempts:
                with pytest.raises(bccn.UnavailableError):
                    await attempt
            assert await client.receive(0.01) is None

    run(test())


def test_without_reconnection_calls_fail(daemon: DaemonProcess, run: Run) -> None:
    async def test() -> None:
        async with bccn.AsyncClient(daemon.socket, reconnect=False, on_notice=lambda _: None) as client:
            receiving = asyncio.create_task(client.receive())
            await asyncio.sleep(0)
            daemon.kill()
            with pytest.raises(bccn.UnavailableError):
                await receiving
            with pytest.raises(bccn.UnavailableError):
                await client.publish("a")

    run(test())


def test_rejected_calls_raise(daemon: DaemonProcess, tmp_path: Path, run: Run) -> None:
    async def test() -> None:
        with pytest.raises(bccn.UnavailableError, match="No such file"):
            await bccn.AsyncClient(tmp_path / "none").connect()
        async with bccn.AsyncClient(daemon.socket, on_notice=lambda _: None) as client:
            with pytest.raises(bccn.RejectedError):
                await client.subscribe("a*b")
            await client.publish("a", b"x" * 1400)
            with pytest.raises(bccn.RejectedError, match="too-large"):
                await client.barrier()
            with pytest.raises(bccn.RejectedError, match="name-taken"):
                await bccn.AsyncClient(daemon.socket, name=client.name).connect()
            assert len(await client.clients()) == 1
            assert await client.sources() == []
            assert (await client.control("whoami")) == client.name

    run(test())


def test_a_broken_request_is_made_again(tmp_path: Path, run: Run) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"SUB a" and scripted.seen.count(packet) == 1:
            connection.close()
            return True
        return False

    async def test() -> None:
        async with bccn.AsyncClient(scripted.path, on_notice=lambda _: None) as client:
            await client.subscribe("a")

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        run(test())
    assert scripted.seen.count(b"SUB a") == 2


def test_concurrent_requests_each_get_their_answer(daemon: DaemonProcess, run: Run) -> None:
    async def test() -> None:
        async with bccn.AsyncClient(daemon.socket) as client:
            tokens = [str(number) for number in range(100)]
            assert await asyncio.gather(*(client.control("ping", token) for token in tokens)) == tokens

    run(test())


def test_a_silent_daemon_times_out(tmp_path: Path, run: Run) -> None:
    async def test() -> None:
        async with bccn.AsyncClient(scripted.path) as client:
            client._timeout = 1.0
            with pytest.raises(bccn.TimedOutError):
                await client.status()

    with ScriptedDaemon(tmp_path / "bus", lambda _, packet: packet == b"CMSG status") as scripted:
        run(test())


def test_the_client_works_after_a_cancelled_call(daemon: DaemonProcess, run: Run) -> None:
    async def test() -> None:
        async with bccn.AsyncClient(daemon.socket) as client:
            await client.subscribe("a")
            for call in (client.receive(), client.barrier(), client.status()):
                task = asyncio.create_task(call)
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await client.publish("a", "x")
            assert await received(client) == ("a", b"x")

    run(test())


def test_a_forked_child_cannot_use_the_client(daemon: DaemonProcess) -> None:
    async def test() -> None:
        with PacketClient(daemon.socket) as witness:
            witness.subscribe("fork")
            async with bccn.AsyncClient(daemon.socket) as client:
                pid = os.fork()
                if pid == 0:
                    code = 1
                    try:
                        client.publish("fork").send(None)
                    except bccn.ClosedError:
                        client._close()  # which the parent must not feel
                        code = 0
                    finally:
                        os._exit(code)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
                await client.publish("fork", "parent")
                await client.barrier()
            assert witness.messages() == [("fork", b"parent")]

    asyncio.run(test())


# --- cancelled calls, a full socket, and a daemon that misspeaks ---


def test_a_cancelled_subscribe_leaves_nothing(daemon: DaemonProcess, run: Run) -> None:
    async def test() -> None:
        async with bccn.AsyncClient(daemon.socket, timeout=PATIENCE) as client:
            held = await client.subscribe("held", print)
            daemon.process.send_signal(signal.SIGSTOP)
            tasks = [asyncio.create_task(client.subscribe(pattern)) for pattern in ("a", "held", "b")]
            await until(lambda: len(client._asked) == len(tasks))
            for task in tasks[:2]:
                task.cancel()
            assert [type(each) for each in await asyncio.gather(*tasks[:2], return_exceptions=True)] == [
                asyncio.CancelledError
            ] * 2
            daemon.process.send_signal(signal.SIGCONT)
            await tasks[2]
            for channel in ("a", "b"):
                await client.publish(channel, "1")
            assert await received(client) == ("b", b"1")
            await held.close()
            await held.close()
            (own,) = [row for row in await client.clients() if row["name"] == client.name]
            assert own["subscriptions"] == 1

    run(test())


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
            flood = asyncio.create_task(publish(client, [("a", b"x" * 1000)] * 1000))
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


def test_what_is_published_while_a_batch_ends_is_sent(tmp_path: Path) -> None:
    go_on = threading.Event()

    def script(connection: socket.socket, packet: bytes) -> bool:
        return packet.startswith(b"MSG") and go_on.wait(PATIENCE)

    async def test() -> None:
        async with bccn.AsyncClient(scripted.path, pack=True, timeout=PATIENCE) as client:
            with suppress(BlockingIOError):
                while True:
                    client._send(b"MSG full\0" + bytes(1000), 0)

            async def end_a_batch() -> None:
                async with client.batch():
                    await client.publish("a", "1")

            ending = asyncio.create_task(end_a_batch())
            await until(lambda: client._unsent)
            late = asyncio.create_task(client.publish("b", "2"))
            await asyncio.sleep(0)
            go_on.set()
            await asyncio.gather(ending, late)
            await client.barrier()

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        asyncio.run(test(), debug=True)
    assert [packet for packet in scripted.seen if b"full" not in packet and packet.startswith(b"MSG")] == [
        b"MSG a\x001", b"MSG b\x002",
    ]  # fmt: skip


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
