"""The blocking Python client against a real daemon: what its methods promise, and how it waits."""

import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import bccn
from bccn.transport import Transport
from tests.clients.conftest import Connect, nothing_comes, publish, received
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, crowded, wait_until
from tests.plain_bccn import plain_socket

# --- publish and subscribe ---


def test_a_subscription_is_in_force_when_subscribe_returns(connect: Connect) -> None:
    reader, writer = connect(), connect()
    subscription = reader.subscribe("a/*/c")
    writer.publish("a/b/c", "text")
    writer.publish("a/b/d", "not for us")
    writer.publish("a//c", b"\0\xff")
    assert [received(reader), received(reader)] == [("a/b/c", b"text"), ("a//c", b"\0\xff")]
    subscription.close()
    writer.publish("a/b/c")
    writer.barrier()
    assert nothing_comes(reader)


def test_iteration_ends_when_the_client_is_closed(connect: Connect) -> None:
    client = connect()
    client.subscribe("n")
    publish(client, [("n", str(number)) for number in range(3)])
    seen = []
    for message in client:
        seen.append(message.text)
        if len(seen) == 3:
            client.close()
    assert seen == ["0", "1", "2"]
    with pytest.raises(bccn.ClosedError):
        client.receive()


def test_receive_times_out(connect: Connect) -> None:
    assert connect().receive(0.05) is None


def test_calls_end_in_time_whatever_comes(
    daemon: DaemonProcess, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flood(_: Transport, memory: memoryview) -> int:
        memory[:7] = b"CMSG z\0"
        return 7

    client = connect()
    monkeypatch.setattr(Transport, "receive_into", flood)
    assert client.receive(0.01) is None
    with pytest.raises(bccn.TimedOutError):
        client.barrier(timeout=0.01)
    with pytest.raises(bccn.UnavailableError, match="does not answer"):
        bccn.Client(daemon.socket, timeout=0.01)


def test_full_format_has_sender_and_time(connect: Connect) -> None:
    reader, writer = connect(format="full"), connect()
    reader.subscribe("a")
    before = time.time_ns()
    writer.publish("a", "x")
    writer.publish("a", "y")
    first, second = reader.receive(PATIENCE), reader.receive(PATIENCE)
    assert first
    assert second
    assert (first.src, first.peer, first.verdict, first.mode) == (writer.name, "local", "ok", "plain")
    assert (second.seq or 0) - (first.seq or 0) == 1
    assert before <= (first.time_ns or 0) <= time.time_ns()
    assert (first.datagram or b"").endswith(b":a|x")


def test_messages_to_all_and_to_one_program(connect: Connect) -> None:
    one, two = connect(), connect()
    heard: list[bccn.Message] = []
    one.listen(heard.append)
    two.listen()
    two.publish_all("everybody")
    two.publish_to(one.name, "you")
    two.barrier()
    assert received(two) == ("!", b"everybody")
    wait_until(lambda: one.receive(0) is None and len(heard) == 2, "both messages")
    assert [(message.mode, message.text) for message in heard] == [("all", "everybody"), ("directed", "you")]


def test_separator_and_echo(connect: Connect) -> None:
    client = connect(separator=".", echo=False)
    client.subscribe("a.*")
    client.publish("a.b")
    assert nothing_comes(client)
    connect().publish("a.b", "x")
    assert received(client) == ("a.b", b"x")


def test_each_matching_callback_runs_once(connect: Connect) -> None:
    client = connect()
    calls: list[tuple[str, str]] = []
    client.subscribe("a/>", lambda message: calls.append(("wide", message.channel)))
    client.subscribe("a/b", lambda message: calls.append(("narrow", message.channel)))
    client.subscribe("c")
    publish(client, [("a/b", ""), ("a/c", ""), ("c", "for receive")])
    assert received(client) == ("c", b"for receive")
    assert calls == [("wide", "a/b"), ("narrow", "a/b"), ("wide", "a/c")]


def test_a_failing_callback_loses_no_other_message(connect: Connect) -> None:
    client = connect()
    calls: list[str] = []

    def callback(message: bccn.Message) -> None:
        calls.append(message.text)
        if message.text == "bad":
            raise KeyError("bad")

    client.subscribe("a", callback)
    client.subscribe("b")
    publish(client, [("b", "1"), ("a", "bad"), ("a", "good"), ("b", "2")])
    client.barrier()
    with pytest.raises(KeyError):
        client.dispatch()
    assert [received(client), received(client)] == [("b", b"1"), ("b", b"2")]
    assert calls == ["bad", "good"]


def test_callbacks_may_use_the_client(connect: Connect) -> None:
    client = connect()
    client.subscribe("question", lambda message: client.publish("answer", message.text * 2))
    client.subscribe("answer")
    client.publish("question", "ab")
    assert received(client) == ("answer", b"abab")


def test_a_tap_sees_rejected_datagrams(connect: Connect, loopback_port: int) -> None:
    tap = connect(format="full", tap="on")
    with plain_socket(loopback_port) as plain:
        plain.sendto(b"BCCN1[3]abc", (LOOPBACK_BROADCAST, loopback_port))
        message = tap.receive(PATIENCE)
    assert message
    assert (message.verdict, message.channel, message.datagram) == ("fields", "", b"BCCN1[3]abc")


# --- packing and sizes ---


@pytest.mark.parametrize("how", ["option", "control"])
def test_a_tap_gets_directed_messages_after_a_request(connect: Connect, how: str) -> None:
    """A client that only makes requests does not: they come to it for the replies."""
    tap, asking, other = connect(tap="on" if how == "option" else "off"), connect(), connect()
    if how == "control":
        tap.control("tap", "on")
    for client in (tap, asking):
        with pytest.raises(bccn.NobodyListensError):
            client.request("local/nobody")
    other.publish_to(asking.name, "x")
    other.barrier()
    assert nothing_comes(asking)
    seen = []
    while (message := tap.receive(PATIENCE)) is not None and message.payload != b"x":
        seen.append(message.channel)
    assert message is not None, seen
    assert message.channel == "!" + asking.name


def test_packed_messages_both_ways(connect: Connect) -> None:
    reader, writer = connect(pack=True), connect(pack=True)
    reader.subscribe("n")
    numbers = [str(number).encode() for number in range(5000)]
    with writer.batch(), writer.batch():
        for number in numbers:
            writer.publish("n", number)
    assert [received(reader) for _ in numbers] == [("n", number) for number in numbers]


def test_a_batch_without_packing_goes_one_by_one(connect: Connect) -> None:
    client = connect()
    client.subscribe("n")
    publish(client, [("n", "1"), ("n", "2")])
    assert [received(client), received(client)] == [("n", b"1"), ("n", b"2")]


@pytest.mark.parametrize("pack", [False, True])
def test_the_largest_local_message(connect: Connect, pack: bool) -> None:
    client = connect(pack=pack, format="full")
    channel = "local/" + "c" * 1018
    client.subscribe("local/>")
    payload = os.urandom(65536)
    publish(client, [(channel, payload), (channel, b"after")])
    assert received(client) == (channel, payload)
    assert received(client) == (channel, b"after")


def test_barrier_raises_what_was_rejected(connect: Connect) -> None:
    notices: list[bccn.Notice] = []
    client = connect(on_notice=notices.append)
    client.publish("a", b"x" * 1400)
    client.publish("b c")
    with pytest.raises(bccn.RejectedError, match=r"MSG a: .* at most 1400") as caught:
        client.barrier()
    assert caught.value.code == "too-large"
    assert [notice.kind for notice in notices] == ["rejected", "rejected"]
    client.barrier()


def test_a_publisher_that_never_asks_gets_notices(connect: Connect) -> None:
    notices: list[bccn.Notice] = []
    client = connect(on_notice=notices.append)
    wait_until(lambda: client.publish("a b") or notices, "a notice")
    client.close()


@pytest.mark.parametrize("pack", [False, True])
def test_a_batch_reads_what_the_daemon_rejects(connect: Connect, pack: bool) -> None:
    """Refusals come as notices while it goes on, and do not pile up: equal ones are one notice with a count."""
    notices: list[bccn.Notice] = []
    client = connect(pack=pack, on_notice=notices.append)
    most = count = 0

    def messages() -> Iterator[tuple[str, str]]:
        nonlocal most, count
        until = time.monotonic() + PATIENCE
        while len(notices) < 3 and time.monotonic() < until:
            count += 1
            most = max(most, len(client._notices))
            yield "a b", "x" * 100

    publish(client, messages())
    assert len(notices) >= 3, "they come before the batch is over"
    with pytest.raises(bccn.RejectedError, match=f"; {count - 1} more rejected"), client.batch():
        client.barrier()
    assert {notice.kind for notice in notices} == {"rejected"}
    assert sum(notice.count for notice in notices) == count
    assert most <= 2
    assert str(max(notices, key=lambda notice: notice.count)).endswith(" times")


@pytest.mark.parametrize("call", ["publish_all", "publish_to", "reply"])
def test_every_way_to_publish_notices_rejections(tmp_path: Path, call: str) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"MSG"):
            with suppress(ConnectionError):  # the client has left
                connection.send(b"CMSG error\0refused MSG !: no right")
        return packet.startswith(b"MSG")

    request = bccn.Request(bccn.Message("a", b"token\nx", "h/p/1"))
    arguments = {"publish_all": ("x",), "publish_to": ("h/p/1", "x"), "reply": (request, "x")}[call]
    notices: list[bccn.Notice] = []
    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        client = bccn.Client(scripted.path, on_notice=notices.append)
        wait_until(lambda: getattr(client, call)(*arguments) or notices, "a notice")
        client.close()


def test_leaving_with_waits_for_a_barrier(daemon: DaemonProcess) -> None:
    with pytest.raises(bccn.RejectedError), bccn.Client(daemon.socket) as client:
        client.publish("a", b"x" * 1400)
    with pytest.raises(UnicodeEncodeError), bccn.Client(daemon.socket) as client:
        client.publish("a", str(client.publish("a", b"x" * 1400)) + "\udc80")


def test_notices_without_a_handler_are_logged(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    client = connect()
    client.publish("a b")
    with caplog.at_level(logging.WARNING, "bccn"), pytest.raises(bccn.RejectedError):
        client.barrier()
    assert "bad-channel" in caplog.text


# --- asking ---


def test_status_clients_and_sources(connect: Connect) -> None:
    client = connect(queue={"packets": 7, "policy": "drop-newest"})
    client.subscribe("a")
    assert client.status()["subscriptions"] == 1
    [row] = [row for row in client.clients() if row["name"] == client.name]
    assert (row["subscriptions"], row["policy"], row["pid"]) == (1, "drop-newest", os.getpid())
    assert client.control("queue").split()[0] == "packets=7"
    client.publish("a", "x")
    client.barrier()
    assert isinstance(client.sources(), list)


def test_a_list_of_clients_has_many_pages(connect: Connect) -> None:
    client = connect()
    others = [connect() for _ in range(120)]
    names = {row["name"] for row in client.clients()}
    assert {other.name for other in others} <= names


def test_a_client_takes_another_name(connect: Connect) -> None:
    client = connect()
    own = client.name
    client.set_name(own + "/worker")
    assert client.name == client.control("whoami") == own + "/worker"
    assert connect(name=own + "/second").name == own + "/second"
    with pytest.raises(bccn.RejectedError) as caught:
        connect(name=own + "/second")
    assert caught.value.code == "name-taken"
    with pytest.raises(bccn.RejectedError) as caught:
        client.set_name("white space")
    assert caught.value.code == "bad-name"


def test_wrong_requests_raise_and_leave_nothing(connect: Connect) -> None:
    client = connect()
    with pytest.raises(bccn.RejectedError) as caught:
        client.subscribe("a*b")
    assert caught.value.code == "bad-pattern"
    with pytest.raises(bccn.RejectedError) as caught:
        client.control("no-such-key")
    assert caught.value.code == "unknown-key"
    with pytest.raises(bccn.InvalidError):
        connect(format="lines")


# --- slow readers ---


def test_lost_messages_are_counted_where_they_are_missing(connect: Connect) -> None:
    notices: list[bccn.Notice] = []
    reader = connect(queue={"packets": 10}, on_notice=notices.append)
    writer = connect(pack=True)
    reader.subscribe("n")
    total = 20_000
    publish(writer, (("n", str(number)) for number in range(total)))
    writer.barrier()
    numbers, lost, expected = [], 0, 0
    while not numbers or numbers[-1] != total - 1:
        message = reader.receive(PATIENCE)
        assert message is not None
        expected += message.lost
        lost += message.lost
        assert int(message.text) == expected
        expected += 1
        numbers.append(int(message.text))
    assert lost == total - len(numbers) == reader.lost > 0
    assert sum(notice.count for notice in notices if notice.kind == "lost") == lost


def test_publishing_reads_while_the_socket_is_full(connect: Connect) -> None:
    """With ``block`` the daemon reads no more from us while our queue is full: sending has to read."""
    client = connect(queue={"packets": 10, "policy": "block"})
    client.subscribe("n")
    for number in range(3000):
        client.publish("n", str(number))
    assert [received(client)[1] for _ in range(3000)] == [str(number).encode() for number in range(3000)]


# --- waiting ---


def test_a_late_answer_is_not_taken_for_the_next(tmp_path: Path) -> None:
    go_on = threading.Event()

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.endswith(b"late"):
            go_on.wait(PATIENCE)
        return False

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        client = bccn.Client(scripted.path, timeout=PATIENCE)
        client._timeout = 1.0
        with pytest.raises(bccn.TimedOutError):
            client.control("ping", "late")
        client._timeout = PATIENCE
        go_on.set()
        assert client.control("ping", "next") == "next"
        client.close()


def flood(client: bccn.Client) -> None:
    for _ in range(100_000):
        client.publish("a", b"x" * 1000)


@pytest.mark.parametrize(
    "call", [bccn.Client.receive, bccn.Client.status, flood], ids=["receive", "status", "publish"]
)
def test_closing_ends_a_call_of_another_thread(tmp_path: Path, call: Callable[[bccn.Client], object]) -> None:
    go_on = threading.Event()
    raised: list[bccn.BccnError] = []

    def script(connection: socket.socket, packet: bytes) -> bool:
        return packet == b"CMSG status" or (packet.startswith(b"MSG") and go_on.wait(PATIENCE))

    def wait(client: bccn.Client) -> None:
        try:
            call(client)
        except bccn.BccnError as error:
            raised.append(error)

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        client = bccn.Client(scripted.path, timeout=PATIENCE)
        waiting = threading.Thread(target=wait, args=(client,))
        waiting.start()
        time.sleep(0.2)
        client.close()
        waiting.join(PATIENCE / 2)
        go_on.set()
        assert not waiting.is_alive()
    assert [type(error) for error in raised] == [bccn.ClosedError]


def test_dispatch_greets_without_blocking(connect: Connect, daemon: DaemonProcess) -> None:
    """More subscriptions than the socket takes at once: the rest of the greeting leaves when there is room."""
    client = connect(on_notice=lambda _: None)
    for number in range(600):
        client.subscribe(f"a/{number}/" + "x" * 300)
    fd = client.fileno()
    daemon.kill()
    daemon.start()
    wait_until(lambda: client.receive(0) is None and not client.connected, "the end of the connection")
    deadline = time.monotonic() + PATIENCE
    while not client.connected:
        assert select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]
        client.dispatch()
    with PacketClient(daemon.socket) as other:
        other.publish("a/599/" + "x" * 300, b"there")
    message = client.receive(PATIENCE)
    assert message
    assert message.text == "there"


def test_a_child_that_keeps_the_socket_does_not_wake(connect: Connect, daemon: DaemonProcess) -> None:
    """An epoll set keeps a closed socket of which a child of fork has a copy, unless it is taken out first."""
    client = connect(on_notice=lambda _: None)
    client.fileno()
    assert client._transport is not None
    copy = client._transport._socket.dup()
    daemon.kill()
    daemon.start()
    client.barrier()
    assert not select.select([client], [], [], 0.1)[0]
    copy.close()


def test_closing_in_a_forked_child_leaves_the_parent(connect: Connect) -> None:
    client, writer = connect(), connect()
    client.subscribe("a")
    client.fileno()
    pid = os.fork()
    if pid == 0:
        client.close()
        os._exit(0)
    os.waitpid(pid, 0)
    writer.publish("a", "x")
    assert select.select([client], [], [], PATIENCE)[0]
    assert received(client) == ("a", b"x")


# --- the package ---


def test_importing_bccn_imports_nothing_slow() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import bccn, sys, json; print(json.dumps(sorted(sys.modules)))"],
        env={**os.environ, "PYTHONPATH": str(Path(bccn.__file__).parents[1])},
        capture_output=True,
        check=True,
    )
    assert not {"asyncio", "typing", "dataclasses", "logging", "threading"} & set(json.loads(loaded.stdout))
    assert bccn.AsyncClient is not None


@pytest.mark.needs("root")
def test_no_permission_raises_refused(daemon: DaemonProcess, tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.chdir(tmp_path)
            daemon.socket.chmod(0o600)
            os.setuid(65534)
            bccn.Client("bus.sock")
        except bccn.RefusedError as error:
            code = 0 if "no permission" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# --- a daemon that is there, and does not want us ---


def test_a_busy_daemon_is_waited_for_until_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "bus.sock"
    with crowded(path), pytest.raises(bccn.UnavailableError, match="is busy: more programs connect") as error:
        bccn.Client(path, timeout=0.3)
    assert error.value.reason == "busy"


def test_a_refused_client_learns_what_the_daemon_said(tmp_path: Path) -> None:
    path = tmp_path / "bus.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen(1)

        def refuse() -> None:
            with listening.accept()[0] as client:
                client.recv(100)
                client.send(b"CMSG closing\0limit: 7 clients at most")

        with ThreadPoolExecutor() as pool:
            pool.submit(refuse)
            with pytest.raises(bccn.UnavailableError, match="closes the connection: limit: 7") as error:
                bccn.Client(path)
    assert error.value.reason == "limit: 7 clients at most"


def test_an_error_of_our_own_gives_no_reason(tmp_path: Path) -> None:
    with pytest.raises(bccn.UnavailableError) as error:
        bccn.Client(tmp_path / "bus.sock")
    assert error.value.reason == ""
