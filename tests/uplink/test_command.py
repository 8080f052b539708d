"""The command line of an uplink: what it prints, and how it ends."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bccnd.uplink.command import main
from bccnd.uplink.journal import Journal
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE
from tests.plain_bccn import free_port

NEEDED = [
    "--config",
    "/dev/null",
    "--carrier",
    "fyrehose://127.0.0.1:1",
    "--name",
    "north",
    "--socket",
    "/no/such",
]

pytestmark = pytest.mark.usefixtures("own_signals")


def run(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main([*NEEDED, *argv])
    return code, *capfd.readouterr()


def test_check_prints_the_settings_and_opens_nothing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef\n")
    keys.chmod(0o600)
    flags = ["--journal", str(tmp_path / "journal"), "--key-file", str(keys), "--check"]
    code, out, err = run(capfd, *flags)
    assert (code, err) == (0, "")
    assert "these settings are sound. Keys of the link: 1." in out
    assert f'journal = "{tmp_path / "journal"}"  # from --journal' in out
    assert "0123456789abcdef" not in out
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]
    assert run(capfd, *flags, "--quiet") == (0, "", "")
    keys.chmod(0o644)
    for flag in "--key-file", "--backbone-key-file":
        code, _, err = run(capfd, flag, str(keys), "--check")
        assert code == 4
        assert "lets others at it" in err


def test_check_says_what_may_not_be_meant(capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capfd, "--check")
    assert "# nothing is carried (name channels in export and import)" in out
    _, out, _ = run(capfd, "--check", "--export", "a/>,!")
    assert '# no directed messages are carried: requests get no reply (name "!>" in export and import)' in out
    assert all(f"# no {what}: " in out for what in ("key", "journal"))
    assert "directed" not in run(capfd, "--check", "--export", "a/>,!relay01/>")[1]


def test_check_finds_what_keeps_nats_from_beginning(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nats = ("--carrier", "nats://127.0.0.1:1", "--check")
    code, _, err = run(capfd, *nats, "--nats-user", "north")
    assert (code, err.count("\n"), "nats_user and nats_password_file go together" in err) == (2, 1, True)
    code, _, err = run(capfd, "--check", "--carrier", "nats://north:secret@127.0.0.1:1")
    assert (code, err.count("\n"), "nats_password_file" in err) == (2, 1, True)
    assert ("secret" in err, 'got "nats://...@127.0.0.1:1"' in err) == (False, True)
    monkeypatch.setitem(sys.modules, "bccnd.uplink.nats", None)
    code, _, err = run(capfd, *nats)
    assert (code, err.count("\n"), "pip install 'bccnd[nats]'" in err) == (2, 1, True)


def test_a_wrong_setting_is_code_2(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capfd, "--name", "a/b")[0] == 2
    code, _, err = run(capfd, "--journal", str(tmp_path / "no" / "journal"))
    assert (code, err.count("\n")) == (2, 1)


def test_what_another_uses_is_code_5(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    held = Journal(tmp_path / "journal")
    held.open()
    code, _, err = run(capfd, "--journal", str(tmp_path / "journal"))
    held.close()
    assert code == 5
    assert "another uplink uses it" in err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port(socket.SOCK_STREAM)))
        taken.listen()
        code, _, err = run(capfd, "--metrics", f"127.0.0.1:{taken.getsockname()[1]}")
    assert code == 5
    assert "is taken by another program" in err


def test_without_the_right_to_bridge_it_is_code_4(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "bccnd.toml"
    file.write_text('[[rights]]\npublish = [">"]\nsubscribe = [">"]\n')
    flags = ("--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()), "--config", str(file))
    with DaemonProcess(tmp_path, *flags) as daemon:
        code, _, err = run(capfd, "--socket", str(daemon.socket), "--import", "a")
    assert code == 4
    assert "no right to bridge" in err
    assert "[[rights]] in the daemon's settings say who may" in err


def test_the_module_is_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bccnd.uplink", "--version"],
        capture_output=True, text=True, timeout=PATIENCE, check=False, env={**os.environ},
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()[0]) == (0, "bccnd-uplink")
