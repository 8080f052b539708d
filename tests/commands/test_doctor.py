"""``bccn doctor`` end to end."""

import json
import socket
import subprocess
from pathlib import Path

import pytest

from bccnd.commands.doctor import lines
from bccnd.doctor.finding import Finding, Level
from tests.command_line import PATIENT, bccn
from tests.commands.test_namespaces import ELSEWHERE
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.plain_bccn import plain_socket


def doctor(daemon: DaemonProcess, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """With a daemon that answers, however slowly."""
    return bccn(daemon, "doctor", *arguments, command=PATIENT)


def settings_of(folder: Path, port: int, *more: str) -> Path:
    file = folder / "bccnd.toml"
    file.write_text("\n".join([f'broadcast = "{LOOPBACK_BROADCAST}"', f"port = {port}", *more, ""]))
    return file


def key_file(folder: Path, mode: int) -> str:
    keys = folder / "keys"
    keys.write_text("0123456789abcdef0123456789abcdef\n")
    keys.chmod(mode)
    return f'key_file = "{keys}"'


def problems(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.stderr == b""
    return [line for line in done.stdout.decode().splitlines() if line.startswith("problem")]


def test_a_healthy_daemon(tmp_path: Path, loopback_port: int) -> None:
    settings = settings_of(tmp_path, loopback_port, key_file(tmp_path, 0o600))
    with DaemonProcess(tmp_path, "--config", str(settings)) as daemon:
        done = doctor(daemon, "--config", str(settings))
    text = done.stdout.decode()
    assert (done.returncode, problems(done)) == (0, [])
    assert f"{settings}: sound" in " ".join(text.split())
    assert "to the daemon and back" in text
    assert "a datagram from this host came back" in text
    assert max(map(len, text.splitlines())) <= 80 or len(str(tmp_path)) > 50


def test_no_daemon(tmp_path: Path) -> None:
    done = bccn(tmp_path / "bus.sock", "doctor")
    assert done.returncode == 1
    assert "not there" in done.stdout.decode()
    assert "systemctl start bccnd" in done.stdout.decode()
    assert done.stdout.decode().splitlines()[-1].startswith("1 problem")


def test_a_stale_socket(tmp_path: Path) -> None:
    path = tmp_path / "bus.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(path))
    done = bccn(path, "doctor")
    assert done.returncode == 1
    assert [line.split()[1] for line in problems(done)] == ["socket:"]
    assert "nobody listens" in " ".join(done.stdout.decode().split())


def test_a_socket_whose_file_was_deleted(tmp_path: Path) -> None:
    path = tmp_path / "bus.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(path))
        server.listen(1)
        path.unlink()
        done = bccn(path, "doctor")
        text = " ".join(done.stdout.decode().split())
        assert done.returncode == 1
        assert f"its file was deleted, and {Path('/proc/self/comm').read_text().strip()} (pid" in text
        assert "systemctl restart bccnd.socket bccnd" in text
        path.write_text("of somebody else")
        assert "its file was deleted" in " ".join(bccn(path, "doctor").stdout.decode().split())


@pytest.mark.needs("root", "unshare", "ip")
def test_a_daemon_in_another_network_namespace(tmp_path: Path, loopback_port: int) -> None:
    settings = settings_of(tmp_path, loopback_port, 'interfaces = ["lo"]')
    flags = ("--config", str(settings))
    with DaemonProcess(tmp_path, *flags, prefix=ELSEWHERE) as daemon, plain_socket(loopback_port):
        done = doctor(daemon, "--config", str(settings))
    text = " ".join(done.stdout.decode().split())
    assert "the daemon is in another network namespace" in text
    assert f"nsenter --net=/proc/{daemon.process.pid}/ns/net bccn --socket {daemon.socket} doctor" in text
    assert "port:" not in text  # that is ours, and the daemon does not use it
    assert "in its own network namespace" in text


def test_rules_by_program_refuse_who_leaves_at_once(tmp_path: Path, loopback_port: int) -> None:
    rules = ["[[rights]]", 'publish = ["local/>"]', 'subscribe = [">"]', "observe = true",
             "[[rights]]", 'program = "door"', 'publish = ["door/>"]']  # fmt: skip
    settings = settings_of(tmp_path, loopback_port, *rules)
    with DaemonProcess(tmp_path, "--config", str(settings)) as daemon:
        before = doctor(daemon, "--config", str(settings)).stdout.decode()
        bccn(daemon, "pub", "door/front", "open")
        after = doctor(daemon, "--config", str(settings)).stdout.decode()
    assert "granted by program: door; one that leaves at once is unknown" in " ".join(before.split())
    assert "refusal" in " ".join(after.split())


def test_a_key_file_that_lets_others_at_it(tmp_path: Path, loopback_port: int) -> None:
    settings = settings_of(tmp_path, loopback_port, key_file(tmp_path, 0o600))
    with DaemonProcess(tmp_path, "--config", str(settings)) as daemon:
        (tmp_path / "keys").chmod(0o644)
        done = doctor(daemon, "--config", str(settings), "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["problems"]) == (1, 1)
    [problem] = [each for each in found["findings"] if each["level"] == "problem"]
    assert problem["what"] == "key file"
    assert problem["remedy"] == f"chmod 600 {tmp_path}/keys"


def test_a_wrong_setting(daemon: DaemonProcess, tmp_path: Path) -> None:
    done = doctor(daemon, "--config", str(settings_of(tmp_path, 5400, "copies = 9")))
    assert done.returncode == 1
    assert "copies: must be at most 4" in " ".join(done.stdout.decode().split())


def test_long_findings_are_wrapped_in_their_column() -> None:
    found = [
        Finding(Level.OK, "a", "b"),
        Finding(Level.WARNING, "long name", "one two three four " * 4, "do \x1b it"),
    ]
    assert lines(found, 50) == [
        "ok       a:         b",
        "warning  long name: one two three four one two",
        "                    three four one two three four",
        "                    one two three four",
        "                 -> do \\e it",
    ]


@pytest.mark.parametrize("words", [["--config"], ["more"]])
def test_wrong_usage_is_code_2(daemon: DaemonProcess, words: list[str]) -> None:
    assert bccn(daemon, "doctor", *words).returncode == 2
