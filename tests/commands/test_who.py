"""``bccn who`` with a real daemon and a source on its segment."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bccnd.commands.who import _by_host, _cells, _lines, _source_row, current
from tests.command_line import bccn
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PacketClient, wait_until
from tests.plain_bccn import free_port


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    """Two daemons on one segment that send a heartbeat each second."""
    port = str(free_port())
    folders = [tmp_path / "here", tmp_path / "there"]
    made = []
    for folder in folders:
        folder.mkdir()
        flags = ["--host", folder.name, "--broadcast", LOOPBACK_BROADCAST, "--port", port]
        made.append(DaemonProcess(folder, *flags, environ={"BCCND_HEARTBEAT__SECONDS": "1"}))
    with made[0], made[1]:
        yield made[0], made[1]


def states(daemon: DaemonProcess) -> dict[str, str]:
    shown = json.loads(bccn(daemon, "who", "--json").stdout)
    return {
        row["src"].partition("/bccnd/")[0]: row["state"] for host in shown["hosts"] for row in host["sources"]
    }


def test_hosts_come_fall_silent_and_leave(pair: tuple[DaemonProcess, DaemonProcess]) -> None:
    here, there = pair
    wait_until(lambda: states(here) == {"here": "alive", "there": "alive"}, "to hear of each other")
    with PacketClient(here.socket) as client:
        name = client.request("whoami")
        client.publish("a", b"x")
        lines = bccn(here, "who").stdout.decode().splitlines()
    titles = ["SOURCE", "STATE", "HEARD", "RECEIVED", "LOST", "LOST%", "REPAIRED", "DUPL.", "VERSION"]
    assert lines[0].split() == titles
    assert lines[1] == "here (this host)"
    assert lines[2].split()[:3] == [f"bccnd/{here.process.pid}", "alive", "here"]
    assert lines[3].split()[:4] == [name.removeprefix("here/"), "alive", "here", "1"]
    assert lines[4].startswith("there (")
    assert lines[5].split()[:2] == [f"bccnd/{there.process.pid}", "alive"]
    assert [line.endswith(" repairs") for line in lines[2:]] == [True, False, False, True]
    assert max(map(len, lines)) <= 100
    only = bccn(here, "who", "there/>").stdout.decode().splitlines()
    assert len(only) == 3
    assert bccn(here, "who", "--silent").stdout == b"nobody\n"
    there.terminate()
    wait_until(lambda: states(here)["there"] == "left", "the word that it leaves")


def test_a_killed_daemon_is_silent(pair: tuple[DaemonProcess, DaemonProcess]) -> None:
    here, there = pair
    wait_until(lambda: "there" in states(here), "to hear of the other")
    with PacketClient(here.socket) as client:
        client.request("whoami")
        wait_until(lambda: interval(here) == 1.0, "its pace")
    there.kill()
    wait_until(lambda: states(here)["there"] == "silent", "its silence")
    [_, _, line] = bccn(here, "who", "--silent").stdout.decode().splitlines()
    assert line.split()[:2] == [f"bccnd/{there.process.pid}", "silent"]


def interval(daemon: DaemonProcess) -> float:
    shown = json.loads(bccn(daemon, "who", "--json", "there/>").stdout)
    [host] = shown["hosts"]
    return round(host["sources"][0]["heartbeat"] or 0.0, 1)


@pytest.mark.parametrize(
    ("peer", "state", "silent", "shown"),
    [
        ("local", "alive", 0.0, True),
        ("10.0.0.2:5400", "alive", 3.0, True),
        ("10.0.0.2:5400", None, 599.0, True),
        ("10.0.0.2:5400", None, 601.0, False),
        ("10.0.0.2:5400", "left", 601.0, False),
        ("10.0.0.2:5400", "silent", 80_000.0, True),
    ],
)
def test_sources_that_left_long_ago_are_not_shown(
    peer: str, state: str | None, silent: float, shown: bool
) -> None:
    row = {"src": "there/sensor/1", "peer": peer, "state": state, "silent": silent}
    assert current([row]) == [row] * shown


def test_loss_is_shown_before_and_after_repair() -> None:
    source = {
        "src": "b/a/1",
        "peer": "10.0.0.2:5400",
        "silent": 0.5,
        "received": 990,
        "lost": 10,
        "duplicates": 0,
    }
    row = _source_row(source | {"repaired": 40, "gone": 3, "given_up": 7, "held": 2})
    assert (row["missed_percent"], row["lost_percent"]) == (5.0, 1.0)
    assert [row[name] for name in ("repaired", "gone", "given_up", "held", "repair")] == [40, 3, 7, 2, None]
    assert _cells(row)[3:] == [990, 10, 1.0, 40, 0, ""]
    assert _cells(row | {"version": "0.1.0", "repair": 4096})[-1] == "0.1.0 repairs"
    older = _source_row(source)
    assert (older["missed_percent"], older["lost_percent"], older["repaired"]) == (1.0, 1.0, 0)


def test_a_relayed_source_is_shown_with_its_relay() -> None:
    source = {"src": "b/a/1", "silent": 0.5, "received": 990, "lost": 0, "duplicates": 0, "left_out": 500}
    row = _source_row(source | {"peer": "10.0.0.2:5400", "relayed": {"host": "gate", "address": "10.0.0.2"}})
    assert _cells(row)[1:] == ["-", "0 s ago", 990, 0, 0.0, 0, 0, "by gate"]
    assert (row["left_out"], row["relayed"]) == (500, {"host": "gate", "address": "10.0.0.2"})
    text = _lines(_by_host([row], "here"))
    assert text[1] == "b (relayed by gate)"


def test_what_a_bridge_of_this_host_relays_is_no_program_of_it() -> None:
    row = {"src": "b/a/1", "peer": "local", "silent": 700.0, "state": None, "relayed": {"host": "here"}}
    assert current([row]) == []


def test_a_silent_daemon_with_a_successor_is_not_shown() -> None:
    def daemon(host: str, pid: int, state: str) -> dict[str, Any]:
        return {"src": f"{host}/bccnd/{pid}", "peer": "10.0.0.2:5400", "state": state, "silent": 9.0}

    rows = [
        daemon("a", 1, "silent"),
        daemon("a", 2, "alive"),
        daemon("b", 1, "silent"),
        daemon("b", 2, "left"),
    ]
    assert current(rows) == rows[1:]
