"""The door as its peers see it: a real one, before a real daemon."""

import json
import os
import shutil
import signal
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame
from websockets.http11 import Response
from websockets.protocol import Event
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from tests.clients.door import Door
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.mux.certificates import Certificates
from tests.mux.mux_client import MuxClient
from tests.packet_client import PATIENCE, PacketClient, wait_until
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


@pytest.mark.needs("openssl")
def test_new_certificates_come_into_force_and_drop_nobody(
    shared_daemon: DaemonProcess, tmp_path: Path
) -> None:
    old, new = (
        Certificates(made, "door", "reports", "stranger") for made in (tmp_path / "old", tmp_path / "new")
    )
    port = free_port()
    certificate, key, authorities = (tmp_path / name for name in ("door.pem", "door.key", "ca.pem"))

    def install(made: Certificates) -> None:
        for source, target in zip(
            (*made.files("door"), made.ca), (certificate, key, authorities), strict=True
        ):
            shutil.copy(source, target)

    def enter(made: Certificates, name: str) -> MuxClient:
        connected = socket.create_connection(("127.0.0.1", port))
        return MuxClient("", made.client(name).wrap_socket(connected, server_hostname="127.0.0.1"))

    install(old)
    files = ["--certificate", str(certificate), "--key", str(key), "--authorities", str(authorities)]
    door = Door(tmp_path, shared_daemon.socket, "--listen", f"tls://127.0.0.1:{port}", *files)
    door.config.write_text('[[mux.peers]]\nname = "reports"\nuser = 1000\ngroups = [1000, 27]\n')
    with door, enter(old, "reports") as before:
        bus = before.bus()
        assert bus.request("!/cred/whoami") == "!/cred/1000/1000/0"
        with enter(old, "stranger") as stranger:
            assert stranger.farewell() == b"refused the certificate of stranger is no user's here"
        install(new)
        door.process.send_signal(signal.SIGHUP)
        wait_until(lambda: door.logged("reloaded"), "a reload")
        assert bus.request("whoami").startswith("here/reports/n")
        with enter(new, "reports") as after:
            assert after.bus().request("whoami").startswith("here/reports/n")
        certificate.write_text("nothing")
        door.process.send_signal(signal.SIGHUP)
        wait_until(lambda: door.logged("not reloaded, the old settings stay"), "a refusal")
        with enter(new, "reports") as after:
            assert after.bus().drain() == bus.drain() == []


def test_the_end_of_the_door_is_told(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    with Door(tmp_path, shared_daemon.socket) as door, MuxClient(door.socket) as client:
        bus = client.bus()
        bus.request("whoami")
        door.process.send_signal(signal.SIGTERM)
        assert bus.ending() == client.farewell() == b"unavailable the door stops"
        client.endpoint.close(client.endpoint.top)
        client.endpoint.cancel(client.endpoint.top)
        client.flush()
        assert door.process.wait(PATIENCE) == 0


def test_status_who_and_version_are_answered(client: MuxClient) -> None:
    assert json.loads(client.ask(b"status"))["host"] == "here"
    assert "sources" in json.loads(client.ask(b"who"))
    assert client.ask(b"version").startswith(b"bccnd-mux ")


def test_a_stream_has_a_pattern_of_its_own(client: MuxClient, shared_daemon: DaemonProcess) -> None:
    stream = client.subscription("own/>")
    refused = client.subscription("a*b")
    assert client.ending(refused).startswith(b"bad-pattern ")
    bus = client.bus()
    wait_until(lambda: bus.request("listeners", "own/x") == "1", "the subscription")
    with PacketClient(shared_daemon.socket) as other:
        other.publish("other/x", b"1")
        other.publish("own/x", b"2")
    assert client.message(stream) == b"MSG own/x\0" + b"2"


def test_metrics_are_served(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    where = f"127.0.0.1:{free_port()}"
    door = Door(tmp_path, shared_daemon.socket, "--metrics", where)
    with door, MuxClient(door.socket) as client:
        client.bus().request("whoami")
        with urlopen(f"http://{where}/metrics", timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
    assert "bccnd_mux_open_connections 1.0" in lines
    assert "bccnd_mux_daemon_links 1.0" in lines


class Framed:
    """What a client needs of a socket, by WebSocket. One thread: two may not use one socket of ``ssl`` at a time."""

    def __init__(self, made: Certificates, port: int, token: str) -> None:
        plain = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket = made.client().wrap_socket(plain, server_hostname="127.0.0.1")
        offered = [Subprotocol("bpmux"), Subprotocol(f"token.{token}")]
        self._web = ClientProtocol(parse_uri(f"wss://127.0.0.1:{port}/bus"), subprotocols=offered)
        self._web.send_request(self._web.connect())
        assert [type(event) for event in self._events()] == [Response]
        if self._web.handshake_exc:
            self._socket.close()
            raise self._web.handshake_exc

    def _say(self) -> None:
        self._socket.sendall(b"".join(self._web.data_to_send()))

    def _events(self) -> list[Event]:
        self._say()
        while not (events := self._web.events_received()):
            data = self._socket.recv(1 << 16)
            assert data, "the door has gone"
            self._web.receive_data(data)
        return events

    def settimeout(self, _seconds: float) -> None: ...

    def sendall(self, data: bytes) -> None:
        self._web.send_binary(data)
        self._say()

    def recv(self, _most: int) -> bytes:
        return b"".join(bytes(each.data) for each in self._events() if isinstance(each, Frame))

    def close(self) -> None:
        self._web.send_close()
        self._say()
        self._socket.close()


@pytest.mark.needs("openssl")
def test_who_shows_a_token_comes_in_by_websocket(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    made = Certificates(tmp_path / "certificates", "door")
    certificate, key = made.files("door")
    port = free_port()
    tokens = tmp_path / "tokens"
    tokens.write_text("sixteen-letters-1\n")
    tokens.chmod(0o600)
    files = ["--certificate", str(certificate), "--key", str(key), "--web", f"127.0.0.1:{port}"]
    door = Door(tmp_path, shared_daemon.socket, *files)
    door.config.write_text(
        f'[[mux.tokens]]\nname = "board"\nfile = "{tokens}"\nuser = 1000\ngroups = [1000]\n'
    )
    with door:
        with MuxClient("", Framed(made, port, "sixteen-letters-1")) as client:  # type: ignore[arg-type]
            bus = client.bus()
            assert bus.request("!/cred/whoami") == "!/cred/1000/1000/0"
            bus.send(b"SUB local/web", b"MSG local/web\0" + EVERY_BYTE * 200)
            assert bus.receive() == b"MSG local/web\0" + EVERY_BYTE * 200
        with urlopen(f"https://127.0.0.1:{port}/", timeout=PATIENCE, context=made.client()) as answer:
            assert answer.read().startswith(b"<!doctype html>")
        with pytest.raises(InvalidStatus) as caught:
            Framed(made, port, "sixteen-letters-2")
        assert caught.value.response.status_code == 401
        tokens.write_text("sixteen-letters-2\n")
        door.process.send_signal(signal.SIGHUP)
        wait_until(lambda: door.logged("reloaded"), "a reload")
        with MuxClient("", Framed(made, port, "sixteen-letters-2")) as client:  # type: ignore[arg-type]
            assert client.bus().drain() == []
