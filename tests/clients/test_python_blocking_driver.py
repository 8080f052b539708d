"""The driver of the blocking client: waiting, closing from another thread, and a select loop that never blocks."""

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import bccn
from tests.clients.conftest import Connect
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until


def test_a_late_answer_is_not_taken_for_the_next(tmp_path: Path) -> None:
    go_on = threading.Event()

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.endswith(b"late"):
            go_on.wait(PATIENCE)
        return False

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        client = bccn.Client(scripted.path, timeout=1.0)
        with pytest.raises(bccn.TimedOutError):
            client.control("ping", "late")
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
    wait_until(lambda: client.dispatch() == [] and not client.connected, "the end of the connection")
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
    assert client._connection.transport is not None
    copy = client._connection.transport._socket.dup()
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
    assert [message.text for message in client.dispatch()] == ["x"]
