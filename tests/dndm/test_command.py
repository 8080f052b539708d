"""The command line of a gateway: what it prints, and how it ends."""

import socket
import subprocess
import sys

import pytest

from bccnd.dndm.command import main
from tests.packet_client import PATIENCE

pytestmark = pytest.mark.usefixtures("own_signals")


def run(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["--config", "/dev/null", "--socket", "/no/such", *argv])
    return code, *capfd.readouterr()


def test_check_prints_the_settings_and_opens_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "--check", "--dial", "tcp://robot:1", "--listen", "tcp://0.0.0.0:1")
    assert (code, err) == (0, "")
    assert "these settings are sound" in out
    assert 'dial = ["tcp://robot:1"]  # from --dial' in out
    assert "# whoever reaches tcp://0.0.0.0:1 is trusted (name networks in accept, or set strict)" in out
    assert run(capfd, "--check", "--quiet") == (0, "", "")


@pytest.mark.parametrize(
    ("module", "library"), [("bccnd.wire.dndm.messages", "protobuf"), ("serial", "pyserial")]
)
def test_what_is_not_installed_is_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, module: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    code, _, err = run(capfd, "--dial", "serial:///dev/ttyS0", "--check")
    assert (code, err.count("\n")) == (2, 1)
    assert f"{library} cannot be loaded" in err
    assert "pip install 'bccnd[dndm]'" in err


def test_a_wrong_setting_is_code_2(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "--bus", "a/b")[0] == 2
    code, _, err = run(capfd, "--listen", "tcp://192.0.2.1:1")
    assert (code, err.count("\n"), "listen tcp://192.0.2.1:1" in err) == (2, 1, True)


def test_what_another_uses_is_code_5(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = run(capfd, "--listen", f"tcp://127.0.0.1:{taken.getsockname()[1]}")
    assert code == 5
    assert "is taken by another program" in err


def test_the_module_is_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bccnd.dndm", "--version"],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()[0]) == (0, "bccnd-dndm")
