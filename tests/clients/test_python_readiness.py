"""The blocking Python client in somebody's select loop: its one descriptor says when there is something to do."""

import select
import time

import bccn
from tests.clients.conftest import Connect, received
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient


def readable(client: bccn.Client, seconds: float = PATIENCE) -> bool:
    return bool(select.select([client], [], [], seconds)[0])


def test_the_descriptor_is_readable_while_messages_wait(connect: Connect, daemon: DaemonProcess) -> None:
    client, writer = connect(), connect()
    client.subscribe("a")
    fd = client.fileno()
    assert not readable(client, 0)
    writer.publish("a", "1")
    assert readable(client)
    assert received(client) == ("a", b"1")
    assert not readable(client, 0)
    client.publish("a", "2")
    client.barrier()  # has read the message too: the socket is empty, the client is not
    assert readable(client, 0)
    client.dispatch()  # calls callbacks, and leaves what is to be received
    assert readable(client, 0)
    assert received(client) == ("a", b"2")
    assert not readable(client, 0)
    assert client.fileno() == fd


def test_a_select_loop_survives_a_restart(connect: Connect, daemon: DaemonProcess) -> None:
    notices: list[str] = []
    client = connect(on_notice=lambda notice: notices.append(notice.kind))
    client.subscribe("a")
    fd = client.fileno()
    daemon.kill()
    assert readable(client)
    client.dispatch()
    assert not client.connected
    daemon.start()
    deadline = time.monotonic() + PATIENCE
    while not client.connected:  # only the descriptor says when
        assert select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]
        client.dispatch()
    with PacketClient(daemon.socket) as other:
        other.publish("a", b"back")
        assert readable(client)
    assert received(client) == ("a", b"back")
    assert notices == ["disconnected", "reconnected"]
