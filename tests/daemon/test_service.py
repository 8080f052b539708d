"""The daemon while it serves and when it leaves."""

import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.daemon_process import DaemonProcess, answers
from tests.packet_client import PATIENCE, PacketClient, wait_until


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_daemon_in_order(
    loopback: list[str], tmp_path: Path, start: Callable[..., subprocess.Popen[str]], sign: signal.Signals
) -> None:
    path = tmp_path / "bus.sock"
    process = start(*loopback, "--socket", path)
    wait_until(lambda: answers(path), "an answer")
    with PacketClient(path) as client:
        client.subscribe("demo/>")
        process.send_signal(sign)
        assert process.wait(PATIENCE) == 0
        assert client.receive() == b"CMSG closing\0shutdown"
        assert client.receive() == b""
    assert not path.exists()
    assert process.stderr
    assert "Traceback" not in process.stderr.read()


def test_messages_before_a_signal_are_delivered(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket) as subscriber, PacketClient(daemon.socket) as publisher:
        subscriber.subscribe("demo/>")
        for number in range(100):
            publisher.publish("demo/x", b"%d" % number)
        publisher.drain()
        assert daemon.terminate() == 0
        assert [subscriber.message() for _ in range(100)] == [("demo/x", b"%d" % n) for n in range(100)]


def test_the_daemon_removes_only_its_own_socket(daemon: DaemonProcess) -> None:
    daemon.socket.unlink()
    daemon.socket.write_text("not a socket, not the daemon's")
    assert daemon.terminate() == 0
    assert daemon.socket.read_text() == "not a socket, not the daemon's"


def first_client(path: Path) -> PacketClient:
    """Connected as soon as that is possible: the file of the socket is there a little before the daemon listens."""
    found: list[PacketClient] = []

    def connected() -> bool:
        with suppress(FileNotFoundError, ConnectionRefusedError):
            found.append(PacketClient(path))
        return bool(found)

    wait_until(connected, "the daemon")
    return found[0]


def test_exit_when_idle_leaves_with_its_last_client(
    loopback: list[str], tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    path = tmp_path / "bus.sock"
    process = start(*loopback, "--socket", path, "--exit-when-idle")
    with first_client(path) as first:
        with PacketClient(path) as second:
            assert second.drain() == []
        assert first.drain() == []
        assert process.poll() is None
    assert process.wait(PATIENCE) == 0
    assert not path.exists()
