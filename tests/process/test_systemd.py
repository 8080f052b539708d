"""sd_notify: what is told, to whom, and that nobody who listens badly can harm us."""

import socket
from pathlib import Path

import pytest

from bccnd.process.systemd import notify


@pytest.fixture
def listening() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def test_without_systemd_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")


def test_lines_arrive_as_one_datagram(
    listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening:
        listening.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        assert notify("READY=1", "MAINPID=4711")
        assert listening.recv(100) == b"READY=1\nMAINPID=4711"


def test_an_abstract_socket_whose_name_has_more_than_one_at_sign(
    listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening:
        listening.bind(f"\0{tmp_path}@notify")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{tmp_path}@notify")
        assert notify("STOPPING=1")
        assert listening.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize(
    "address", ["", "relative/path", "vsock:2:1234", "/nonexistent/notify", "@" + "x" * 200]
)
def test_an_address_that_cannot_be_told_is_no_fault(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not notify("READY=1")


def test_a_listener_that_does_not_read_holds_nobody_up(
    listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening:
        listening.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        told = 0
        while notify("WATCHDOG=1"):
            told += 1
            assert told < 10_000
        listening.recv(100)
        assert notify("WATCHDOG=1")
