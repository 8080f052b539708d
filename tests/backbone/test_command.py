"""The command line of the backbone: what it prints, and how it ends."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bccnd.backbone.command import main
from bccnd.backbone.state_file import StateFile
from tests.packet_client import PATIENCE
from tests.plain_bccn import free_port

pytestmark = pytest.mark.usefixtures("own_signals")


def run(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["--config", "/dev/null", *argv])
    return code, *capfd.readouterr()


def test_check_prints_the_settings_and_opens_nothing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef\n")
    keys.chmod(0o600)
    state = tmp_path / "state"
    flags = ["--listen", "127.0.0.1:1", "--state", str(state), "--key-file", str(keys), "--check"]
    code, out, err = run(capfd, *flags)
    assert (code, err) == (0, "")
    assert "these settings are sound. Keys: 1." in out
    assert f'state = "{state}"  # from --state' in out
    assert "0123456789abcdef" not in out
    assert not state.exists()
    assert run(capfd, *flags, "--quiet") == (0, "", "")
    keys.chmod(0o644)
    code, _, err = run(capfd, *flags)
    assert code == 4
    assert "lets others at it" in err


def test_a_damaged_state_file_ends_it_in_one_line(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"\0\0")
    code, _, err = run(capfd, "--listen", "127.0.0.1:0", "--state", str(tmp_path / "state"))
    assert code == 2
    assert err.count("\n") == 1
    assert "is damaged" in err


def test_what_another_uses_is_code_5(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    held = StateFile(tmp_path / "state")
    code, _, err = run(capfd, "--listen", "127.0.0.1:0", "--state", str(tmp_path / "state"))
    held.close()
    assert code == 5
    assert "another backbone uses it" in err
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", free_port()))
        code, _, err = run(capfd, "--listen", "{}:{}".format(*taken.getsockname()))
    assert code == 5
    assert "is taken by another program" in err


def test_a_wrong_setting_is_code_2(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "--listen", "here")[0] == 2


def test_the_module_is_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bccnd.backbone", "--version"],
        capture_output=True, text=True, timeout=PATIENCE, check=False, env={**os.environ},
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()[0]) == (0, "bccnd-backbone")
