"""The facts of a real system and a real daemon."""

import json
import os
import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bccnd import __version__
from bccnd.commands.facts import _beside, gather
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, crowded
from tests.plain_bccn import plain_socket

SETTINGS = 'broadcast = "127.255.255.255"\n'


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that is only slow is none that does not answer."""
    monkeypatch.setattr("bccnd.commands.facts.PATIENCE", PATIENCE)


def test_facts_of_a_running_daemon(daemon: DaemonProcess, loopback_port: int) -> None:
    with PacketClient(daemon.socket) as client:
        name = client.request("whoami")
        facts = gather(str(daemon.socket), None, {})
    assert facts.socket == "served"
    assert facts.status
    assert (facts.version, facts.status["pid"]) == (__version__, daemon.process.pid)
    assert [row["name"] for row in facts.clients] == [name]  # without our own
    assert facts.daemon_uid == os.geteuid()
    assert facts.rights == {"publish": True, "subscribe": True, "tap": True}
    assert facts.loopback is not None
    assert facts.ahead is not None
    assert abs(facts.ahead) < 1
    assert facts.returns is True
    assert (facts.port, facts.holders) == (loopback_port, ())
    assert facts.descriptors is not None
    assert 5 < facts.descriptors[0] < facts.descriptors[1]
    assert facts.mtus["lo"] > 1400
    assert facts.clock_synchronised in (True, False, None)


class Answered:
    """A bus with two listeners, who give these answers."""

    def __init__(self, *replies: tuple[str, dict[str, Any]]) -> None:
        self._replies = [SimpleNamespace(src=src, payload=json.dumps(said).encode()) for src, said in replies]

    def control(self, *_: str) -> str:
        return "2"

    def request_many(
        self, _channel: str, _payload: bytes, _timeout: float, count: int | None = None
    ) -> Iterator[SimpleNamespace]:
        return islice(self._replies, count)


CAT, GATEWAY = "here/cat/1", "here/bccnd-dndm/2"


@pytest.mark.parametrize(
    "flood",
    [
        [{"gateway": CAT, "trouble": {"peer": "x"}}] * 1000,
        [{"gateway": CAT, "state": "up"}, {"uplink": CAT, "state": "up"}],
    ],
    ids=["many", "as-two"],
)
def test_no_program_hides_what_another_one_answers(flood: list[dict[str, Any]]) -> None:
    own = [{"gateway": GATEWAY, "state": "up", "troubles_said": 1}, {"gateway": GATEWAY, "trouble": {}}]
    bus: Any = Answered(*((CAT, said) for said in flood), *((GATEWAY, said) for said in own))
    _, gateways = _beside(bus)
    assert {each["gateway"]: len(each["troubles"]) for each in gateways}[GATEWAY] == 1


def test_rights_are_found_by_trying(tmp_path: Path, loopback_port: int) -> None:
    settings = tmp_path / "bccnd.toml"
    for granted, lacking in (("observe = true", {}), ("", {"observe": False})):
        rights = f'[[rights]]\npublish = ["local/>"]\n{granted}\n'
        settings.write_text(f"{SETTINGS}port = {loopback_port}\n{rights}")
        with DaemonProcess(tmp_path, "--config", str(settings)) as daemon:
            facts = gather(str(daemon.socket), str(settings), {})
        assert facts.socket == "served"
        assert facts.rights == {"publish": True, "subscribe": False, "tap": False, **lacking}
        assert (facts.loopback, facts.returns) == (None, None)


def test_settings_are_read(tmp_path: Path) -> None:
    settings, keys = tmp_path / "bccnd.toml", tmp_path / "keys"
    settings.write_text(f'interfaces = ["eth7"]\nport = 5407\nkey_file = "{keys}"\n')
    facts = gather(str(tmp_path / "bus.sock"), str(settings), {"BCCND_PORT": "5408"})
    assert (facts.config_file, facts.config_fault) == (str(settings), "")
    assert (facts.interfaces, facts.port, facts.receive_bytes) == (("eth7",), 5408, 4 << 20)
    assert facts.key_file
    assert facts.key_file.missing
    keys.write_text("short\n")
    keys.chmod(0o600)
    facts = gather(str(tmp_path / "bus.sock"), str(settings), {})
    assert facts.key_file
    assert (facts.key_file.mode, facts.key_file.uid) == (0o600, os.geteuid())
    assert "a key has 16" in facts.key_file.fault
    settings.write_text("prot = 5407\n")
    assert "did you mean port?" in gather(str(tmp_path / "bus.sock"), str(settings), {}).config_fault
    assert (
        "nowhere.toml" in gather(str(tmp_path / "bus.sock"), str(tmp_path / "nowhere.toml"), {}).config_fault
    )


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM])
def test_something_else_in_place_of_the_socket(
    tmp_path: Path, kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bccnd.commands.facts.PATIENCE", 0.1)
    path = tmp_path / "bus.sock"
    assert gather(str(path), None, {}).socket == "missing"
    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind(str(path))
        server.listen(1)
        silent = gather(str(path), None, {})
        assert silent.socket == ("silent" if kind == socket.SOCK_SEQPACKET else "no-socket")
        assert silent.status is None
    assert gather(str(path), None, {}).socket == "stale"  # nothing shows of which type it was
    path.unlink()
    path.write_text("")
    assert gather(str(path), None, {}).socket == "no-socket"


def test_a_socket_to_which_too_many_connect_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.commands.facts.PATIENCE", 0.1)
    path = tmp_path / "bus.sock"
    with crowded(path):
        assert gather(str(path), None, {}).socket == "busy"


def test_an_unused_abstract_name_is_missing() -> None:
    assert gather(f"@bccnd-nobody-{os.getpid()}", None, {}).socket == "missing"


def test_a_process_that_ends_meanwhile_holds_nothing(
    tmp_path: Path, loopback_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda at: [*listed(at), *["4194305"] * (str(at) == "/proc")])
    with plain_socket(loopback_port):
        facts = gather(str(tmp_path / "bus.sock"), None, {"BCCND_PORT": str(loopback_port)})
    assert len(facts.holders) == 1


def test_the_holder_of_the_port_is_named(tmp_path: Path, loopback_port: int) -> None:
    with plain_socket(loopback_port):
        facts = gather(str(tmp_path / "bus.sock"), None, {"BCCND_PORT": str(loopback_port)})
    [holder] = facts.holders
    assert holder.endswith(f" (pid {os.getpid()})")
