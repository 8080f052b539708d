"""The session of the Python client: what is asked and answered, and a daemon that goes, comes back or misspeaks."""

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import bccn
from bccn.errors import RejectedError, UnavailableError
from bccn.exchange import Entry, Pending
from bccn.inbox import NOTICES_LIMIT, Held
from bccn.session import Session
from bccnd.recorder.feed import Feed
from tests.clients.conftest import Connect, nothing_comes, publish, received
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until


class Made(Session):
    """A client that cannot wait."""

    _transport: Any

    async def _wait(self, pending: Pending, deadline: float) -> None:  # noqa: ARG002
        raise AssertionError("nothing here waits")


class FakeTransport:
    """Takes every packet; what comes is fed to the session."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.coming: list[bytes] = []

    def send(self, packet: bytes) -> bool:
        self.sent.append(packet)
        return True

    def receive_into(self, memory: memoryview) -> int | None:
        if not self.coming:
            return None
        packet = self.coming.pop(0)
        memory[: len(packet)] = packet
        return len(packet)

    def send_raw(self, packet: bytes, _flags: int) -> int:
        return int(self.send(packet))

    def close(self) -> None: ...


def greet(session: Made) -> list[Entry]:
    """Have it begin with a new connection."""
    session._due = 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bccn.session.transport_to", lambda *_: FakeTransport())
        session._advance()
    return session._greeting


def packets_of(entries: list[Entry]) -> list[bytes]:
    return [packet for entry in entries for packet in entry.packets]


def asked(session: Made, key: str) -> Entry:
    session._asked.append(entry := Entry(b"CMSG " + key.encode(), key=key))
    entry.published = session._published
    return entry


def answer(session: Made, *answers: str) -> None:
    for text in answers:
        packet = b"CMSG " + text.replace("|", "\0", 1).encode()
        if session._transport is None:
            session._feed(packet)
        else:
            session._transport.coming.append(packet)
            session._read()


def test_the_greeting_has_every_setting() -> None:
    session = Made(
        name="h/p/1",
        format="full",
        pack=True,
        echo=False,
        separator=".",
        queue={"packets": 5, "policy": "block"},
    )
    session._inbox.add(Held("a.b"))
    session._inbox.add(Held("a.b", print))
    session._wishes["listen"] = None
    assert packets_of(greet(session)) == [
        b"CMSG name\0h/p/1",
        b"CMSG separator\0.",
        b"CMSG format\0full",
        b"CMSG pack\0on",
        b"CMSG echo/off",
        b"CMSG queue\0packets=5 policy=block",
        b"CMSG listen",
        b"SUB a.b",
        b"SUB a.b",
        b"CMSG whoami",
    ]
    answer(
        session,
        "name|h/p/1",
        "separator|.",
        "format|full",
        "pack|on 65536",
        "echo/off|",
        "queue|x",
        "listen|",
    )
    assert not session.connected
    answer(session, "whoami|h/p/1")
    assert session.connected
    assert session._granted["whoami"] == "h/p/1"


def test_a_greeting_has_the_errors_of_its_requests() -> None:
    session = Made(name="x")
    session._inbox.add(Held("a*b"))
    greeting = greet(session)
    answer(
        session,
        "error|name-taken CMSG name: x is another",
        "error|bad-pattern SUB a*b: never",
        "whoami|h/p/1",
    )
    assert [getattr(entry.error, "code", "") for entry in greeting] == ["name-taken", "bad-pattern"]
    assert not session.connected


def test_answers_come_in_the_order_of_requests() -> None:
    session = Made()
    first, second, third = (asked(session, key) for key in ("ping", "status", "ping"))
    answer(session, "pong|1", "error|refused CMSG status: no", "error|bad-pattern SUB x: no", "pong|2")
    assert (first.done, first.value, first.error) == (True, "1", None)
    assert second.done
    assert str(second.error) == "CMSG status: no (refused)"
    assert third.done
    assert str(third.error) == "SUB x: no (bad-pattern)"


def test_a_revoked_right_is_a_notice() -> None:
    session = Made()
    request = asked(session, "tap")
    answer(session, "revoked|SUB demo/>")
    assert [(notice.kind, str(notice), notice.count) for notice in session._notices] == [
        ("revoked", "no longer allowed: SUB demo/>", 1)
    ]
    assert not request.done


def test_a_session_knows_whether_it_is_a_tap() -> None:
    session = Made()
    seen = []
    for value in ("on", "off", "interface"):
        asked(session, "tap")
        answer(session, f"tap|{value}")
        seen.append(session._inbox.is_tap)
    assert seen == [True, False, True]
    answer(session, "revoked|CMSG tap")
    assert not session._inbox.is_tap


def test_an_unknown_notice_answers_nothing() -> None:
    session = Made()
    request = asked(session, "whoami")
    answer(session, "weather|sunny")
    assert not request.done


@pytest.mark.parametrize("number", ["²", "9" * 5000, "-1", "1_0", ""])
def test_numbers_that_are_none_are_ignored(number: str) -> None:
    session = Made(pack=True)
    greet(session)
    answer(session, f"dropped|{number}", f"pack|on {number}", "whoami|h/p/1")
    assert session.connected
    assert (session.lost, session._batches.begin(session._granted["pack"])) == (0, False)


def test_lost_messages_count_in_the_next_one() -> None:
    session = Made()
    session._feed(b"MSG a\x001")
    answer(session, "dropped|3", "dropped|2")
    session._feed(b"MSG a\x007")
    session._feed(b"MSG a\x008")
    assert [message.lost for message in session._inbox.received] == [0, 5, 0]
    assert session.lost == 5
    assert [notice.count for notice in session._notices] == [5]


def test_a_rejection_is_a_notice_and_a_barrier_error() -> None:
    session = Made()
    answer(session, "error|too-large MSG a: 9", "error|refused MSG b: no")
    assert [notice.kind for notice in session._notices] == ["rejected", "rejected"]
    with pytest.raises(RejectedError, match="MSG a: 9; 1 more rejected") as caught:
        session._raise_rejections()
    assert caught.value.code == "too-large"
    session._raise_rejections()


def test_equal_rejections_are_one_notice() -> None:
    session = Made()
    for _ in range(1000):
        answer(session, "error|refused MSG a: no")
    for number in range(NOTICES_LIMIT + 100):
        answer(session, f"error|refused MSG {number}: no")
    assert len(session._notices) == NOTICES_LIMIT
    session._notices.clear()
    answer(
        session, "error|refused MSG a: no", "error|refused MSG a: no", "error|refused MSG b: no", "dropped|1"
    )
    assert [(notice.count, str(notice)) for notice in session._notices][:2] == [
        (2, "MSG a: no (refused), 2 times"),
        (1, "MSG b: no (refused)"),
    ]


def test_unconfirmed_messages_are_in_doubt() -> None:
    session = Made()
    greet(session)
    answer(session, "whoami|h/p/1")
    session._published += 2
    asked(session, "ping")
    answer(session, "pong|")
    session._published += 3
    answer(session, "closing|shutdown")
    session._end(UnavailableError("gone"))
    assert session._notices[-1].count == 3
    with pytest.raises(bccn.UnconfirmedError, match="up to 3") as caught:
        session._raise_rejections()
    assert caught.value.reason == "shutdown"
    session._raise_rejections()


def test_what_was_asked_is_asked_again_without_its_sub() -> None:
    session = Made()
    greet(session)
    answer(session, "whoami|h/p/1")
    request = Entry(b"SUB a", b"CMSG ping", key="ping")
    session._unsent.append(request)
    session._flush()
    assert not session._unsent
    session._end(UnavailableError("gone"))
    assert not request.done
    greet(session)
    answer(session, "whoami|h/p/1")
    assert session._transport.sent == [b"CMSG whoami", b"CMSG ping"]
    answer(session, "pong|")
    assert (request.done, request.error) == (True, None)


def test_what_nobody_waits_for_is_not_asked_again() -> None:
    session = Made()
    greet(session)
    answer(session, "whoami|h/p/1")
    asked(session, "ping").done = True  # its caller has given up
    session._end(UnavailableError("gone"))
    assert not session._held


def test_a_forked_child_starts_with_nothing_pending() -> None:
    session = Made()
    greet(session)
    answer(session, "whoami|h/p/1")
    session._feed(b"MSG a\x001")
    session._published += 1
    session._forked()
    assert session._wishes["name"] == f"h/p/1/{os.getpid()}"
    assert not session._inbox
    assert not session._unsettled


# --- the daemon goes away ---


def test_heartbeats_survive_a_reconnection(connect: Connect, daemon: DaemonProcess) -> None:
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


def test_the_client_survives_a_killed_daemon(connect: Connect, daemon: DaemonProcess) -> None:
    notices: list[str] = []
    client = connect(
        format="full", pack=True, echo=False, on_notice=lambda notice: notices.append(notice.kind)
    )
    client.set_name(client.name + "/worker")
    name = client.name
    client.subscribe("a")
    client.subscribe("b").close()
    daemon.kill()
    daemon.start()
    wait_until(lambda: client.receive(0.1) is None and "reconnected" in notices, "the next daemon")
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


def test_receive_waits_its_whole_timeout(connect: Connect, daemon: DaemonProcess) -> None:
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


def test_calls_time_out_while_the_daemon_is_away(connect: Connect, daemon: DaemonProcess) -> None:
    client = connect(on_notice=lambda _: None)
    client._timeout = 0.3
    daemon.kill()
    with pytest.raises(bccn.UnavailableError, match="no daemon at"):
        client.publish("a")
    with pytest.raises(bccn.UnavailableError):
        client.subscribe("a")
    assert client.receive(0.05) is None
    client.dispatch()


def test_without_reconnection_calls_fail(connect: Connect, daemon: DaemonProcess) -> None:
    client = connect(reconnect=False, on_notice=lambda _: None)
    daemon.kill()
    for call in (lambda: client.receive(PATIENCE), client.dispatch, lambda: client.publish("a")):
        with pytest.raises(bccn.UnavailableError):
            call()


def test_no_daemon_raises_unavailable(tmp_path: Path) -> None:
    with pytest.raises(bccn.UnavailableError, match=r"no daemon at .*/none: No such file"):
        bccn.Client(tmp_path / "none")


def test_a_refused_connection_says_why(tmp_path: Path) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        connection.send(b"CMSG closing\0limit: at most 1 clients")
        connection.close()
        return True

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        with pytest.raises(bccn.UnavailableError, match="limit: at most 1 clients"):
            bccn.Client(scripted.path)
        with pytest.raises(bccn.UnavailableError, match="limit: at most 1 clients"):
            Feed(scripted.path).connect()


def full_listener(path: Path) -> tuple[socket.socket, list[socket.socket]]:
    """A daemon too busy to accept: the connections that wait for it fill its queue."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen(0)
    waiting: list[socket.socket] = []
    while True:
        waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        waiting[-1].setblocking(False)
        try:
            waiting[-1].connect(str(path))
        except BlockingIOError:
            return listener, waiting


def test_a_busy_daemon_is_tried_again(tmp_path: Path) -> None:
    listener, waiting = full_listener(tmp_path / "bus")
    with pytest.raises(bccn.UnavailableError, match="is busy"):
        bccn.Client(tmp_path / "bus", timeout=0.1)
    clients: list[bccn.Client] = []
    connecting = threading.Thread(target=lambda: clients.append(bccn.Client(tmp_path / "bus")))
    connecting.start()
    for each in waiting:
        each.close()
    listener.settimeout(PATIENCE)
    connection, _ = listener.accept()
    while not connection.recv(100):  # one of those that only filled the queue
        connection.close()
        connection, _ = listener.accept()
    connection.send(b"CMSG whoami\0here/test/1")
    connecting.join(PATIENCE)
    clients[0].close()
    connection.close()
    listener.close()


def test_the_first_connection_is_waited_for(daemon: DaemonProcess) -> None:
    daemon.kill()
    clients: list[bccn.Client] = []
    connecting = threading.Thread(target=lambda: clients.append(bccn.Client(daemon.socket, wait=PATIENCE)))
    connecting.start()
    daemon.start()
    connecting.join(PATIENCE)
    [client] = clients
    client.close()


# --- bad moments, scripted ---


def test_last_messages_arrive_and_doubt_is_raised(tmp_path: Path) -> None:
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
        publish(client, [("x", "1"), ("x", "2")])
        assert received(client) == ("a", b"last words")
        with pytest.raises(bccn.UnconfirmedError, match="up to 2 messages may not") as caught:
            client.barrier()
        assert caught.value.reason == "shutdown"
        client.close()
    assert [notice.kind for notice in notices] == ["closing", "disconnected", "reconnected"]
    assert notices[1].count == 2


def test_a_silent_daemon_times_out(tmp_path: Path) -> None:
    with ScriptedDaemon(tmp_path / "bus", lambda _, packet: packet == b"CMSG status") as scripted:
        client = bccn.Client(scripted.path, timeout=PATIENCE)
        client._timeout = 1.0
        with pytest.raises(bccn.TimedOutError):
            client.control("status")
        client.close()


def test_a_broken_request_is_made_again(tmp_path: Path) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"SUB a" and scripted.seen.count(packet) == 1:
            connection.close()
            return True
        return False

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        client = bccn.Client(scripted.path, on_notice=lambda _: None)
        client.subscribe("a")
        client.close()
    assert scripted.seen == [b"CMSG whoami", b"SUB a", b"CMSG whoami", b"SUB a", b"CMSG ping"]


def test_a_name_still_taken_is_tried_again(tmp_path: Path) -> None:
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


def test_asking_without_receiving_raises_backlog_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"CMSG ping":
            connection.send(b"MSG a\0" + b"x" * 1000)
        return False

    monkeypatch.setattr("bccn.session.BACKLOG_LIMIT", 3000)
    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        client = bccn.Client(scripted.path)
        client.barrier()
        client.barrier()
        with pytest.raises(bccn.BacklogError, match="2 messages wait"):
            client.barrier() or client.barrier()
        client.close()


def test_another_protocol_raises_protocol_error(tmp_path: Path) -> None:
    with (
        ScriptedDaemon(
            tmp_path / "bus", lambda connection, _: bool(connection.send(b"HTTP/1.1 200"))
        ) as scripted,
        pytest.raises(bccn.ProtocolError),
    ):
        bccn.Client(scripted.path)


def test_a_full_socket_times_out(tmp_path: Path) -> None:
    go_on = threading.Event()
    with ScriptedDaemon(
        tmp_path / "bus", lambda _, packet: packet.startswith(b"MSG") and go_on.wait(PATIENCE)
    ) as scripted:
        client = bccn.Client(scripted.path, timeout=PATIENCE)
        client._timeout = 1.0
        with pytest.raises(bccn.TimedOutError, match="takes no more"):
            publish(client, [("a", b"x" * 1000)] * 100_000)
        client.close()
        go_on.set()


def test_a_gone_connection_keeps_its_reason(tmp_path: Path) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"CMSG status":
            connection.send(b"CMSG closing\0shutdown")
            connection.close()
        return packet == b"CMSG status"

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        client = bccn.Client(scripted.path, reconnect=False, on_notice=lambda _: None)
        for call in (client.status, client.receive, lambda: client.publish("a")):
            with pytest.raises(bccn.UnavailableError, match="went away") as caught:
                call()
            assert caught.value.reason == "shutdown"
        client.close()


def test_a_subscription_made_while_away_is_made_once(tmp_path: Path) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"CMSG ping\0go away":
            connection.close()
        return packet == b"CMSG ping\0go away" and scripted.seen.count(packet) == 1

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        client = bccn.Client(scripted.path, timeout=PATIENCE, on_notice=lambda _: None)
        client._unsent.append(Entry(b"CMSG ping\0go away"))
        client._flush()
        wait_until(lambda: client.receive(0) is None and not client.connected, "the end of the connection")
        client.subscribe("a")
        client.close()
    assert scripted.seen.count(b"SUB a") == 1


# --- fork ---


def test_a_forked_child_has_its_own_connection(connect: Connect) -> None:
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
