"""The blocking Python client in somebody's select loop: its one descriptor says when there is something to do."""

import select
import time

import bccn
from tests.clients.conftest import Connect, received
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient


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
