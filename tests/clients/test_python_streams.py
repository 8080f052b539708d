"""The blocking Python client: streams of subscriptions, and threads that share a client."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

import bccn
from tests.clients.conftest import Connect, publish
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, wait_until

# --- streams ---


def test_what_nobody_receives_stops_no_callback(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccn.client.GLANCE_LIMIT", 10_000)
    heard: list[str] = []
    notices: list[bccn.Notice] = []
    client, writer = connect(on_notice=notices.append), connect()
    client.subscribe("a", lambda message: heard.append(message.text))
    client.subscribe("b")
    publish(writer, [("b", b"x" * 1000)] * 50)
    writer.barrier()
    writer.publish("a", "heard")

    def dispatched() -> bool:
        client.dispatch()
        return bool(heard)

    wait_until(dispatched, "the callback")
    assert {notice.kind for notice in notices} == {"unclaimed"}
    assert sum(notice.count for notice in notices) + len(client._inbox) == 50


def test_a_stream_nobody_reads_ends_the_wait_of_another(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bccn.session.BACKLOG_LIMIT", 10_000)
    client, writer = connect(), connect()
    full, empty = client.subscribe("full"), client.subscribe("empty")
    assert full.receive(0) is None
    publish(writer, [("full", b"x" * 1000)] * 50)
    writer.barrier()
    client.barrier()  # all of it has come
    with pytest.raises(bccn.BacklogError):
        empty.receive(PATIENCE)
    full.close()
    writer.publish("empty", "there")
    message = empty.receive(PATIENCE)
    assert message
    assert message.text == "there"


def test_a_closed_subscription_is_no_stream_any_more(connect: Connect) -> None:
    client = connect()
    with client.subscribe("a") as subscription:
        client.publish("a", "1")
        client.publish("a", "2")
        assert [message.text for _, message in zip(range(2), subscription, strict=False)] == ["1", "2"]
    with pytest.raises(bccn.ClosedError):
        subscription.receive()
    assert list(subscription) == []
    with pytest.raises(bccn.InvalidError, match="callback"):
        client.subscribe("a", print).receive()


# --- threads ---


def test_a_second_thread_inside_a_call_is_told(connect: Connect) -> None:
    """Whatever it calls, while another waits for messages; but it may publish."""
    client, waiting = connect(on_notice=lambda _: None), threading.Event()
    subscription = client.subscribe("a", lambda _: waiting.set())
    stream = client.subscribe("end")
    calls: list[Callable[[], object]] = [
        lambda: client.receive(0),
        lambda: subscription.close(),
        lambda: stream.receive(0),
        lambda: client.request("a"),
        lambda: list(client.request_many("a", count=1)),
        lambda: client.subscribe("b"),
        client.dispatch,
        client.barrier,
    ]
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(stream.receive, PATIENCE)
        client.publish("a", "it is inside")
        assert waiting.wait(PATIENCE)
        client._timeout = 0.01
        for call in calls:
            with pytest.raises(bccn.InvalidError, match="another thread stays inside a call"):
                call()
        client.publish_all("x")
        with client.batch():
            client.publish("end", "x")
        message = receiving.result(PATIENCE)
    assert message is not None
    assert message.text == "x"
    client._timeout = PATIENCE
    client.barrier()


@pytest.mark.parametrize("pack", [False, True])
def test_four_threads_publish_on_one_client(connect: Connect, pack: bool) -> None:
    """Also more than the socket takes, while another thread receives on it, and in batches of their own."""
    client, together = connect(pack=pack, queue={"packets": 10_000}), threading.Barrier(5)
    client.subscribe("*")

    def publish_many(name: str) -> None:
        together.wait(PATIENCE)
        for start in range(0, 1000, 100):
            with client.batch() if pack else nullcontext():
                for number in range(start, start + 100):
                    client.publish(name, str(number))

    def receive_all() -> list[tuple[str, int]]:
        together.wait(PATIENCE)
        messages = [client.receive(PATIENCE) for _ in range(4000)]
        return [(message.channel, int(message.text)) for message in messages if message is not None]

    with ThreadPoolExecutor(5) as pool:
        came = pool.submit(receive_all)
        for done in [pool.submit(publish_many, name) for name in "abcd"]:
            done.result(2 * PATIENCE)
        got = came.result(2 * PATIENCE)
    for name in "abcd":
        assert [number for channel, number in got if channel == name] == list(range(1000))
    assert client.lost == 0
    client.barrier()


def test_four_threads_on_one_client_are_right_or_told(connect: Connect) -> None:
    """Each answer is the one to what was asked, or the error says what is wrong."""
    client, together = connect(), threading.Barrier(4)

    def ask_many(name: str) -> list[str]:
        together.wait(PATIENCE)
        outcomes = []
        for number in range(200):
            try:
                outcomes.append(
                    "right" if client.control("ping", f"{name}{number}") == f"{name}{number}" else "wrong"
                )
            except bccn.InvalidError as error:
                outcomes.append("told" if "another thread" in str(error) else str(error))
        return outcomes

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask_many, name) for name in "abcd"]
        outcomes = {outcome for done in asking for outcome in done.result(2 * PATIENCE)}
    assert "right" in outcomes
    assert outcomes <= {"right", "told"}
    assert client.control("ping", "after") == "after"


def test_a_client_can_be_handed_to_another_thread(connect: Connect) -> None:
    """At any time when no call is under way, also while the thread that made it lives on."""
    client = connect()
    stream = client.subscribe("a")
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        for pool in (one, two, one):
            pool.submit(client.publish, "a", "x").result(PATIENCE)
            message = pool.submit(stream.receive, PATIENCE).result(PATIENCE)
            assert message is not None
            client.barrier()
        one.submit(client.close).result(PATIENCE)
    with pytest.raises(bccn.ClosedError):
        client.publish("a")


def test_an_asyncio_client_belongs_to_its_loop(daemon: DaemonProcess) -> None:
    async def elsewhere(client: bccn.AsyncClient) -> None:
        await client.publish("a", "safe from anywhere, while there is room")
        await client.barrier()

    async def test() -> None:
        async with bccn.AsyncClient(daemon.socket) as client:
            with pytest.raises(bccn.InvalidError, match="another loop"):
                await asyncio.to_thread(asyncio.run, elsewhere(client))
            await client.barrier()

    asyncio.run(test())
