"""The command line of the door: what it prints, and how it ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bccnd.mux.command import main
from bccnd.process import local_stream
from tests.packet_client import PATIENCE

pytestmark = pytest.mark.usefixtures("own_signals")


def run(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["--config", "/dev/null", *argv])
    return code, *capfd.readouterr()


def test_check_prints_the_settings_and_opens_nothing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    flags = ["--listen", f"unix:{tmp_path}/mux.sock", "--check"]
    code, out, err = run(capfd, *flags)
    assert (code, err) == (0, "")
    assert "these settings are sound" in out
    assert f'listen = ["unix:{tmp_path}/mux.sock"]  # from --listen' in out
    assert not list(tmp_path.iterdir())
    assert run(capfd, *flags, "--quiet") == (0, "", "")


def test_a_socket_that_another_serves_is_code_5(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "mux.sock")
    taken = local_stream.listen(path, 0o600)
    code, _, err = run(capfd, "--listen", f"unix:{path}")
    local_stream.close(taken)
    assert code == 5
    assert "is taken by another program" in err


def test_a_wrong_setting_is_code_2(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "--listen", "here")[0] == 2


def test_the_module_is_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bccnd.mux", "--version"],
        capture_output=True, text=True, timeout=PATIENCE, check=False, env={**os.environ},
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()[0]) == (0, "bccnd-mux")
