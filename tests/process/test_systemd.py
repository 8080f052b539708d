"""What is sent to systemd, even if nobody reads it; and which descriptors it passes to whom."""

import os
import socket
from pathlib import Path

import pytest

from bccnd.errors import ConfigError
from bccnd.process import systemd
from bccnd.process.systemd import notify, take_listening_socket, take_watchdog

# Of processes. Another one may run the tests than the one that collects them, so ``passed`` puts its number in.
OURS, ANOTHERS = "ours", "1"


def passed(environ: dict[str, str]) -> dict[str, str]:
    """What systemd passes to this process."""
    return {name: str(os.getpid()) if value == OURS else value for name, value in environ.items()}


@pytest.fixture
def listening() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def test_without_systemd_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_only_the_first_at_sign_of_an_abstract_name_is_replaced(
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
def test_an_unusable_address_is_ignored(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not notify("READY=1")


def test_a_listener_that_does_not_read_holds_nobody_up(
    listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening:
        listening.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        sent = 0
        while notify("WATCHDOG=1"):
            sent += 1
            assert sent < 10_000
        listening.recv(100)
        assert notify("WATCHDOG=1")


# --- the watchdog ---


@pytest.mark.parametrize(
    ("environ", "seconds", "left"),
    [
        ({}, 0.0, {}),
        ({"WATCHDOG_USEC": "30000000"}, 30.0, {"WATCHDOG_USEC": "30000000"}),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": OURS}, 1.5, {"WATCHDOG_USEC": "1500000"}),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": ANOTHERS}, 0.0, {}),
        ({"WATCHDOG_USEC": "soon"}, 0.0, {"WATCHDOG_USEC": "soon"}),
    ],
)
def test_a_watchdog_holds_for_a_process_and_its_successors(
    environ: dict[str, str], seconds: float, left: dict[str, str]
) -> None:
    environ = passed(environ)
    assert take_watchdog(environ) == seconds
    assert environ == left


# --- socket activation; with real descriptors in tests/systemd/test_activation.py ---


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LISTEN_PID": ANOTHERS, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "bccnd.socket"},
        {"LISTEN_PID": OURS, "LISTEN_FDS": "0"},
        {"LISTEN_PID": OURS, "LISTEN_FDS": "-1"},
        {"LISTEN_PID": OURS},
        {"LISTEN_FDS": "1"},
    ],
)
def test_sockets_for_another_process_are_neither_used_nor_left(environ: dict[str, str]) -> None:
    environ = passed(environ)
    assert take_listening_socket(environ) is None
    assert environ == {}


def test_more_than_one_socket_is_refused_by_name() -> None:
    environ = passed({"LISTEN_PID": OURS, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "bus:extra"})
    with pytest.raises(
        ConfigError, match=r"^socket activation: 2 sockets were passed \(bus:extra\), one is served$"
    ):
        take_listening_socket(environ)
    assert environ == {}


@pytest.mark.parametrize("number", ["9" * 5000, "٣", "-1", ""], ids=lambda text: text[:12])
def test_a_number_that_is_none_of_systemds_is_ignored(number: str) -> None:
    assert take_watchdog({"WATCHDOG_USEC": number}) == 0.0
    assert take_listening_socket(passed({"LISTEN_PID": OURS, "LISTEN_FDS": number})) is None


@pytest.mark.parametrize("kind", ["closed", "file"])
def test_a_descriptor_that_is_no_socket_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    monkeypatch.setattr(systemd, "FIRST_DESCRIPTOR", descriptor)
    if kind == "closed":
        os.close(descriptor)
    with pytest.raises(ConfigError, match=f"^socket activation: descriptor {descriptor} is no socket"):
        take_listening_socket(passed({"LISTEN_PID": OURS, "LISTEN_FDS": "1"}))
    if kind == "file":
        os.close(descriptor)
