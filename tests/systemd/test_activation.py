"""Socket activation, by systemd's own tool."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon_process import LOOPBACK_BROADCAST, die_with_parent
from tests.packet_client import PATIENCE, PacketClient, wait_until

ACTIVATE = "systemd-socket-activate"
pytestmark = pytest.mark.needs(ACTIVATE)


class Activated:
    """What systemd-socket-activate starts when somebody connects; it becomes the daemon itself."""

    def __init__(self, folder: Path, port: int, kind: tuple[str, ...], flags: tuple[str, ...]) -> None:
        self.socket = folder / "bus.sock"
        self._log = folder / "log"
        command = [
            sys.executable,
            "-m",
            "bccnd.daemon",
            "--broadcast",
            LOOPBACK_BROADCAST,
            "--port",
            str(port),
        ]
        passed = [f"--setenv={name}={os.environ[name]}" for name in ("PYTHONPATH",) if name in os.environ]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [ACTIVATE, *kind, *passed, "-l", str(self.socket), *command, *flags],
                stdout=log, stderr=log, preexec_fn=die_with_parent,
            )  # fmt: skip
        wait_until(lambda: "Listening on" in self.log, "the socket")

    @property
    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def activate(tmp_path: Path, loopback_port: int) -> Iterator[Callable[..., Activated]]:
    with ExitStack() as ending:

        def start(*flags: str, kind: tuple[str, ...] = ("--seqpacket",)) -> Activated:
            activated = Activated(tmp_path, loopback_port, kind, flags)
            ending.callback(activated.process.wait)
            ending.callback(activated.process.kill)
            return activated

        yield start


@pytest.mark.parametrize("flags", [(), ("--socket", "/nonexistent/elsewhere.sock"), ("--socket", "fd:3")])
def test_a_passed_socket_is_served_and_left_alone(
    activate: Callable[..., Activated], flags: tuple[str, ...]
) -> None:
    daemon = activate(*flags)
    inode = daemon.socket.stat().st_ino
    with PacketClient(daemon.socket) as client, PacketClient(daemon.socket) as other:
        other.subscribe("a")
        client.publish("a", b"x")
        assert other.message() == ("a", b"x")
    environ = Path(f"/proc/{daemon.process.pid}/cmdline").read_bytes()
    assert b"bccnd.daemon" in environ  # the daemon itself, not what started it
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(PATIENCE) == 0
    assert daemon.socket.stat().st_ino == inode
    assert ("the socket passed takes the place of the setting" in daemon.log) == ("fd:3" not in flags)


def test_an_activated_daemon_exits_when_idle(activate: Callable[..., Activated]) -> None:
    daemon = activate("--exit-when-idle")
    with PacketClient(daemon.socket) as client:
        assert client.drain() == []
    assert daemon.process.wait(PATIENCE) == 0


def test_a_successor_serves_the_passed_socket(activate: Callable[..., Activated]) -> None:
    daemon = activate()
    with PacketClient(daemon.socket) as client:
        client.subscribe("a")
        first = client.status()["pid"]
        daemon.process.send_signal(signal.SIGUSR2)
        assert daemon.process.wait(PATIENCE) == 0
        second = client.status()["pid"]
        try:
            assert second != first
            inherited = Path(f"/proc/{second}/environ").read_bytes()
            assert b"LISTEN_" not in inherited
            with PacketClient(daemon.socket) as other:
                other.publish("a", b"x")
                assert client.message() == ("a", b"x")
            assert client.status()["socket"] == str(daemon.socket)
        finally:
            os.kill(second, signal.SIGTERM)
        wait_until(
            lambda: not Path(f"/proc/{second}/fd").exists() or not os.listdir(f"/proc/{second}/fd"), "its end"
        )
    assert daemon.socket.exists()
    assert "not changed while the socket is in use" not in daemon.log


@pytest.mark.parametrize(("kind", "named"), [((), "SOCK_STREAM"), (("--datagram",), "SOCK_DGRAM")])
def test_a_passed_socket_of_the_wrong_type_is_refused(
    activate: Callable[..., Activated], kind: tuple[str, ...], named: str
) -> None:
    daemon = activate(kind=kind)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM if kind else socket.SOCK_STREAM) as client:
        client.connect(str(daemon.socket))
        client.send(b"x")
        assert daemon.process.wait(PATIENCE) == 2
    (line,) = [line for line in daemon.log.splitlines() if line.startswith("bccnd: ")]
    assert line == (
        f"bccnd: socket activation: a Unix SOCK_SEQPACKET socket is needed, not AF_UNIX {named}; "
        "in the unit: ListenSequentialPacket="
    )


def test_the_sequence_file_stands_beside_the_passed_socket(
    activate: Callable[..., Activated], tmp_path: Path
) -> None:
    setting = tmp_path / "elsewhere.sock"
    daemon = activate("--socket", str(setting))
    with PacketClient(daemon.socket) as client:
        client.drain()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(PATIENCE) == 0
    assert int(Path(f"{daemon.socket}.seq").read_text()) > 10**15
    assert not Path(f"{setting}.seq").exists()


def test_a_passed_socket_that_is_deleted_is_reported(activate: Callable[..., Activated]) -> None:
    daemon = activate()
    with PacketClient(daemon.socket) as client:
        assert client.status()["socket_gone"] is False
        daemon.socket.unlink()
        wait_until(lambda: client.status()["socket_gone"], "the daemon to notice")
        wait_until(lambda: "socket file gone" in daemon.log, "the line")
    assert "systemctl restart bccnd.socket" in daemon.log
    assert not daemon.socket.exists()
