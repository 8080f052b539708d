"""The door as its peers see it: a real one, before a real daemon."""

import os
from pathlib import Path

from tests.clients.door import Door
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.mux.mux_client import MuxClient
from tests.packet_client import PacketClient
from tests.plain_bccn import free_port

EVERY_BYTE = bytes(range(256))


def test_a_session_is_a_client_of_the_daemon(client: MuxClient, shared_daemon: DaemonProcess) -> None:
    bus = client.bus()
    assert bus.request("whoami").endswith(f"/{os.getpid()}")
    bus.send(b"SUB a/>", b"CMSG ping")
    assert bus.receive() == b"CMSG pong\0"
    with PacketClient(shared_daemon.socket) as other:
        other.publish("a/x", EVERY_BYTE)
    assert bus.receive() == b"MSG a/x\0" + EVERY_BYTE
    bus.send(b"MSG a/y\0" + EVERY_BYTE)
    assert bus.receive() == b"MSG a/y\0" + EVERY_BYTE


def test_the_longest_packets_go_through_whole(client: MuxClient) -> None:
    bus = client.bus(window=1000)
    bus.send(b"SUB local/big")
    packet = b"MSG local/big\0" + EVERY_BYTE * 256
    bus.send(packet, packet)
    assert [bus.receive(), bus.receive()] == [packet, packet]


def test_what_was_sent_before_the_close_is_published(client: MuxClient, shared_daemon: DaemonProcess) -> None:
    with PacketClient(shared_daemon.socket) as other:
        other.subscribe("last/>")
        bus = client.bus()
        bus.send(*[b"MSG last/words\0%d" % number for number in range(500)])
        client.endpoint.close(bus.channel)
        assert bus.ending() == b""
        with MuxClient(client.socket.getpeername()) as leaving:
            session = leaving.bus()
            session.request("whoami")  # there is credit by then
            session.send(*[b"MSG last/words\0%d" % number for number in range(500, 1000)])
        assert [other.message()[1] for _ in range(1000)] == [b"%d" % number for number in range(1000)]


def test_a_daemon_that_restarts_ends_sessions_alone(tmp_path: Path) -> None:
    flags = ("--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()))
    with (
        DaemonProcess(tmp_path, *flags) as daemon,
        Door(tmp_path, daemon.socket) as door,
        MuxClient(door.socket) as client,
    ):
        bus, idle = client.bus(), client.bus(window=0)
        bus.request("whoami")
        daemon.kill()
        assert bus.ending() == idle.ending() == b"unavailable the daemon went away"
        refused = client.bus()
        assert refused.ending().startswith(f"unavailable no daemon at {daemon.socket}: ".encode())
        daemon.start()
        assert client.bus().request("whoami").endswith(f"/{os.getpid()}")
