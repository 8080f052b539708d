"""The door on bad days: no descriptors, a listener shut down, a socket file that went, many who arrive at once."""

import asyncio
import resource
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from bccnd.daemon import door
from tests.daemon.in_process import InProcess, stopped
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess, die_with_parent
from tests.packet_client import PATIENCE, PacketClient, wait_until


def test_without_descriptors_new_clients_wait(daemon: DaemonProcess) -> None:
    """Not even the spare descriptor helps below a limit that is lower than what is open."""
    pid = daemon.process.pid
    with PacketClient(daemon.socket) as old:
        old.drain()
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
        with PacketClient(daemon.socket) as new:
            assert_quiet_and_serving(daemon.log_file, old, "client refused")
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            assert new.drain() == []
        with PacketClient(daemon.socket) as later:
            assert later.drain() == []


def test_a_listener_shut_down_by_its_owner_harms_no_client(tmp_path: Path, loopback_port: int) -> None:
    """A descriptor that was handed down is still its owner's too."""
    path, log = tmp_path / "handed-down.sock", tmp_path / "log"
    with ExitStack() as opened:
        handed = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        handed.bind(str(path))
        handed.listen()
        command = [
            sys.executable,
            "-m",
            "bccnd.daemon",
            "--socket",
            f"fd:{handed.fileno()}",
            "--host",
            "here",
        ]
        command += ["--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
        process = opened.enter_context(
            subprocess.Popen(
                command,
                pass_fds=[handed.fileno()],
                stderr=opened.enter_context(log.open("wb")),
                preexec_fn=die_with_parent,
            )
        )
        opened.callback(process.kill)
        with PacketClient(path) as client:
            client.drain()
            handed.shutdown(socket.SHUT_RDWR)
            assert_quiet_and_serving(log, client, "listener shut down")
        process.terminate()
        assert process.wait(PATIENCE) == 0


def assert_quiet_and_serving(log: Path, client: PacketClient, line: str) -> None:
    """The daemon has logged that it accepts nobody, does not do so at every turn of its loop, and still answers."""
    wait_until(lambda: line in log.read_text(), line)
    for _ in range(200):
        client.drain()
    assert log.read_text().count(line) < 20
    assert "Traceback" not in log.read_text()


# --- the file of the socket ---


@pytest.mark.parametrize("lock_too", [False, True], ids=["the socket", "its lock too"])
def test_a_deleted_socket_file_is_made_again(daemon: DaemonProcess, lock_too: bool) -> None:
    mode = daemon.socket.stat().st_mode
    with PacketClient(daemon.socket) as old:
        old.subscribe("a")
        with stopped(daemon):  # it finds both gone, or the socket alone
            daemon.socket.unlink()
            if lock_too:
                Path(f"{daemon.socket}.lock").unlink()
        wait_until(daemon.answers, "the new socket")
        with PacketClient(daemon.socket) as new:
            new.publish("a", b"x")
            assert old.message() == ("a", b"x")
            assert new.status()["socket_gone"] is False
    assert daemon.socket.stat().st_mode == mode
    assert len(daemon.logged("socket file made again")) == 1
    assert daemon.terminate() == 0
    assert not daemon.socket.exists()


def test_who_waits_at_a_deleted_socket_is_served(daemon: DaemonProcess) -> None:
    with ExitStack() as clients:
        with stopped(daemon):
            waiting = [clients.enter_context(PacketClient(daemon.socket)) for _ in range(100)]
            daemon.socket.unlink()
        wait_until(daemon.socket.exists, "the file")
        for client in waiting:
            assert client.drain() == []


def test_the_socket_of_another_daemon_is_left_alone(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket) as client, ExitStack() as ending:
        other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ending.enter_context(other)
        with stopped(daemon):  # or it might make its own again before the other is there
            for path in (daemon.socket, Path(f"{daemon.socket}.lock")):
                path.unlink()
            other.bind(str(daemon.socket))
            other.listen()
        theirs = daemon.socket.stat().st_ino
        wait_until(lambda: client.status()["socket_gone"], "the daemon to notice")
        (line,) = daemon.logged("socket file gone: nobody can connect")
        assert "another program serves this socket" in str(line["reason"])
        assert client.drain() == []
        assert daemon.terminate() == 0
        assert daemon.socket.stat().st_ino == theirs


# --- programs that leave at once ---


def test_a_program_that_left_is_refused_with_that_reason(tmp_path: Path, loopback: list[str]) -> None:
    settings = tmp_path / "bccnd.toml"
    settings.write_text('[[rights]]\nprogram = "python*"\npublish = [">"]\n[[rights]]\nuid = 1\n')
    daemon = DaemonProcess(tmp_path, *loopback, "--config", str(settings))
    hasty = "import socket, sys; c = socket.socket(1, 5); c.connect(sys.argv[1]); c.send(b'MSG a\\0x')"
    with daemon:
        with stopped(daemon):
            subprocess.run([sys.executable, "-c", hasty, str(daemon.socket)], check=True)
        wait_until(lambda: daemon.logged("refused"), "the refusal")
    (line,) = daemon.logged("refused")
    assert line["program"] == ""
    assert "the program left before it could be looked at" in str(line["reason"])


# --- many at once ---


async def test_who_arrives_together_is_let_in_a_turn_at_a_time(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is announced to whoever watches."""
    monkeypatch.setattr(door, "TURN_NS", 0)
    sessions = in_process.daemon.relay.sessions
    for _ in range(10):
        in_process.client_at_the_door()
    while len(sessions) < 10:
        before = len(sessions)
        await asyncio.sleep(0)
        assert len(sessions) - before <= 1


async def test_who_was_accepted_is_let_in_before_the_daemon_ends(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = in_process.daemon

    class Clock:
        """On which to let a client in takes more than a turn, and nothing else takes time."""

        def time_ns(self) -> int:
            return 1_800_000_000_000_000_000 + len(daemon.relay.sessions) * 2 * door.TURN_NS

    monkeypatch.setattr(door, "time", Clock())
    listener = await in_process.client()
    await asyncio.to_thread(listener.subscribe, "last/>")
    for number in range(5):
        in_process.client_at_the_door().publish("last/x", b"%d" % number)
    while not daemon._bus.door.is_busy:
        await asyncio.sleep(0)
    assert len(daemon.relay.sessions) == 2
    daemon._bus.read_the_rest(time.monotonic() + PATIENCE)
    assert sorted(listener.message()[1] for _ in range(5)) == [b"%d" % number for number in range(5)]
