"""A successor that works: clients do not notice the replacement, and the settings are read anew."""

import json
import os
import resource
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bccnd.restart import VARIABLE
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import datagram, free_port, plain_socket
from tests.replaceable_daemon import ReplaceableDaemon
from tests.replacement.conftest import Start

KEY = b"the-key-that-all-hosts-of-this-segment-share"


def row_of(client: PacketClient) -> dict[str, Any]:
    """The row of this client in the daemon's list."""
    name = client.request("whoami")
    rows = json.loads(client.request("clients"))["clients"]
    return next(row for row in rows if row["name"] == name)


def is_held(asking: PacketClient, name: str) -> bool:
    rows = json.loads(asking.request("clients"))["clients"]
    return any(name in row["held"] for row in rows)


def publish_until_held(publisher: PacketClient, asking: PacketClient, chan: str, payload: bytes) -> int:
    """Publishes numbered messages until the daemon reads no more. How many it took."""
    name, sent, held = publisher.request("whoami"), 0, False
    publisher.socket.setblocking(False)
    while True:
        try:
            publisher.publish(chan, b"%d " % sent + payload)
            sent += 1
        except BlockingIOError:
            if held:
                publisher.socket.settimeout(PATIENCE)
                return sent
            time.sleep(0.01)
            held = is_held(asking, name)


def test_descriptors_stay_the_same_over_many_replacements(start: Start) -> None:
    daemon = start()
    with PacketClient(daemon.socket) as client:
        client.subscribe("a")
        daemon.replace()
        before = daemon.descriptors()
        for _ in range(3):
            daemon.replace()
        wait_until(lambda: daemon.descriptors() <= before, "no more descriptors than after the first")
        assert daemon.children() == []
        client.publish("a", b"still here")
        assert client.message() == ("a", b"still here")
    assert len(daemon.logged("replaced")) == 4


def test_agreements_of_a_client_survive(start: Start) -> None:
    daemon = start(environ={"BCCND_REPAIR__ON": "false"})  # each datagram is counted
    with PacketClient(daemon.socket) as client, PacketClient(daemon.socket) as other:
        client.extend_name("worker")
        client.request("format", "full")
        client.request("separator", ".")
        client.request("queue", "packets=77 policy=block")
        client.request("echo/off")
        client.request("watch", "local/w")
        assert client.receive() == b"CMSG wanted\0no local/w"
        client.subscribe("a.>", "b", "b")
        other.publish("b", b"1")
        client.receive()
        wait_until(lambda: client.status()["rejected"] == {"own": 1}, "the message to come back")
        row, status = row_of(client), client.status()
        daemon.replace()
        after, now = row_of(client), client.status()
        assert after == row | {"seconds": after["seconds"]}
        assert after["seconds"] >= row["seconds"]
        assert client.request("queue").startswith("packets=77 ")
        assert now["pid"] != status["pid"]
        assert now["uptime"] > status["uptime"]
        other.subscribe("local/w")
        assert client.receive() == b"CMSG wanted\0here local/w", "what it watches, and what it was told"
        for counted in ("published", "delivered", "sent"):
            assert now["counters"][counted] == status["counters"][counted] == 1
        other.publish("b", b"2")
        assert client.receive().endswith(b":b|2")
        client.send(b"UNSUB b")
        client.send(b"UNSUB b")
        client.drain()
        other.publish("b", b"3")
        other.drain()
        assert client.drain() == []


def test_a_large_backlog_and_a_held_publisher_survive(start: Start) -> None:
    daemon = start(environ={"BCCND_QUEUE__BLOCK_SECONDS": "60"})  # more than two replacements take anywhere
    with (
        PacketClient(daemon.socket) as slow,
        PacketClient(daemon.socket) as heavy,
        PacketClient(daemon.socket) as publisher,
        PacketClient(daemon.socket) as another,
    ):
        slow.request("queue", "packets=64 policy=block")
        slow.subscribe("local/a")
        heavy.subscribe("local/b")
        for number in range(64):
            another.publish("local/b", b"%d " % number + bytes(60_000))
        sent = publish_until_held(publisher, another, "local/a", bytes(60_000))
        for _ in range(2):
            daemon.replace()
        assert another.status()["queued"]["bytes"] > 3 << 20
        assert [int(heavy.message()[1].split()[0]) for _ in range(64)] == list(range(64))
        publisher.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            publisher.publish("local/a", bytes(60_000))
        numbers = [int(slow.message()[1].split()[0]) for _ in range(sent)]
        assert numbers == list(range(sent))
        publisher.publish("local/a", b"and on")
        assert slow.message() == ("local/a", b"and on")


def test_four_million_queued_packets_survive(start: Start) -> None:
    clients, each, at_once = 40, 100_000, 500
    daemon = start()
    with ExitStack() as connections, PacketClient(daemon.socket) as publisher:
        readers = [connections.enter_context(PacketClient(daemon.socket)) for _ in range(clients)]
        for reader in readers:
            reader.request("queue", f"packets={each}")
            reader.subscribe("local/a")
        publisher.request("pack", "on")
        message = b"MSG local/a\0x"
        for _ in range(each // at_once + 5):  # more than the kernel takes besides
            publisher.send(b"PACK " + (len(message).to_bytes(4, "big") + message) * at_once)
        publisher.drain()
        queued = publisher.status()["queued"]
        assert queued["packets"] == clients * each
        daemon.replace()
        assert publisher.status()["queued"] == queued
        assert readers[-1].message() == ("local/a", b"x")


def test_a_tap_and_clients_of_every_format_survive(start: Start) -> None:
    daemon = start()
    with (
        PacketClient(daemon.socket) as tap,
        PacketClient(daemon.socket) as packed,
        PacketClient(daemon.socket) as lines,
    ):
        tap.request("tap", "on")
        packed.request("pack", "on")
        packed.subscribe(">")
        lines.send(b"SUB >\n")
        lines.send(b"CMSG ping\n")
        assert lines.receive() == b"CMSG pong \n"
        daemon.replace()
        pack = b"PACK \0\0\0\x09MSG a\0one\0\0\0\x09MSG a\0two"
        packed.send(pack)
        assert packed.receive() == pack
        assert [lines.receive(), lines.receive()] == [b"MSG a one\n", b"MSG a two\n"]
        assert [tap.receive()[-6:], tap.receive()[-6:]] == [b":a|one", b":a|two"]


def test_a_thousand_clients_survive(start: Start) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    daemon = start()
    with ExitStack() as connections:
        clients = [connections.enter_context(PacketClient(daemon.socket)) for _ in range(1000)]
        for number, client in enumerate(clients):
            client.send(b"SUB to/%d" % number)
            client.send(b"SUB all")
            client.drain()
        daemon.replace()
        with PacketClient(daemon.socket) as publisher:
            publisher.publish("all", b"hello")
            for number in range(1000):
                publisher.publish(f"to/{number}", b"%d" % number)
            for number, client in enumerate(clients):
                assert client.message() == ("all", b"hello")
                assert client.message() == (f"to/{number}", b"%d" % number)


@pytest.mark.parametrize("where", ["@", "@bccnd-test-{pid}"])
def test_an_abstract_socket_survives(tmp_path: Path, loopback_port: int, where: str) -> None:
    where = where.format(pid=os.getpid())
    daemon = ReplaceableDaemon(
        tmp_path, "--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port),
        "--socket", where,
    )  # fmt: skip
    daemon.launch()
    wait_until(lambda: daemon.logged("serving"), "the daemon")
    name = daemon.logged("serving")[0]["socket"]
    with PacketClient(name) as client:
        daemon.signal(signal.SIGUSR2)
        daemon.follow_by(client)
    with PacketClient(name) as client:
        assert client.drain() == []
    assert daemon.terminate() == 0
    assert {line["socket"] for line in daemon.logged("serving")} == {name}


def test_an_inherited_socket_survives(start: Start, tmp_path: Path) -> None:
    handed_down = f"""
import os, socket
if {VARIABLE!r} not in os.environ:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind({str(tmp_path / "bus.sock")!r})
    os.dup2(made.detach(), 99)
"""
    daemon = start("--socket", "fd:99", begin_with=handed_down)
    with PacketClient(daemon.socket) as client:
        for _ in range(2):
            daemon.replace()
        assert client.drain() == []
    assert daemon.terminate() == 0
    assert (tmp_path / "bus.sock").exists()  # whoever made it removes it


def test_only_its_own_socket_is_removed_at_the_end(start: Start, tmp_path: Path) -> None:
    daemon = start()
    daemon.replace()
    (tmp_path / "bus.sock").rename(tmp_path / "moved.sock")
    (tmp_path / "bus.sock").write_text("another's")
    daemon.socket = tmp_path / "moved.sock"
    daemon.replace()  # a missing socket file does not stop it
    assert daemon.terminate() == 0
    assert (tmp_path / "bus.sock").read_text() == "another's"


def test_a_successor_exits_when_idle_too(tmp_path: Path, loopback_port: int) -> None:
    daemon = ReplaceableDaemon(
        tmp_path, "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port), "--exit-when-idle"
    )
    daemon.launch()
    wait_until(lambda: daemon.logged("serving"), "the daemon")
    with PacketClient(daemon.socket) as client:
        daemon.signal(signal.SIGUSR2)
        daemon.follow_by(client)
        assert client.drain() == []
    assert daemon.wait() == 0


def test_presence_does_not_notice_a_replacement(start: Start, tmp_path: Path, loopback_port: int) -> None:
    """Heartbeats of the daemon and its clients go on under the same names. Nobody appears, leaves or restarts."""
    folder = tmp_path / "there"
    folder.mkdir()
    beating = {"BCCND_HEARTBEAT__SECONDS": "1"}
    flags = ("--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port))
    here = ReplaceableDaemon(tmp_path, "--host", "here", *flags, environ=beating)
    there = DaemonProcess(folder, "--host", "there", *flags, environ=beating)
    with there, PacketClient(there.socket) as watcher:
        watcher.subscribe("local/presence/>")
        with here, PacketClient(here.socket) as client:
            name, src = client.request("whoami"), client.status()["src"]
            client.request("heartbeat", "1 fine")
            first = {f"heartbeat/{name}", f"heartbeat/{src}"}
            appeared = {watcher.message()[0] for _ in range(2)}
            assert appeared == {f"local/presence/appeared/{each}" for each in (name, src)}
            for _ in range(2):
                here.replace()
            assert client.status()["src"] == src
            with PacketClient(there.socket) as listener:
                listener.subscribe("heartbeat/here/>")
                assert {listener.message()[0] for _ in range(6)} == first
            events = [packet.partition(b"\0")[0] for packet in watcher.drain()]
            assert not [channel for channel in events if b"/here/" in channel]


# --- changes with a replacement ---


def test_the_successor_reads_the_settings_anew(start: Start, tmp_path: Path, loopback_port: int) -> None:
    """Port, key, integrity and limits change. The log names what cannot change: the mode of the socket."""
    file, keys, port = tmp_path / "bccnd.toml", tmp_path / "keys", free_port()
    file.write_text("")
    keys.touch(0o600)
    keys.write_bytes(KEY)
    daemon = ReplaceableDaemon(
        tmp_path, "--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--config", str(file),
        environ={"BCCND_PORT": str(loopback_port)}, begin_with="import os; os.environ.pop('BCCND_PORT', None)",
    )  # fmt: skip
    file.write_text(f"port = {loopback_port}\n")
    with daemon, PacketClient(daemon.socket) as client, plain_socket(port) as neighbour:
        client.subscribe("a")
        file.write_text(
            f'port = {port}\nkey_file = "{keys}"\nsocket_mode = "0600"\n[limits]\nsubscriptions = 1\n'
        )
        daemon.replace()
        (binding,) = client.status()["segments"]
        assert (binding["address"], binding["port"], binding["interface"]) == (LOOPBACK_BROADCAST, port, "lo")
        client.publish("a", b"signed")
        assert neighbour.recv(2048).endswith(b":a|signed")
        assert client.message() == ("a", b"signed")
        neighbour.sendto(datagram("there", 1, "a", b"forged"), (LOOPBACK_BROADCAST, port))
        neighbour.sendto(datagram("there", 1, "a", b"true", KEY), (LOOPBACK_BROADCAST, port))
        assert client.message() == ("a", b"true")
        client.send(b"SUB one/too/many")
        assert client.receive().startswith(b"CMSG error\0limit ")
    (line,) = daemon.logged("not changed while the socket is in use")
    assert line["settings"] == ["socket_mode"]


def test_systemd_learns_the_new_pid_before_the_old_one_exits(start: Start, tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(PATIENCE)
        # The old program stays until the test lets it go, which shows the order.
        linger = """
import os, time, bccnd.restart
notify_systemd = bccnd.restart.notify
def notify(*lines):
    notify_systemd(*lines)
    while not os.path.exists(os.environ["LEAVE"]):
        time.sleep(0.01)
bccnd.restart.notify = notify
"""
        leave = tmp_path / "leave"
        daemon = start(environ={"NOTIFY_SOCKET": address, "LEAVE": str(leave)}, begin_with=linger)
        old = daemon.pid
        daemon.signal(signal.SIGUSR2)
        notices = [b""]
        while not notices[-1].startswith(b"MAINPID="):
            notices.append(systemd.recv(4096))
        with PacketClient(daemon.socket) as client:
            assert notices[-1] == b"MAINPID=%d" % client.status()["pid"]
        assert daemon.process.poll() is None
        leave.touch()
        assert daemon.follow() != old
