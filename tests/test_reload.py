"""Settings and keys that are read again while clients are connected."""

import itertools
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bccnd.errors import ConfigError
from bccnd.process.configuration import named_values
from bccnd.process.settings import Settings
from bccnd.reload import FIXED, applicable, relay_settings
from bccnd.wire.bccn1 import Level
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import datagram, plain_socket

OLD, NEW = b"the-key-of-last-year", b"the-key-of-this-year"


# --- what may change ---


def settings(**values: Any) -> Settings:
    return Settings({"host": "here", "socket": "/run/bus.sock"} | values)


def test_fixed_settings_are_named_and_keep_their_values():
    wanted = settings(host="there", copies=2, port=5401, limits={"clients": 9, "local_payload": 100})
    effective, changed, held = applicable(settings(), wanted)
    assert (changed, held) == (["port", "copies", "limits.clients"], ["host", "limits.local_payload"])
    assert effective == settings(copies=2, port=5401, limits={"clients": 9})
    assert applicable(effective, wanted) == (effective, [], held)


def test_a_fixed_table_stays_whole():
    effective, changed, held = applicable(settings(), settings(buffers={"client_bytes": 1 << 20}))
    assert (effective, changed, held) == (settings(), [], ["buffers.client_bytes"])


def test_every_fixed_name_is_a_setting():
    names = {name for name, _ in named_values(settings())}
    assert {name for name in FIXED if name not in names} == {"buffers"}


def test_replays_are_dropped_by_default_where_hmac_is_required():
    def drops(**values: Any) -> bool:
        options, integrity, _ = relay_settings(settings(key_file="/k", **values), [NEW])
        return options.dedup.drops_replays(authenticated=integrity.required is Level.HMAC)

    assert drops()
    assert not drops(integrity="none")
    assert not drops(dedup={"replays": "accept"})
    assert drops(dedup={"replays": "drop"})


@pytest.mark.parametrize(
    ("kept", "fault"),
    [
        ({"rights": [{"uid": "root"}]}, "key_file: is set no more"),
        ({"key_file": "/k"}, r"rights: there are no \[\[rights\]\] any more"),
    ],
)
def test_a_key_and_the_last_rights_stay(kept: dict[str, Any], fault: str):
    running = settings(key_file="/k", rights=[{"uid": "root"}, {"observe": True}])
    with pytest.raises(ConfigError, match=fault + ".*; restart the daemon if that is meant"):
        applicable(running, settings(**kept))
    with pytest.raises(ConfigError, match=r"(?s)key_file.*\n.*rights"):
        applicable(running, settings())
    applicable(running, settings(key_file="/other", rights=[{"observe": True}]))
    applicable(settings(), running)


# --- a running daemon ---


class Reloadable:
    """A daemon whose settings file the test rewrites."""

    def __init__(self, folder: Path, port: int, environ: Mapping[str, str] = {}) -> None:
        self.file = folder / "bccnd.toml"
        self.write('[log]\nformat = "json"')
        flags = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(port))
        self.daemon = DaemonProcess(folder, "--config", str(self.file), *flags, environ=environ)

    @property
    def socket(self) -> Path:
        return self.daemon.socket

    def write(self, toml: str) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(toml)
        new.replace(self.file)

    def events(self, event: str) -> list[dict[str, Any]]:
        return self.daemon.logged(event)

    def reload(self, toml: str | None = None, event: str = "reloaded") -> dict[str, Any]:
        """Send SIGHUP. Returns the line that the daemon logs about it."""
        if toml is not None:
            self.write('log = {format = "json"}\n' + toml)
        before = len(self.events(event))
        self.daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(self.events(event)) > before, f"{event!r} in the log")
        return self.events(event)[before]


@pytest.fixture
def running(tmp_path: Path, loopback_port: int) -> Iterator[Reloadable]:
    reloadable = Reloadable(tmp_path, loopback_port)
    with reloadable.daemon:
        yield reloadable


def queue_of(client: PacketClient) -> dict[str, str]:
    return dict(item.split("=") for item in client.request("queue").split())


def test_queues_follow_new_defaults_unless_clients_asked(running: Reloadable):
    with PacketClient(running.socket) as modest, PacketClient(running.socket) as choosy:
        choosy.request("queue", "packets=50000 policy=drop-newest")
        line = running.reload('queue = {packets = 100, max_packets = 20000, policy = "disconnect"}')
        assert line["changed"] == ["queue.max_packets", "queue.packets", "queue.policy"]
        assert queue_of(modest) == {"packets": "100", "bytes": str(8 << 20), "policy": "disconnect"}
        assert queue_of(choosy) == {"packets": "20000", "bytes": str(8 << 20), "policy": "drop-newest"}
        running.reload("")
        assert queue_of(modest)["packets"] == "10000"
        assert queue_of(choosy)["packets"] == "50000"


def test_a_reload_switches_repair(tmp_path: Path, loopback_port: int):
    running = Reloadable(tmp_path, loopback_port, {"BCCND_HEARTBEAT__SECONDS": "1"})
    with running.daemon, PacketClient(running.socket) as client, PacketClient(running.socket) as hearer:
        client.publish("a", b"kept")
        assert client.status()["repair"]["kept"]["sources"] == 1
        line = running.reload("repair = {on = false, numbers = 64}")
        assert line["changed"] == ["repair.on", "repair.numbers"]
        repair = client.status()["repair"]
        assert (repair["on"], repair["kept"]) == (False, {"sources": 0, "bytes": 0})
        running.reload("repair = {numbers = 64}")
        assert client.status()["repair"]["on"]
        hearer.subscribe("heartbeat/>")
        assert hearer.message()[1].endswith(b" repair=64")


def test_lower_limits_disconnect_nobody(running: Reloadable):
    clients = [PacketClient(running.socket) for _ in range(5)]
    for client in clients:
        client.subscribe("a/>", "b/>", "c/>")
    running.reload("limits = {clients = 2, subscriptions = 1}")
    clients[0].publish("c/x", b"all five")
    assert [client.message() for client in clients] == [("c/x", b"all five")] * 5
    with PacketClient(running.socket) as newcomer:
        assert newcomer.receive() == b"CMSG closing\0limit: at most 2 clients"
    clients[0].send(b"SUB d/>")
    assert clients[0].receive() == b"CMSG error\0limit SUB d/>: at most 1 patterns a client"
    for client in clients:
        client.close()


def test_a_reload_changes_local_channels(running: Reloadable, loopback_port: int):
    with PacketClient(running.socket) as client, plain_socket(loopback_port) as wire:
        client.publish("private/x", b"1")
        assert wire.recv(2048).endswith(b":private/x|1")
        running.reload('local = ["private/>"]')
        client.publish("private/x", b"2")
        client.publish("local/x", b"3")
        assert wire.recv(2048).endswith(b":local/x|3")


def test_a_reload_changes_copies(running: Reloadable, loopback_port: int):
    with PacketClient(running.socket) as client, plain_socket(loopback_port) as wire:
        running.reload("copies = 3\ncopies_spread_ms = 1")
        client.publish("demo/x")
        copies: list[bytes] = []
        while len(copies) < 3:
            datagram = wire.recv(2048)
            copies += [datagram] * (b":demo/x|" in datagram)
        assert len(set(copies)) == 1


def test_a_reload_adds_and_exchanges_keys(running: Reloadable, tmp_path: Path, loopback_port: int):
    keys = tmp_path / "keys"

    def write_keys(*several: bytes) -> None:
        keys.touch(0o600)
        keys.write_bytes(b"\n".join(several))

    with PacketClient(running.socket) as client, plain_socket(loopback_port) as wire:
        client.subscribe("demo/>")
        numbers = itertools.count(1)

        def received() -> int:
            with PacketClient(running.socket) as asking:
                return int(asking.status()["counters"]["received"])

        def passes(key: bytes | None) -> bool:
            before = received()
            sent = datagram("there/prog/1", next(numbers), "demo/x", b"", key)
            wire.sendto(sent, (LOOPBACK_BROADCAST, loopback_port))
            wait_until(lambda: received() > before, "the datagram")
            return client.messages() == [("demo/x", b"")]

        assert [passes(None), passes(OLD)] == [True, True]  # without keys nothing can be verified
        write_keys(OLD)
        line = running.reload(f'key_file = "{keys}"')
        assert (line["changed"], line["keys"]) == (["key_file", "integrity", "keys"], 1)
        assert [passes(None), passes(OLD), passes(NEW)] == [False, True, False]
        write_keys(NEW, OLD)
        assert running.reload()["changed"] == ["keys"]
        assert [passes(None), passes(OLD), passes(NEW)] == [False, True, True]
        write_keys(NEW)
        running.reload()
        assert [passes(None), passes(OLD), passes(NEW)] == [False, False, True]
        assert client.status()["integrity"] == "hmac"
    assert "key-of" not in running.daemon.log


def test_a_key_ends_what_was_forged_without_one(running: Reloadable, tmp_path: Path, loopback_port: int):
    """Numbers above those of all clocks, sent under a name just before the key comes, silence nobody for a day."""
    clock = 2 * 10**15
    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_bytes(NEW)
    with PacketClient(running.socket) as client, plain_socket(loopback_port) as wire:
        client.subscribe("demo/>")

        def hears(number: int, key: bytes | None = None) -> bool:
            sent = datagram("there/prog/1", number, "demo/x", b"", key)
            wire.sendto(sent, (LOOPBACK_BROADCAST, loopback_port))
            return client.message() == ("demo/x", b"")

        assert all(hears(number) for number in (clock, 2**64 - 2, 2**64 - 1))
        running.reload(f'key_file = "{keys}"')
        assert hears(clock + 1, NEW)
        assert client.status()["counters"]["accepted"] == 4


@pytest.mark.parametrize(
    ("toml", "faults"),
    [
        ("copies = 2\n[queue]\npackets = 0", ["queue.packets: must be at least 1 (got 0)"]),
        ("copies = 2\n[nonsense", ["line 3"]),
        (
            'copies = 2\ncolour = "blue"\ndedup.sanity = 0',
            ["colour: unknown setting", "dedup.sanity: must be at least 1"],
        ),
        ('copies = 2\nkey_file = "/nonexistent"', ["/nonexistent: no such file"]),
        ("copies = 2\nport = " + "9" * 5000, ["a number has thousands of digits"]),
        (
            'copies = 2\n[dedup]\nreplays = "drop"',
            ["dedup.replays: must not be drop without integrity = hmac"],
        ),
    ],
)
def test_a_bad_file_is_refused_whole(running: Reloadable, toml: str, faults: list[str]):
    with PacketClient(running.socket) as client:
        client.subscribe("demo/>")
        event = "not reloaded, the old settings stay"
        running.reload(toml, event)
        wait_until(lambda: len(running.events(event)) == len(faults), "a line for each fault")
        lines = [line["fault"] for line in running.events(event)]
        for fault in faults:
            assert any(fault in line for line in lines), lines
        assert {line["level"] for line in running.events(event)} == {"error"}
        assert running.events("reloaded") == []
        client.publish("demo/x", b"as before")
        assert client.message() == ("demo/x", b"as before")
        assert running.reload("copies = 2")["changed"] == ["copies"]  # so the refused file changed nothing


@pytest.mark.parametrize("toml", ["port = 0", "port = " + "9" * 5000, "copies = 2"])
def test_systemd_hears_the_end_of_every_reload(tmp_path: Path, loopback_port: int, toml: str):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE)
        running = Reloadable(tmp_path, loopback_port, {"NOTIFY_SOCKET": str(tmp_path / "notify")})
        with running.daemon:
            while not systemd.recv(4096).startswith(b"READY=1"):
                pass
            running.write(toml)
            running.daemon.process.send_signal(signal.SIGHUP)
            heard = [b""]
            while not heard[-1].startswith(b"READY=1"):
                heard.append(systemd.recv(4096))
            assert any(lines.startswith(b"RELOADING=1") for lines in heard)


def test_an_exposed_key_file_is_refused_and_old_keys_stay(running: Reloadable, tmp_path: Path):
    keys = tmp_path / "keys"
    keys.write_bytes(OLD)
    keys.chmod(0o600)
    running.reload(f'key_file = "{keys}"')
    keys.chmod(0o644)
    line = running.reload(event="not reloaded, the old settings stay")
    assert "chmod 600" in line["fault"]
    with PacketClient(running.socket) as client:
        assert client.status()["integrity"] == "hmac"


def test_an_emptied_file_leaves_the_daemon_closed(running: Reloadable, tmp_path: Path):
    keys = tmp_path / "keys"
    keys.write_bytes(OLD)
    keys.chmod(0o600)
    running.reload(f'key_file = "{keys}"\n[[rights]]\nsubscribe = ["open/>"]\nobserve = true')
    running.write("")
    event = "not reloaded, the old settings stay"
    running.reload(event=event)
    wait_until(lambda: len(running.events(event)) == 2, "a line for each fault")
    assert [line["fault"].partition(":")[0] for line in running.events(event)] == ["key_file", "rights"]
    with PacketClient(running.socket) as client:
        assert client.status()["integrity"] == "hmac"
        client.send(b"SUB closed")
        assert client.receive().startswith(b"CMSG error\0refused")


def test_a_default_file_that_has_gone_is_refused(tmp_path: Path, loopback_port: int):
    """Its key, its rights and its interfaces would go with it."""
    running = Reloadable(tmp_path, loopback_port)
    running.write('local = ["closed/>"]\nlog = {format = "json"}')
    start = (
        "import pathlib, sys; from bccnd.daemon import main; from bccnd.process import configuration; "
        "configuration.DEFAULT_FILE = pathlib.Path(sys.argv.pop(1)); sys.exit(main())"
    )
    flags = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port))
    command = [sys.executable, "-c", start, str(running.file), "--socket", str(running.daemon.socket), *flags]
    running.daemon._command = command
    with running.daemon:
        running.file.unlink()
        assert "no such file" in running.reload(event="not reloaded, the old settings stay")["fault"]
        with PacketClient(running.socket) as client:
            assert client.status()["local"] == ["closed/>"]


def test_settings_that_need_a_restart_are_reported(running: Reloadable):
    line = running.reload('exit_when_idle = false\nsocket_mode = "0600"\ncopies = 2', "needs a restart")
    assert line["settings"] == ["socket_mode"]
    assert line["level"] == "warning"
    wait_until(lambda: running.events("reloaded"), "the reload")
    assert running.events("reloaded")[0]["changed"] == ["copies"]
    with PacketClient(running.socket) as client:
        assert client.status()["clients"] == 1


def test_a_signal_turns_debug_lines_on_and_off(running: Reloadable):
    def connects(times: int) -> int:
        """How many of ``times`` connections show in the log."""
        before = len(running.events("client connected"))
        for _ in range(times):
            with PacketClient(running.socket) as client:
                client.drain()
        return len(running.events("client connected")) - before

    def toggle(level: str) -> None:
        before = len(running.events("log level changed"))
        running.daemon.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: len(running.events("log level changed")) > before, "the new level")
        assert running.events("log level changed")[before]["now"] == level

    assert connects(2) == 0
    toggle("debug")
    assert connects(2) == 2
    toggle("info")
    assert connects(2) == 0
    toggle("debug")
    running.reload()
    assert connects(2) == 0


def test_a_reload_restores_the_log_level_of_the_file(running: Reloadable):
    running.write('log = {format = "json", level = "debug"}')
    assert running.reload()["changed"] == ["log.level"]
    with PacketClient(running.socket) as client:
        client.drain()
    assert running.events("client connected")


def test_a_reload_under_load_loses_nothing(running: Reloadable, tmp_path: Path):
    messages = 3000
    with PacketClient(running.socket) as subscriber, PacketClient(running.socket) as publisher:
        subscriber.request("queue", "packets=10000")
        subscriber.subscribe("demo/>")
        for number in range(messages):
            publisher.publish("demo/x", b"%d" % number)
            if number % 300 == 0:
                running.write(f'log = {{format = "json"}}\n[queue]\npackets = {number + 1}')
                os.kill(running.daemon.process.pid, signal.SIGHUP)
        assert [subscriber.message() for _ in range(messages)] == [
            ("demo/x", b"%d" % number) for number in range(messages)
        ]
    assert running.events("reloaded")


def test_early_signals_do_not_kill(tmp_path: Path, loopback_port: int):
    flags = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port))
    daemon = DaemonProcess(tmp_path, *flags)
    daemon.launch()
    status = Path(f"/proc/{daemon.process.pid}/status")

    def blocks_hup() -> bool:
        (blocked,) = (
            line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigBlk")
        )
        caught = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt")]
        return bool((int(blocked, 16) | int(caught[0], 16)) >> (signal.SIGHUP - 1) & 1)

    wait_until(blocks_hup, "the start to get that far")
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "reloaded" in daemon.log, "the reload")
    assert daemon.terminate() == 0
