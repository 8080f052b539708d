"""The blocking Python client against a real daemon, and against a scripted one for its bad moments."""

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
from pathlib import Path
from typing import Any

import pytest

import bccn
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import plain_socket

Connect = Callable[..., bccn.Client]


@pytest.fixture
def connect(daemon: DaemonProcess) -> Iterator[Connect]:
    """Clients of ``daemon``; closed at the end."""
    clients: list[bccn.Client] = []

    def make(**settings: Any) -> bccn.Client:
        settings.setdefault("timeout", PATIENCE)
        clients.append(bccn.Client(daemon.socket, **settings))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def received(client: bccn.Client) -> tuple[str, bytes]:
    message = client.receive(PATIENCE)
    assert message is not None, "nothing came"
    return message.channel, message.payload


def nothing_comes(client: bccn.Client) -> bool:
    client.barrier()
    return client.receive(0) is None


# --- publish and subscribe ---


def test_a_subscription_is_in_force_when_subscribe_returns(connect: Connect) -> None:
    reader, writer = connect(), connect()
    reader.subscribe("a/*/c")
    writer.publish("a/b/c", "text")
    writer.publish("a/b/d", "not for us")
    writer.publish("a//c", b"\0\xff")
    assert [received(reader), received(reader)] == [("a/b/c", b"text"), ("a//c", b"\0\xff")]
    reader.unsubscribe("a/*/c")
    writer.publish("a/b/c")
    writer.barrier()
    assert nothing_comes(reader)


def test_iteration_ends_when_the_client_is_closed(connect: Connect) -> None:
    client = connect()
    client.subscribe("n")
    client.publish_many([("n", str(number)) for number in range(3)])
    seen = []
    for message in client:
        seen.append(message.text)
        if len(seen) == 3:
            client.close()
    assert seen == ["0", "1", "2"]
    with pytest.raises(bccn.ClosedError):
        client.receive()


def test_receive_gives_up_in_time(connect: Connect) -> None:
    assert connect().receive(0.05) is None


def test_full_format_tells_who_and_when(connect: Connect) -> None:
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


def test_messages_to_all_and_to_one(connect: Connect) -> None:
    one, two = connect(), connect()
    heard: list[bccn.Message] = []
    one.listen(heard.append)
    two.listen()
    two.send_all("everybody")
    two.send_to(one.name, "you")
    two.barrier()
    assert received(two) == ("!", b"everybody")
    wait_until(lambda: one.dispatch() or len(heard) == 2, "both messages")
    assert [(message.mode, message.text) for message in heard] == [("all", "everybody"), ("directed", "you")]


def test_separator_and_echo(connect: Connect) -> None:
    client = connect(separator=".", echo=False)
    client.subscribe("a.*")
    client.publish("a.b")
    assert nothing_comes(client)
    connect().publish("a.b", "x")
    assert received(client) == ("a.b", b"x")


def test_every_matching_callback_is_called_once_and_the_rest_is_received(connect: Connect) -> None:
    client = connect()
    calls: list[tuple[str, str]] = []
    client.subscribe("a/>", lambda message: calls.append(("wide", message.channel)))
    client.subscribe("a/b", lambda message: calls.append(("narrow", message.channel)))
    client.subscribe("c")
    client.publish_many([("a/b", ""), ("a/c", ""), ("c", "for receive")])
    assert received(client) == ("c", b"for receive")
    assert calls == [("wide", "a/b"), ("narrow", "a/b"), ("wide", "a/c")]


def test_a_failing_callback_fails_its_caller_and_loses_nothing_else(connect: Connect) -> None:
    client = connect()
    calls: list[str] = []

    def callback(message: bccn.Message) -> None:
        calls.append(message.text)
        if message.text == "bad":
            raise KeyError("bad")

    client.subscribe("a", callback)
    client.subscribe("b")
    client.publish_many([("b", "1"), ("a", "bad"), ("a", "good"), ("b", "2")])
    client.barrier()
    with pytest.raises(KeyError):
        client.dispatch()
    assert [message.text for message in client.dispatch()] == ["1", "2"]
    assert calls == ["bad", "good"]


def test_callbacks_may_use_the_client(connect: Connect) -> None:
    client = connect()
    client.subscribe("question", lambda message: client.publish("answer", message.text * 2))
    client.subscribe("answer")
    client.publish("question", "ab")
    assert received(client) == ("answer", b"abab")


# --- packing and sizes ---


def test_packed_both_ways(connect: Connect) -> None:
    reader, writer = connect(pack=True), connect(pack=True)
    reader.subscribe("n")
    numbers = [str(number).encode() for number in range(5000)]
    with writer.batch(), writer.batch():
        for number in numbers:
            writer.publish("n", number)
    assert [received(reader) for _ in numbers] == [("n", number) for number in numbers]


def test_a_batch_without_agreement_goes_one_by_one(connect: Connect) -> None:
    client = connect()
    client.subscribe("n")
    client.publish_many([("n", "1"), ("n", "2")])
    assert [received(client), received(client)] == [("n", b"1"), ("n", b"2")]


@pytest.mark.parametrize("pack", [False, True])
def test_the_largest_local_message(connect: Connect, pack: bool) -> None:
    client = connect(pack=pack, format="full")
    channel = "local/" + "c" * 1018
    client.subscribe("local/>")
    payload = os.urandom(65536)
    client.publish_many([(channel, payload), (channel, b"after")])
    assert received(client) == (channel, payload)
    assert received(client) == (channel, b"after")


def test_what_was_rejected_is_noticed_and_raised_by_the_barrier(connect: Connect) -> None:
    notices: list[bccn.Notice] = []
    client = connect(on_notice=notices.append)
    client.publish("a", b"x" * 1400)
    client.publish("b c")
    with pytest.raises(bccn.RejectedError, match=r"MSG a: .* at most 1400") as caught:
        client.barrier()
    assert caught.value.code == "too-large"
    assert [notice.kind for notice in notices] == ["rejected", "rejected"]
    client.barrier()


def test_a_publisher_that_never_asks_is_told_too(connect: Connect) -> None:
    notices: list[bccn.Notice] = []
    client = connect(on_notice=notices.append)
    wait_until(lambda: client.publish("a b") or notices, "a notice")
    client.close()


def test_leaving_with_waits_for_what_was_published(daemon: DaemonProcess) -> None:
    with pytest.raises(bccn.RejectedError), bccn.Client(daemon.socket) as client:
        client.publish("a", b"x" * 1400)
    with pytest.raises(UnicodeEncodeError), bccn.Client(daemon.socket) as client:
        client.publish("a", str(client.publish("a", b"x" * 1400)) + "\udc80")


def test_notices_nobody_takes_are_logged(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    client = connect()
    client.publish("a b")
    with caplog.at_level(logging.WARNING, "bccn"), pytest.raises(bccn.RejectedError):
        client.barrier()
    assert "bad-channel" in caplog.text


# --- asking ---


def test_what_the_daemon_knows(connect: Connect) -> None:
    client = connect(queue={"packets": 7, "policy": "drop-newest"})
    client.subscribe("a")
    assert client.status()["subscriptions"] == 1
    [row] = [row for row in client.clients() if row["name"] == client.name]
    assert (row["subscriptions"], row["policy"], row["pid"]) == (1, "drop-newest", os.getpid())
    assert client.control("queue").split()[0] == "packets=7"
    client.publish("a", "x")
    client.barrier()
    assert isinstance(client.sources(), list)


def test_lists_of_many_pages(connect: Connect) -> None:
    client = connect()
    others = [connect() for _ in range(120)]
    names = {row["name"] for row in client.clients()}
    assert {other.name for other in others} <= names


def test_names(connect: Connect) -> None:
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


def test_wrong_requests_raise_and_leave_nothing_behind(connect: Connect) -> None:
    client = connect()
    with pytest.raises(bccn.RejectedError) as caught:
        client.subscribe("a*b")
    assert caught.value.code == "bad-pattern"
    with pytest.raises(bccn.RejectedError) as caught:
        client.control("no-such-key")
    assert caught.value.code == "unknown-key"
    with pytest.raises(bccn.InvalidError):
        client.unsubscribe("a*b")
    with pytest.raises(bccn.InvalidError):
        connect(format="lines")


# --- slow readers ---


def test_losses_are_told_where_they_are(connect: Connect) -> None:
    notices: list[bccn.Notice] = []
    reader = connect(queue={"packets": 10}, on_notice=notices.append)
    writer = connect(pack=True)
    reader.subscribe("n")
    total = 20_000
    writer.publish_many(("n", str(number)) for number in range(total))
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


def test_a_publisher_that_waits_for_its_own_reading_gets_on(connect: Connect) -> None:
    """With ``block`` the daemon reads no more from us while our queue is full: sending has to read."""
    client = connect(queue={"packets": 10, "policy": "block"})
    client.subscribe("n")
    for number in range(3000):
        client.publish("n", str(number))
    assert [received(client)[1] for _ in range(3000)] == [str(number).encode() for number in range(3000)]


# --- select loops ---


def readable(client: bccn.Client, seconds: float = PATIENCE) -> bool:
    return bool(select.select([client], [], [], seconds)[0])


def test_one_descriptor_for_a_select_loop(connect: Connect, daemon: DaemonProcess) -> None:
    client, writer = connect(), connect()
    client.subscribe("a")
    fd = client.fileno()
    assert not readable(client, 0)
    writer.publish("a", "1")
    assert readable(client)
    assert [message.text for message in client.dispatch()] == ["1"]
    assert not readable(client, 0)
    client.publish("a", "2")
    client.barrier()  # has read the message too: the socket is empty, the client is not
    assert readable(client, 0)
    assert [message.text for message in client.dispatch()] == ["2"]
    assert not readable(client, 0)
    assert client.fileno() == fd


def test_a_select_loop_comes_through_a_restart(connect: Connect, daemon: DaemonProcess) -> None:
    notices: list[str] = []
    client = connect(on_notice=lambda notice: notices.append(notice.kind))
    client.subscribe("a")
    fd = client.fileno()
    daemon.kill()
    assert readable(client)
    assert client.dispatch() == []
    assert not client.connected
    daemon.start()
    deadline = time.monotonic() + PATIENCE
    while not client.connected:  # only the descriptor says when
        assert select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]
        client.dispatch()
    with PacketClient(daemon.socket) as other:
        other.publish("a", b"back")
        assert readable(client)
    assert [message.text for message in client.dispatch()] == ["back"]
    assert notices == ["disconnected", "reconnected"]


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


# --- the daemon goes away ---


def test_a_heartbeat_is_said_again_to_the_next_daemon(connect: Connect, daemon: DaemonProcess) -> None:
    client = connect(on_notice=lambda _: None)
    client.heartbeat(1, "at work")
    with pytest.raises(bccn.RejectedError):
        client.heartbeat(3601)
    daemon.kill()
    daemon.start()
    watcher = connect()
    watcher.subscribe("heartbeat/>")
    client.barrier()
    assert received(watcher) == (f"heartbeat/{client.name}", b"at work")


def test_a_killed_daemon_is_found_again(connect: Connect, daemon: DaemonProcess) -> None:
    notices: list[str] = []
    client = connect(
        format="full", pack=True, echo=False, on_notice=lambda notice: notices.append(notice.kind)
    )
    client.set_name(client.name + "/worker")
    name = client.name
    client.subscribe("a")
    client.subscribe("b")
    client.unsubscribe("b")
    daemon.kill()
    daemon.start()
    assert client.receive(0.5) is None
    assert client.name == name
    with PacketClient(daemon.socket) as other:
        other.publish("b", b"no")
        other.publish("a", b"yes")
        message = client.receive(PATIENCE)
    assert message
    assert (message.channel, message.text, message.peer) == ("a", "yes", "local")
    assert notices == ["disconnected", "reconnected"]
    client.publish("a", "not echoed")
    assert nothing_comes(client)


def test_publishing_waits_for_the_daemon(connect: Connect, daemon: DaemonProcess) -> None:
    client = connect(on_notice=lambda _: None)
    daemon.kill()
    publishing = threading.Thread(target=client.publish, args=("a", "x"))
    publishing.start()
    daemon.start()
    publishing.join(PATIENCE)
    client.barrier()
    assert client.status()["counters"]["published"] == 1


def test_receiving_waits_out_its_time(connect: Connect, daemon: DaemonProcess) -> None:
    client = connect(on_notice=lambda _: None)
    daemon.kill()
    start = time.monotonic()
    assert client.receive(0.2) is None
    assert time.monotonic() - start >= 0.2, "a loop around receive() must not spin while the daemon is away"
    daemon.start()
    client.barrier()
    client.publish("a")
    client.subscribe("a")
    client.publish("a", "x")
    message = client.receive(float("inf"))
    assert message
    assert message.text == "x"


def test_a_tap_sees_what_was_rejected(connect: Connect, loopback_port: int) -> None:
    tap = connect(format="full", tap=True)
    with plain_socket(loopback_port) as plain:
        plain.sendto(b"BCCN1[3]abc", (LOOPBACK_BROADCAST, loopback_port))
        message = tap.receive(PATIENCE)
    assert message
    assert (message.verdict, message.channel, message.datagram) == ("fields", "", b"BCCN1[3]abc")


def test_publishing_gives_up_in_time(connect: Connect, daemon: DaemonProcess) -> None:
    client = connect(timeout=0.3, on_notice=lambda _: None)
    daemon.kill()
    with pytest.raises(bccn.UnavailableError, match="no daemon at"):
        client.publish("a")
    with pytest.raises(bccn.UnavailableError):
        client.subscribe("a")
    assert client.receive(0.05) is None
    assert client.dispatch() == []


def test_without_reconnection_it_says_so(connect: Connect, daemon: DaemonProcess) -> None:
    client = connect(reconnect=False, on_notice=lambda _: None)
    daemon.kill()
    for call in (lambda: client.receive(PATIENCE), client.dispatch, lambda: client.publish("a")):
        with pytest.raises(bccn.UnavailableError):
            call()


def test_no_daemon(tmp_path: Path) -> None:
    with pytest.raises(bccn.UnavailableError, match=r"no daemon at .*/none: No such file"):
        bccn.Client(tmp_path / "none")


def test_waiting_for_the_first_connection(daemon: DaemonProcess) -> None:
    daemon.kill()
    clients: list[bccn.Client] = []
    connecting = threading.Thread(target=lambda: clients.append(bccn.Client(daemon.socket, wait=PATIENCE)))
    connecting.start()
    daemon.start()
    connecting.join(PATIENCE)
    [client] = clients
    client.close()


# --- bad moments, scripted ---


def test_what_came_before_the_end_is_received_and_doubt_is_told(tmp_path: Path) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"MSG"):
            connection.send(b"MSG a\0last words")
            connection.send(b"CMSG closing\0shutdown")
            connection.recv(1, socket.MSG_PEEK)
            connection.close()  # with a packet unread: the client meets ECONNRESET before what was sent
        return packet.startswith(b"MSG")

    notices: list[bccn.Notice] = []
    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        client = bccn.Client(scripted.path, on_notice=notices.append)
        client.publish_many([("x", "1"), ("x", "2")])
        assert received(client) == ("a", b"last words")
        with pytest.raises(bccn.UnconfirmedError, match="up to 2 messages may not"):
            client.barrier()
        client.close()
    assert [notice.kind for notice in notices] == ["closing", "disconnected", "reconnected"]
    assert notices[1].count == 2


def test_a_daemon_that_does_not_answer(tmp_path: Path) -> None:
    with ScriptedDaemon(tmp_path / "bus", lambda _, packet: packet == b"CMSG status") as scripted:
        client = bccn.Client(scripted.path, timeout=0.1)
        with pytest.raises(bccn.TimedOutError):
            client.control("status")
        client.close()


def test_a_request_that_breaks_off_is_made_again(tmp_path: Path) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"SUB a" and scripted.seen.count(packet) == 1:
            connection.close()
            return True
        return False

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        client = bccn.Client(scripted.path, on_notice=lambda _: None)
        client.subscribe("a")
        client.close()
    assert scripted.seen == [b"CMSG whoami", b"SUB a", b"SUB a", b"CMSG whoami", b"CMSG ping"]


def test_a_name_still_taken_by_the_old_connection_is_waited_for(tmp_path: Path) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"CMSG ping" and scripted.seen.count(packet) == 1:
            connection.close()
        elif packet.startswith(b"CMSG name") and scripted.seen.count(packet) == 2:
            connection.send(b"CMSG error\0name-taken CMSG name: mine is another client")
        else:
            return False
        return True

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        client = bccn.Client(scripted.path, name="mine", on_notice=lambda _: None)
        client.barrier()
        client.close()
    assert sum(packet.startswith(b"CMSG name") for packet in scripted.seen) == 3


def test_asking_without_ever_receiving_is_an_error_not_a_full_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"CMSG ping":
            connection.send(b"MSG a\0" + b"x" * 1000)
        return False

    monkeypatch.setattr("bccn.connection.BACKLOG_LIMIT", 3000)
    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        client = bccn.Client(scripted.path)
        client.barrier()
        client.barrier()
        with pytest.raises(bccn.BacklogError, match="2 messages wait"):
            client.barrier() or client.barrier()
        client.close()


def test_a_daemon_that_speaks_otherwise(tmp_path: Path) -> None:
    with (
        ScriptedDaemon(
            tmp_path / "bus", lambda connection, _: bool(connection.send(b"HTTP/1.1 200"))
        ) as scripted,
        pytest.raises(bccn.ProtocolError),
    ):
        bccn.Client(scripted.path)


def test_a_daemon_that_takes_no_more(tmp_path: Path) -> None:
    go_on = threading.Event()
    with ScriptedDaemon(
        tmp_path / "bus", lambda _, packet: packet.startswith(b"MSG") and go_on.wait(PATIENCE)
    ) as scripted:
        client = bccn.Client(scripted.path, timeout=0.1)
        with pytest.raises(bccn.TimedOutError, match="takes no more"):
            client.publish_many(("a", b"x" * 1000) for _ in range(100_000))
        client.close()
        go_on.set()


# --- fork ---


def test_a_child_of_fork_speaks_for_itself(connect: Connect) -> None:
    parent, witness = connect(), connect(format="full")
    witness.subscribe("fork")
    parent.subscribe("to/both")
    witness_fd = parent.fileno()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            parent.publish("fork", "child")
            parent.barrier()
            message = parent.receive(PATIENCE)
            code = 0 if message and message.text == "hello" and parent.fileno() != -1 else 2
        finally:
            os._exit(code)
    message = witness.receive(PATIENCE)
    assert message
    assert (message.src, message.text) == (f"{parent.name}/{pid}", "child")
    witness.publish("to/both", "hello")
    assert received(parent) == ("to/both", b"hello")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    parent.publish("fork", "parent")
    message = witness.receive(PATIENCE)
    assert message
    assert (message.src, message.text) == (parent.name, "parent")
    assert parent.fileno() == witness_fd


# --- the package ---


def test_the_socket_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccn.path.SERVICE_SOCKET", str(tmp_path / "service"))
    monkeypatch.delenv("BCCN_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert bccn.socket_path() == str(tmp_path / "service")
    own = tmp_path / "bccnd" / "bus.sock"
    own.parent.mkdir()
    own.touch()
    assert bccn.socket_path() == str(own)
    (tmp_path / "service").touch()
    assert bccn.socket_path() == str(tmp_path / "service")
    monkeypatch.setenv("BCCN_SOCKET", "@abstract")
    assert bccn.socket_path() == "@abstract"
    assert bccn.socket_path(own) == str(own)


def test_importing_it_brings_nothing_slow() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import bccn, sys, json; print(json.dumps(sorted(sys.modules)))"],
        env={**os.environ, "PYTHONPATH": str(Path(bccn.__file__).parents[1])},
        capture_output=True,
        check=True,
    )
    assert not {"asyncio", "typing", "dataclasses", "logging", "threading"} & set(json.loads(loaded.stdout))
    assert bccn.AsyncClient is not None


@pytest.mark.needs("root")
def test_no_permission_is_a_refusal_not_an_absence(daemon: DaemonProcess, tmp_path: Path) -> None:
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
