"""The blocking Python client: streams of subscriptions, and threads that share a client."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import bccn
from tests.clients.conftest import Connect, publish, received
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


def test_a_thread_beside_the_one_that_uses_a_client_is_told(connect: Connect) -> None:
    """Whatever it calls, and before it has done anything."""
    client = connect(on_notice=lambda _: None)
    subscription = client.subscribe("a")
    calls: list[Callable[[], object]] = [
        lambda: client.publish("a", "x"),
        lambda: client.receive(0),
        lambda: subscription.receive(0),
        lambda: client.request("a"),
        lambda: client.subscribe("b"),
        client.dispatch,
        client.barrier,
    ]
    for call in calls:
        with (
            ThreadPoolExecutor(1) as pool,
            pytest.raises(bccn.InvalidError, match="a client for each thread"),
        ):
            pool.submit(call).result(PATIENCE)
    client.publish("a", "mine")
    assert received(client) == ("a", b"mine")


def test_four_threads_on_one_client_are_told_at_once(connect: Connect) -> None:
    client, together = connect(), threading.Barrier(4)
    outcomes: list[str] = []

    def publish_many() -> None:
        together.wait(PATIENCE)
        try:
            for _ in range(100):
                client.publish("a", "x")
            outcomes.append("")
        except bccn.InvalidError as error:
            outcomes.append(error.code)
        together.wait(PATIENCE)  # who used it first lives on

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(publish_many) for _ in range(4)]:
            done.result(PATIENCE)
    assert sorted(outcomes)[1:] == ["invalid"] * 3


def test_a_client_can_be_handed_to_another_thread(connect: Connect) -> None:
    """It is its first caller's, not its maker's, and the next one's when that has ended."""
    client = connect()
    for number in range(3):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(client.publish, "a", str(number)).result(PATIENCE)
    client.barrier()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(client.close).result(PATIENCE)
    with pytest.raises(bccn.ClosedError):
        client.publish("a")
