"""One subscriber is stopped and others read on at full rate, with real daemons, processes, sockets and signals."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PacketClient, wait_until
from tests.plain_bccn import datagram, plain_socket
from tests.subscriber import LENGTH, Subscriber

MIB = 1 << 20
# Seconds of a publisher that is held: more than any test needs, but for the one that shortens them.
BLOCK_SECONDS = "block_seconds = 60"
SETTINGS = f"""
local = ["flow/local/>"]
[queue]
packets = 5000
bytes = 1048576
total_bytes = 4194304
{BLOCK_SECONDS}
"""
PACK_BYTES = 60_000

Start = Callable[..., Subscriber]


@pytest.fixture
def daemon(tmp_path: Path, loopback_port: int) -> Iterator[DaemonProcess]:
    settings = tmp_path / "bccnd.toml"
    settings.write_text(SETTINGS)
    flags = ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    with DaemonProcess(tmp_path, "--config", str(settings), *flags) as running:
        yield running


@pytest.fixture
def subscriber(daemon: DaemonProcess) -> Iterator[Start]:
    with ExitStack() as ends:

        def start(**options: Any) -> Subscriber:
            started = Subscriber(daemon.socket, **options)
            ends.callback(started.kill)
            return started

        yield start


@pytest.fixture
def readers(subscriber: Start) -> list[Subscriber]:
    """Two that read as fast as they can, and hold publishers rather than lose a message."""
    return [subscriber(queue="policy=block"), subscriber(queue="policy=block", pack=True)]


def publish(publisher: PacketClient, count: int, size: int = 100, chan: str = "flow/local/x") -> None:
    """``count`` messages, numbered from 0, as fast as the daemon takes them."""
    publisher.request("pack", "on")
    batch = min(64, PACK_BYTES // size)
    for first in range(0, count, batch):
        packet = b"PACK "
        for number in range(first, min(first + batch, count)):
            message = b"MSG %b\0%b" % (chan.encode(), (b"%d " % number).ljust(size, b"."))
            packet += LENGTH.pack(len(message)) + message
        publisher.send(packet)
    publisher.drain()


def row_of(daemon: DaemonProcess, client: Subscriber) -> dict[str, Any] | None:
    with PacketClient(daemon.socket) as asking:
        rows = json.loads(asking.request("clients"))["clients"]
    return next((row for row in rows if row["pid"] == client.pid), None)


def row(daemon: DaemonProcess, client: Subscriber) -> dict[str, Any]:
    found = row_of(daemon, client)
    assert found is not None
    return found


def wait_until_read(daemon: DaemonProcess, *clients: Subscriber) -> None:
    wait_until(lambda: not any(row(daemon, client)["queued"] for client in clients), "nothing to be queued")


def end(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket) as publisher:
        publisher.publish("flow/end")
        publisher.drain()


def complete(count: int) -> dict[str, Any]:
    return {"received": count, "lost": 0, "wrong": [], "closed": False}


@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_a_dropping_reader_learns_its_exact_loss(
    daemon: DaemonProcess, subscriber: Start, readers: list[Subscriber], policy: str, pack: bool
) -> None:
    count = 40_000
    victim = subscriber(queue=f"policy={policy}", pack=pack)
    victim.signal(signal.SIGSTOP)
    with PacketClient(daemon.socket) as publisher:
        publish(publisher, count)
    stopped = row(daemon, victim)
    assert stopped["dropped"] > 0
    assert 0 < stopped["queued"] <= 5000
    assert (stopped["policy"], stopped["holds"]) == (policy, 0)
    assert stopped["slow"] is not None
    victim.signal(signal.SIGCONT)
    wait_until_read(daemon, victim)
    end(daemon)
    assert [reader.result() for reader in readers] == [complete(count)] * 2
    seen = victim.result()
    assert seen["wrong"] == []
    assert seen["lost"] == stopped["dropped"]
    assert seen["received"] + seen["lost"] == count
    wait_until(lambda: daemon.logged("client too slow"), "a line in the log")
    # A machine can be so busy that one of the readers has one, too.
    [line] = [line for line in daemon.logged("client too slow") if line["pid"] == victim.pid]
    assert (line["policy"], line["reason"]) == (policy, "loses messages")
    assert line.keys() >= {"name", "uid", "program", "queued", "queued_bytes", "dropped"}
    assert line["level"] == "warning"


def test_disconnect_closes_only_the_slow_reader(
    daemon: DaemonProcess, subscriber: Start, readers: list[Subscriber]
) -> None:
    count = 40_000
    victim = subscriber(queue="policy=disconnect")
    victim.signal(signal.SIGSTOP)
    with PacketClient(daemon.socket) as publisher:
        publish(publisher, count)
    assert row_of(daemon, victim) is None
    end(daemon)
    assert [reader.result() for reader in readers] == [complete(count)] * 2
    victim.signal(signal.SIGCONT)
    seen = victim.result()
    assert (seen["closed"], seen["lost"], seen["wrong"]) == (True, 0, [])
    assert 0 < seen["received"] < count
    [line] = daemon.logged("client closed")
    assert (line["pid"], line["policy"], line["reason"]) == (victim.pid, "disconnect", "slow")


def hear(port: int, listener: PacketClient, count: int) -> None:
    """``count`` numbered datagrams from the network, as fast as the listener takes them."""
    with plain_socket(port) as network:
        for number in range(count):
            network.sendto(
                datagram("there/x/1", number + 1, "flow/net", b"%d ." % number), (LOOPBACK_BROADCAST, port)
            )
            if number % 20 == 19 or number == count - 1:
                heard = [listener.message() for _ in range(number % 20 + 1)]
                assert heard[-1] == ("flow/net", b"%d ." % number)


def test_block_holds_publishers_for_its_time_only(
    daemon: DaemonProcess, subscriber: Start, readers: list[Subscriber], loopback_port: int
) -> None:
    count, heard = 40_000, 200
    victim = subscriber(queue="policy=block")
    victim.signal(signal.SIGSTOP)
    with PacketClient(daemon.socket) as publisher, PacketClient(daemon.socket) as listener:
        name = publisher.request("whoami")
        listener.subscribe("flow/net")
        publishing = threading.Thread(target=publish, args=(publisher, count))
        publishing.start()
        wait_until(lambda: row(daemon, victim)["held"] == [name], "the publisher to be held")
        wait_until_read(daemon, *readers)
        hear(loopback_port, listener, heard)
        held = row_of(daemon, victim)
        assert held is not None, "the network flows while the publisher is held"
        assert held["holds"] == 1
        settings = daemon.socket.with_name("bccnd.toml")
        settings.write_text(SETTINGS.replace(BLOCK_SECONDS, "block_seconds = 1"))
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: row_of(daemon, victim) is None, "the victim to be cut off")
        publishing.join()
    end(daemon)
    assert [reader.result() for reader in readers] == [complete(count + heard)] * 2
    [line] = daemon.logged("client closed")
    assert (line["pid"], line["policy"], line["reason"]) == (victim.pid, "block", "slow")
    assert (line["holds"], line["held"]) == (1, [name])
    victim.signal(signal.SIGCONT)
    assert victim.result()["closed"]


def test_block_reports_drops_from_the_network(
    daemon: DaemonProcess, subscriber: Start, loopback_port: int
) -> None:
    count = 1000
    victim = subscriber(queue="policy=block packets=50")
    victim.signal(signal.SIGSTOP)
    with PacketClient(daemon.socket) as listener:
        listener.subscribe("flow/net")
        hear(loopback_port, listener, count)
    stopped = row(daemon, victim)
    assert (stopped["queued"], stopped["holds"]) == (50, 0)
    victim.signal(signal.SIGCONT)
    wait_until_read(daemon, victim)
    end(daemon)
    seen = victim.result()
    assert (seen["wrong"], seen["closed"]) == ([], False)
    assert seen["lost"] == stopped["dropped"] > 0
    assert seen["received"] + seen["lost"] == count


def memory(daemon: DaemonProcess, field: str) -> int:
    """Bytes of resident memory: VmRSS now, VmHWM at most so far."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(status.partition(field + ":")[2].split()[0]) * 1024


def test_memory_stays_bounded_however_many_are_slow(
    daemon: DaemonProcess, subscriber: Start, readers: list[Subscriber]
) -> None:
    """80 MB pass. Queues may hold 4 MiB; reads, packs and the allocator take the slack."""
    count, size, slack = 40_000, 2000, 12 * MIB
    victims = [subscriber(pack=pack, queue="packets=100000 bytes=2097152") for pack in (False, True) * 3]
    for victim in victims:
        victim.signal(signal.SIGSTOP)
    before = memory(daemon, "VmRSS")
    with PacketClient(daemon.socket) as publisher:
        publish(publisher, count, size)
        # What a reader that blocks has not taken yet may pass the limit, by one read of the publisher.
        wait_until(lambda: publisher.status()["queued"]["bytes"] <= 4 * MIB, "queues within their limit")
    assert memory(daemon, "VmHWM") - before < 4 * MIB + slack
    for victim in victims:
        victim.signal(signal.SIGCONT)
    wait_until_read(daemon, *victims)
    end(daemon)
    assert [reader.result() for reader in readers] == [complete(count)] * 2
    for victim in victims:
        seen = victim.result()
        assert (seen["wrong"], seen["received"] + seen["lost"]) == ([], count)
    with PacketClient(daemon.socket) as asking:
        assert asking.status()["queued"] == {"packets": 0, "bytes": 0}
