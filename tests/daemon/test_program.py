"""The program bccnd: what it refuses with one clear line, and how it starts."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.daemon_process import BCCND, LOOPBACK_BROADCAST, DaemonProcess, answers, mortal
from tests.needs import require
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import free_port

NOBODY = 65534


# The interpreter may lie where nobody else can read: rights are dropped once everything is imported.
DROP_RIGHTS = f"import os; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})"
BCCND_AS_NOBODY = f"import sys; from bccnd.daemon import main; {DROP_RIGHTS}; sys.exit(main())"
CONNECT_AS_NOBODY = (
    f"import socket, sys; {DROP_RIGHTS}; "
    "socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(sys.argv[1])"
)


def bccnd(
    *flags: object, environ: Mapping[str, str] = {}, command: Sequence[str] = BCCND
) -> subprocess.CompletedProcess[str]:
    """Runs a daemon that must leave by itself."""
    return subprocess.run(
        mortal([*command, *map(str, flags)]),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, **environ},
    )


def assert_one_line(result: subprocess.CompletedProcess[str], code: int, *words: object) -> None:
    """It left with `code` and one line on stderr that has all `words`."""
    assert result.returncode == code, result
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert str(word) in result.stderr


# --- what it refuses ---


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--port", "0"], ["port", "1"]),
        (["--port", "http"], ["port", "http"]),
        (["--broadcast", "everyone"], ["broadcast", "IPv4"]),
        (["--host", "a/b"], ["host"]),
        (["--socket-mode", "999"], ["socket"]),
        (["--socket", "/tmp/" + "x" * 200], ["socket", "107"]),
        (["--socket", "fd:999"], ["999"]),
        (["--key-file", "/nonexistent/keys"], ["/nonexistent/keys"]),
        (["--config", "/nonexistent/bccnd.toml"], ["/nonexistent/bccnd.toml"]),
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_a_wrong_setting_is_one_line_and_code_2(
    loopback: list[str], flags: list[str], words: list[str]
) -> None:
    assert_one_line(bccnd(*loopback, "--socket", "@bccnd-test-unused", *flags), 2, *words)


def test_a_missing_interface_is_waited_for(loopback: list[str], tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path, *loopback, "--interface", "nosuch0")
    with daemon, PacketClient(daemon.socket) as client:
        client.subscribe("a")
        client.publish("a", b"here")
        assert client.message() == ("a", b"here")
        assert client.status()["segments"] == []
    assert "interface missing, waiting for it" in daemon.log


def test_a_key_file_that_others_can_read_is_refused(loopback: list[str], tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret-of-the-segment\n")
    keys.chmod(0o640)
    result = bccnd(*loopback, "--socket", tmp_path / "bus.sock", "--key-file", keys)
    assert_one_line(result, 4, keys)
    assert "secret-of-the-segment" not in result.stderr


def test_a_second_daemon_leaves_the_first_ones_socket_alone(
    daemon: DaemonProcess, loopback: list[str]
) -> None:
    before = daemon.socket.stat()
    with PacketClient(daemon.socket) as subscriber, PacketClient(daemon.socket) as publisher:
        subscriber.subscribe("demo/>")
        assert_one_line(bccnd(*loopback, "--socket", daemon.socket), 5, daemon.socket)
        assert daemon.socket.stat().st_ino == before.st_ino
        publisher.publish("demo/x", b"still here")
        assert subscriber.message() == ("demo/x", b"still here")
    with PacketClient(daemon.socket) as newcomer:
        assert newcomer.drain() == []


def test_something_else_in_the_sockets_place_is_left_alone(loopback: list[str], tmp_path: Path) -> None:
    file = tmp_path / "bus.sock"
    file.write_text("precious")
    assert_one_line(bccnd(*loopback, "--socket", file), 5, file)
    assert file.read_text() == "precious"


def test_a_socket_of_another_program_is_left_alone(loopback: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bus.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()
        assert_one_line(bccnd(*loopback, "--socket", path), 5, path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(path))


def test_a_missing_folder_is_one_line(loopback: list[str], tmp_path: Path) -> None:
    path = tmp_path / "no" / "such" / "folder" / "bus.sock"
    result = bccnd(*loopback, "--socket", path)
    assert_one_line(result, result.returncode, path.parent)
    assert result.returncode in (2, 4, 5)


def test_a_port_that_is_not_shared_is_one_line(
    loopback: list[str], loopback_port: int, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as selfish:
        selfish.bind(("0.0.0.0", loopback_port))  # noqa: S104
        assert_one_line(bccnd(*loopback, "--socket", tmp_path / "bus.sock"), 5, loopback_port)
    assert not (tmp_path / "bus.sock").exists()


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike those of pytest."""
    require("root")
    folder = Path(tempfile.mkdtemp(prefix="bccnd-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_no_permission_is_one_line_and_code_4(loopback: list[str], public_folder: Path) -> None:
    command = [sys.executable, "-c", BCCND_AS_NOBODY]
    result = bccnd(*loopback, "--socket", public_folder / "bus.sock", command=command)
    assert_one_line(result, 4, public_folder)


@pytest.mark.parametrize(("mode", "allowed"), [("0660", False), ("0666", True)])
def test_the_sockets_mode_decides_who_may_connect(
    loopback: list[str], public_folder: Path, mode: str, allowed: bool
) -> None:
    with DaemonProcess(public_folder, *loopback, "--socket-mode", mode) as running:
        assert f"{running.socket.stat().st_mode & 0o7777:04o}" == mode
        stranger = subprocess.run(
            [sys.executable, "-c", CONNECT_AS_NOBODY, running.socket],
            capture_output=True,
            text=True,
            check=False,
        )
    assert (stranger.returncode == 0) is allowed, stranger.stderr
    assert allowed or "PermissionError" in stranger.stderr


# --- how it starts ---


def test_check_prints_the_effective_settings_and_starts_nothing(loopback: list[str], tmp_path: Path) -> None:
    result = bccnd(*loopback, "--socket", tmp_path / "bus.sock", "--check", environ={"BCCND_COPIES": "2"})
    assert result.returncode == 0, result.stderr
    assert "copies = 2" in result.stdout
    assert LOOPBACK_BROADCAST in result.stdout
    assert not (tmp_path / "bus.sock").exists()


def test_check_prints_a_configuration(loopback: list[str], tmp_path: Path) -> None:
    first = bccnd(*loopback, "--socket", tmp_path / "bus.sock", "--check")
    file = tmp_path / "bccnd.toml"
    file.write_text(first.stdout)
    again = bccnd("--config", file, "--check")
    assert again.returncode == 0, again.stderr
    assert settings_in(again.stdout) == settings_in(first.stdout)


def settings_in(toml: str) -> list[str]:
    return [line.partition("#")[0].strip() for line in toml.splitlines()]


def test_a_stale_socket_after_kill_9_is_replaced(daemon: DaemonProcess) -> None:
    daemon.kill()
    assert daemon.socket.exists()
    daemon.start()
    with PacketClient(daemon.socket) as client:
        assert client.drain() == []


def test_of_two_daemons_started_at_once_one_serves(
    loopback: list[str], tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    path = tmp_path / "bus.sock"
    racers = [start(*loopback, "--socket", path) for _ in range(4)]
    wait_until(lambda: [p.poll() for p in racers].count(None) == 1, "three of four to give up")
    assert sorted(p.returncode for p in racers if p.poll() is not None) == [5, 5, 5]
    (serving,) = (p for p in racers if p.poll() is None)
    wait_until(lambda: answers(path), "an answer")  # the file is there before anybody listens
    with PacketClient(path) as client:
        assert client.status()["pid"] == serving.pid


def test_an_abstract_name(loopback: list[str], start: Callable[..., subprocess.Popen[str]]) -> None:
    name = f"@bccnd-test-{os.getpid()}-{free_port()}"
    process = start(*loopback, "--socket", name)
    wait_until(lambda: process.poll() is not None or answers(name), "an answer")
    assert answers(name)
    assert_one_line(bccnd(*loopback, "--socket", name), 5, name)


def test_a_free_abstract_name_is_printed(
    loopback: list[str], start: Callable[..., subprocess.Popen[str]]
) -> None:
    processes = [start(*loopback, "--socket", "@") for _ in range(2)]
    names = [process.stdout.readline().rstrip("\n") for process in processes if process.stdout]
    assert len(set(names)) == 2
    for name, process in zip(names, processes, strict=True):
        assert name.startswith("@")
        with PacketClient(name) as client:
            assert client.status()["pid"] == process.pid
        process.terminate()
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("listening", [False, True], ids=["bound", "listening"])
def test_an_inherited_descriptor(
    loopback: list[str], tmp_path: Path, start: Callable[..., subprocess.Popen[str]], listening: bool
) -> None:
    path = tmp_path / "handed-down.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as handed:
        handed.bind(str(path))
        if listening:
            handed.listen()
        process = start(*loopback, "--socket", f"fd:{handed.fileno()}", pass_fds=[handed.fileno()])
        wait_until(lambda: process.poll() is not None or answers(path), "an answer")
        assert answers(path)
        process.terminate()
        assert process.wait(PATIENCE) == 0
        assert path.exists()  # whoever bound it removes it


def test_a_second_daemon_leaves_a_handed_down_socket_alone(
    loopback: list[str], tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    path = tmp_path / "bus.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as handed:
        handed.bind(str(path))
        handed.listen()
        process = start(*loopback, "--socket", f"fd:{handed.fileno()}", pass_fds=[handed.fileno()])
        wait_until(lambda: process.poll() is not None or answers(path), "an answer")
        assert_one_line(bccnd(*loopback, "--socket", path), 5, path)
        with PacketClient(path) as client:
            assert client.status()["pid"] == process.pid


def test_growing_tables_are_not_collected_as_a_whole():
    program = (
        "import gc; from bccnd.daemon.program import collect_seldom; collect_seldom(); full = []\n"
        "gc.callbacks.append(lambda phase, about: about['generation'] == 2 and full.append(phase))\n"
        "kept = [[number] for number in range(500_000)]; print(len(full))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "0\n"
