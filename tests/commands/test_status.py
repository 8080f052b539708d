"""``bccn status`` with a real daemon."""

import json
import re
from pathlib import Path

from bccnd.commands.status import bindings
from tests.command_line import bccn
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PacketClient


def test_status_shows_tables(daemon: DaemonProcess, loopback_port: int) -> None:
    with PacketClient(daemon.socket) as client:
        client.subscribe("a/>")
        client.publish("a/b", b"x")
        client.drain()
        name = client.request("whoami")
        done = bccn(daemon, "status")
    lines = done.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (0, b"")
    assert lines[0].startswith("bccnd ")
    assert " on here, pid " in lines[0]
    assert f"  socket     {daemon.socket}" in lines
    assert "  bus        2 clients, 1 subscription" in lines
    [segment] = [line for line in lines if line.startswith("  segment ")]
    assert re.fullmatch(rf" +segment +127\.255\.255\.255:{loopback_port} on lo, \d+ sent, 0 unsent", segment)
    [repair] = [line for line in lines if line.startswith("  repair ")]
    told = (
        r" +repair +0 asked, 0 repaired, 0 gone, 0 given up, 0 held; 0 resent, 0 refused, [1-9]\d* bytes kept"
    )
    assert re.fullmatch(told, repair)
    assert "  kernel     0 dropped, 0 filtered" in lines
    assert "  retained   0 channels, 0 bytes" in lines
    assert "  messages   1 published, 1 delivered, 0 dropped, 0 errors" in lines
    [row] = [line.split() for line in lines if line.startswith(name)]
    assert row[1:6] == ["1", "1", "1", "0", "0"]
    assert max(map(len, lines)) <= 110


def test_clients_that_left_are_not_among_the_sources(daemon: DaemonProcess) -> None:
    assert bccn(daemon, "pub", "a/b", "x").returncode == 0
    assert bccn(daemon, "status").stdout.decode().endswith("\nno source heard\n")
    assert len(json.loads(bccn(daemon, "status", "--json").stdout)["source_list"]) == 1


def test_status_says_that_repair_is_off(tmp_path: Path, loopback_port: int) -> None:
    flags = ("--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port))
    with DaemonProcess(tmp_path, *flags, environ={"BCCND_REPAIR__ON": "false"}) as daemon:
        lines = bccn(daemon, "status").stdout.decode().splitlines()
    assert "  repair     off; 0 repaired, 0 resent" in lines


def test_status_as_json(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket) as client:
        client.subscribe("a/>")
        done = bccn(daemon, "status", "--json")
    state = json.loads(done.stdout)
    assert state["host"] == "here"
    assert state["subscriptions"] == 1
    assert len(state["client_list"]) == state["clients"] == 2
    assert state["source_list"] == []


def test_long_lists_are_cut_short(daemon: DaemonProcess) -> None:
    clients = [PacketClient(daemon.socket) for _ in range(5)]
    lines = bccn(daemon, "status", "--rows", "2").stdout.decode().splitlines()
    assert "... and 3 more (--rows N)" in lines
    for client in clients:
        client.close()


def test_each_binding_is_a_line() -> None:
    binding = {
        "address": "10.0.0.255",
        "port": 5400,
        "interface": "eth0",
        "sent": 7,
        "unsent": 2,
        "error": "Network is down",
    }
    other = {"address": "ff02::1", "port": 5400, "interface": None}  # of an older daemon
    assert bindings([binding, other]) == [
        ("segment", "10.0.0.255:5400 on eth0, 7 sent, 2 unsent; Network is down"),
        ("", "[ff02::1]:5400"),
    ]
    assert bindings([]) == [("segment", "none")]
