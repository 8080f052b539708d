"""The operations of both Python clients, with a real daemon: requests and replies, and heartbeats."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

import bccn
from tests.clients.conftest import Connect, received
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import datagram, plain_socket
from tests.request_server import serving
from tests.waiting import until

LONG = 60.0  # seconds; no test waits so long, unless what it tests fails


def upper(request: bccn.Request) -> bytes:
    return request.payload.upper()


# --- the blocking client ---


@pytest.mark.parametrize("settings", [{}, {"format": "full"}, {"pack": True, "echo": False}])
def test_a_request_has_a_reply(daemon: DaemonProcess, settings: dict[str, Any]) -> None:
    with serving(daemon, "up/*", upper) as server, bccn.Client(daemon.socket, **settings) as bus:
        for payload, expected in (("one", b"ONE"), (b"", b""), (b"two\nthree\0", b"TWO\nTHREE\0")):
            reply = bus.request("up/x", payload)
            assert reply.payload == expected
            assert reply.channel == f"!{bus.name}"
            assert reply.src == (server if settings.get("format") else None)


def test_several_replies_or_all_in_time(daemon: DaemonProcess) -> None:
    with (
        serving(daemon, "who", lambda _: "first"),
        serving(daemon, "who", lambda _: "second"),
        serving(daemon, "who", lambda _: None),
        bccn.Client(daemon.socket) as bus,
    ):
        both = {"first", "second"}
        assert {reply.text for reply in bus.request_many("who", count=2)} == both
        assert bus.request("who").text in both
        # In time, or else another time: a busy machine may take longer once.
        wait_until(lambda: {reply.text for reply in bus.request_many("who", timeout=1.0)} == both, "both")
        wait_until(
            lambda: {reply.text for reply in bus.request_many("who", "", 1.0, 3)} == both, "both of three"
        )


@pytest.mark.parametrize("channel", ["nobody/there", "local/nobody", "!here/nobody", "!far/program/12", "!"])
def test_nobody_listens_is_raised_early(daemon: DaemonProcess, channel: str) -> None:
    with bccn.Client(daemon.socket) as bus, pytest.raises(bccn.NobodyListensError, match="listens to"):
        bus.request(channel, timeout=LONG)


def test_a_silent_listener_is_waited_for(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket) as silent, bccn.Client(daemon.socket) as bus:
        silent.subscribe("a")
        with pytest.raises(bccn.TimedOutError, match=r"no reply on a within 0\.5 s"):
            bus.request("a", timeout=0.5)


def test_wait_anyway_reaches_programs_without_daemon(daemon: DaemonProcess, loopback_port: int) -> None:
    with (
        plain_socket(loopback_port),
        bccn.Client(daemon.socket) as bus,
        pytest.raises(bccn.NobodyListensError),
    ):
        bus.request("plain/only", timeout=LONG)
    answered = threading.Event()

    def answer() -> None:
        """After all questions of the client have been asked in vain."""
        with plain_socket(loopback_port) as plain:
            ready.set()
            while b":plain/only|" not in (heard := plain.recv(2048)):
                pass
            assert not answered.wait(0.5)
            src = heard.partition(b"]")[2].partition(b":")[0].decode()
            token = heard.partition(b"|")[2].partition(b"\n")[0]
            reply = datagram("there/plain/1", 1, f"!{src}", token + b"\nfrom afar")
            plain.sendto(reply, (LOOPBACK_BROADCAST, loopback_port))

    ready = threading.Event()
    thread = threading.Thread(target=answer)
    thread.start()
    assert ready.wait(PATIENCE)
    with bccn.Client(daemon.socket) as bus:
        reply = bus.request("plain/only", timeout=PATIENCE, wait_anyway=True)
    answered.set()
    thread.join()
    assert reply.text == "from afar"


def test_a_rejected_request_raises_at_once(daemon: DaemonProcess) -> None:
    with serving(daemon, ">", upper), bccn.Client(daemon.socket) as bus:
        for channel, payload, code in (
            ("up", b"x" * 1500, "too-large"),
            ("not a channel", b"", "bad-channel"),
        ):
            with pytest.raises(bccn.RejectedError) as caught:
                bus.request(channel, payload, LONG)
            assert caught.value.code == code
        with pytest.raises(bccn.InvalidError):
            bus.request("nul\0")
        bus.barrier()


def test_earlier_rejections_are_not_the_requests(daemon: DaemonProcess) -> None:
    with serving(daemon, "up", upper), bccn.Client(daemon.socket, on_notice=lambda _: None) as bus:
        bus.request("up", "warm")
        bus.publish("up", b"x" * 1500)
        assert bus.request("up", "y").payload == b"Y"
        with pytest.raises(bccn.RejectedError, match="MSG up: 15"):
            bus.barrier()


def test_other_messages_wait_during_a_request(daemon: DaemonProcess) -> None:
    with bccn.Client(daemon.socket) as bus, bccn.Client(daemon.socket) as other:
        bus.subscribe("news")

        def handler(request: bccn.Request) -> bytes:
            other.publish("news", "meanwhile")
            other.publish_to(bus.name, "and to you")
            other.barrier()
            return b"done"

        with serving(daemon, "up", handler):
            assert bus.request("up").payload == b"done"
        messages = [bus.receive(PATIENCE), bus.receive(PATIENCE)]
        assert [message and message.text for message in messages] == ["meanwhile", "and to you"]
        assert bus.receive(0) is None


def test_a_client_that_only_asks_receives_nothing_else(daemon: DaemonProcess) -> None:
    with serving(daemon, "up", upper), bccn.Client(daemon.socket) as bus, bccn.Client(daemon.socket) as other:
        bus.request("up")
        other.publish_all("hello all")
        other.publish_to(bus.name, "hello you")
        other.barrier()
        bus.barrier()
        assert bus.receive(0) is None
        bus.listen()
        other.publish_all("hello again")
        message = bus.receive(PATIENCE)
        assert message
        assert message.text == "hello again"


def test_requests_to_all_and_to_one_program(daemon: DaemonProcess) -> None:
    with serving(daemon, "!", upper) as name, bccn.Client(daemon.socket) as bus:
        assert bus.request("!", "a").payload == b"A"
        assert bus.request(f"!{name}", "b").payload == b"B"
        assert bus.request("!here/bccnd", "ping").text.startswith("pong ")


def test_a_handler_may_make_requests(daemon: DaemonProcess) -> None:
    with bccn.Client(daemon.socket) as asking:

        def relay(request: bccn.Request) -> bytes:
            reply = asking.request("inner", request.payload)
            return b"<" + reply.payload + b">"

        with (
            serving(daemon, "inner", upper),
            serving(daemon, "outer", relay),
            bccn.Client(daemon.socket) as bus,
        ):
            assert bus.request("outer", "x").payload == b"<X>"


def test_a_handler_may_reply_later(daemon: DaemonProcess) -> None:
    requests: list[bccn.Request] = []
    with bccn.Client(daemon.socket, format="full") as server, bccn.Client(daemon.socket) as bus:
        serves = threading.Event()

        def answer() -> None:
            server.serve("later", lambda request: requests.append(request))
            serves.set()
            while not requests:
                server.receive(0.02)
            server.reply(requests[0], "at last")

        thread = threading.Thread(target=answer)
        thread.start()
        assert serves.wait(PATIENCE)
        bus.publish("later", "one line")
        assert bus.request("later", "x").text == "at last"
        thread.join()
        assert [request.payload for request in requests] == [b"x"]


def test_serving_needs_the_full_format(daemon: DaemonProcess) -> None:
    with bccn.Client(daemon.socket) as bus, pytest.raises(bccn.InvalidError, match='format="full"'):
        bus.serve("up", upper)


def test_requests_work_after_a_restart(daemon: DaemonProcess) -> None:
    with bccn.Client(daemon.socket, timeout=PATIENCE, on_notice=lambda _: None) as bus:
        with serving(daemon, "up", upper):
            bus.request("up")
        daemon.kill()
        daemon.start()
        with serving(daemon, "up", upper):
            assert bus.request("up", "x").payload == b"X"


def test_a_lost_daemon_costs_the_reply_only(daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    with PacketClient(daemon.socket) as silent, bccn.Client(daemon.socket, on_notice=lambda _: None) as bus:
        silent.subscribe("a")
        ask = bus._ask

        async def ask_and_lose(*arguments: Any, **settings: Any) -> str:
            """It has been asked all that it is asked, and the reply is waited for."""
            answer = await ask(*arguments, **settings)
            if arguments[0] == "listeners":
                daemon.kill()
            return answer

        monkeypatch.setattr(bus, "_ask", ask_and_lose)
        while daemon.process.returncode is None:  # on a busy machine the time may be over before
            with pytest.raises(bccn.TimedOutError):
                bus.request("a", timeout=1.0)
        assert silent.message()[0] == "a"
        monkeypatch.undo()
    daemon.start()


def test_a_forked_child_makes_its_own_requests(daemon: DaemonProcess) -> None:
    with serving(daemon, "up", upper, timeout=PATIENCE), bccn.Client(daemon.socket, timeout=PATIENCE) as bus:
        assert bus.request("up", "parent").payload == b"PARENT"
        pid = os.fork()
        if not pid:
            good = False
            try:
                good = bus.request("up", "child").payload == b"CHILD"
            finally:
                os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert bus.request("up", "parent").payload == b"PARENT"


# --- the asyncio client ---


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, LONG), debug=True)


def test_concurrent_requests_of_asyncio_clients(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with (
            bccn.AsyncClient(daemon.socket, format="full") as server,
            bccn.AsyncClient(daemon.socket) as bus,
        ):
            await server.serve("up", upper)
            replies = await asyncio.gather(*(bus.request("up", f"x{n}") for n in range(50)))
            assert [reply.text for reply in replies] == [f"X{n}" for n in range(50)]
            came: list[str] = []
            while not came:  # in time, or else another time: a busy machine may take longer once
                came = [reply.text async for reply in bus.request_many("up", "y", 1.0)]
            assert came == ["Y"]

    run(test())


def test_concurrency_limits_the_handlers(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with (
            bccn.AsyncClient(daemon.socket, format="full") as server,
            bccn.AsyncClient(daemon.socket) as bus,
        ):
            at_work, most, release = 0, 0, asyncio.Event()

            async def handler(request: bccn.Request) -> str:
                nonlocal at_work, most
                at_work += 1
                most = max(most, at_work)
                if at_work == 3:
                    release.set()
                await release.wait()
                at_work -= 1
                return request.text

            await server.serve("slow", handler, concurrency=3)
            replies = await asyncio.gather(*(bus.request("slow", f"{n}") for n in range(10)))
            assert [reply.text for reply in replies] == [f"{n}" for n in range(10)]
            assert most == 3

    run(test())


def test_a_failing_handler_is_reported(daemon: DaemonProcess) -> None:
    async def test() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        async with (
            bccn.AsyncClient(daemon.socket, format="full") as server,
            bccn.AsyncClient(daemon.socket) as bus,
        ):

            def handler(request: bccn.Request) -> bytes:
                return b"%d" % (1 // int(request.payload))

            await server.serve("div", handler)
            failing = asyncio.create_task(bus.request("div", "0", LONG))
            await until(lambda: reported)
            assert (await bus.request("div", "1")).payload == b"1"
            assert not failing.done()
            failing.cancel()
            await asyncio.wait([failing])
        assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]

    run(test())


def test_asyncio_requests_raise_the_same_errors(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with bccn.AsyncClient(daemon.socket) as bus:
            outcomes = await asyncio.gather(
                bus.request("nobody/there", timeout=LONG),
                bus.request("local/nobody", timeout=LONG),
                bus.request("up", b"x" * 1500, LONG),
                bus.request("nobody/there", timeout=0.5, wait_anyway=True),
                return_exceptions=True,
            )
            assert [type(outcome) for outcome in outcomes] == [
                bccn.NobodyListensError,
                bccn.NobodyListensError,
                bccn.RejectedError,
                bccn.TimedOutError,
            ]

    run(test())


def test_waiting_requests_end_with_the_client(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with (
            bccn.AsyncClient(daemon.socket) as silent,
            bccn.AsyncClient(daemon.socket) as bus,
            bccn.AsyncClient(daemon.socket, reconnect=False, on_notice=lambda _: None) as once,
        ):
            await silent.subscribe("a")
            waiting = asyncio.create_task(bus.request("a", timeout=LONG))
            waiting_too = asyncio.create_task(once.request("a", timeout=LONG))
            assert await silent.receive(PATIENCE)
            assert await silent.receive(PATIENCE)
            await bus.close()
            with pytest.raises(bccn.ClosedError):
                await waiting
            silent.on_notice = lambda _: None
            daemon.kill()
            with pytest.raises(bccn.UnavailableError):
                await waiting_too
            await once.close()
            await silent.close()

    run(test())


def test_a_cancelled_request_leaves_nothing(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with (
            bccn.AsyncClient(daemon.socket, format="full") as server,
            bccn.AsyncClient(daemon.socket) as bus,
        ):
            requests: list[bccn.Request] = []
            await server.serve("later", requests.append)
            asking = asyncio.create_task(bus.request("later", timeout=LONG))
            async with asyncio.timeout(PATIENCE):
                while not requests:
                    await asyncio.sleep(0.01)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert not bus._exchanges
            await server.reply(requests[0], "too late")
            await server.serve("up", upper)
            assert (await bus.request("up", "x")).payload == b"X"
            assert await bus.receive(0) is None

    run(test())


def test_closing_cancels_running_handlers(daemon: DaemonProcess) -> None:
    cancelled = threading.Event()

    async def test() -> None:
        async with bccn.AsyncClient(daemon.socket) as bus:
            async with bccn.AsyncClient(daemon.socket, format="full") as server:

                async def handler(_: bccn.Request) -> None:
                    began.set()
                    try:
                        await asyncio.sleep(LONG)
                    finally:
                        cancelled.set()

                began = asyncio.Event()
                await server.serve("slow", handler)
                asking = asyncio.create_task(bus.request("slow", timeout=LONG))
                await began.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    run(test())
    assert cancelled.is_set()


def test_reading_goes_on_while_a_reply_is_awaited(daemon: DaemonProcess) -> None:
    """More waits to be received than is read ahead, and the reply stands behind it."""
    with PacketClient(daemon.socket) as publisher:

        def flood(request: bccn.Request) -> bytes:
            for _ in range(40):
                publisher.publish("local/flood", b"x" * 60000)
            publisher.drain()
            return b"behind it"

        async def test() -> None:
            async with bccn.AsyncClient(daemon.socket) as bus:
                await bus.subscribe("local/flood")
                reply = await bus.request("up", timeout=PATIENCE)
                assert reply.payload == b"behind it"
                assert await bus.receive(PATIENCE)

        with serving(daemon, "up", flood):
            run(test())


def test_a_closed_server_leaves_no_subscription(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket) as client:
        with serving(daemon, "up", upper):
            assert client.status()["subscriptions"] == 1
        wait_until(lambda: client.status()["subscriptions"] == 0, "the server to have left")


# --- heartbeats ---


def test_heartbeats_begin_change_and_end(connect: Connect) -> None:
    watcher, client = connect(), connect()
    channel = f"heartbeat/{client.name}"
    watcher.subscribe(channel)
    client.heartbeat(60, "at work")
    assert received(watcher) == (channel, b"at work")
    client.heartbeat(60)
    assert received(watcher) == (channel, b"")
    client.heartbeat(0)
    assert received(watcher) == (channel, b"leaving")
    client.heartbeat(60, "again")
    assert received(watcher) == (channel, b"again")
    client.close()
    assert received(watcher) == (channel, b"leaving")
