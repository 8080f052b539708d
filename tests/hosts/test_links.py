"""Interfaces of hosts: every kind of address, links that come and go, and links that two hosts share."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.daemon_process import DaemonProcess
from tests.hosts.conftest import PORT, UNREPAIRED, StartDaemon
from tests.hosts.segment import Host, Segment, forwards, ip
from tests.packet_client import PacketClient, wait_until

GROUP, GROUP6 = "239.54.0.1", "ff02::5400"


def interfaces(daemon: DaemonProcess) -> list[str]:
    with PacketClient(daemon.socket) as client:
        return sorted(row["interface"] for row in client.status()["segments"])


def wait_for_interfaces(daemon: DaemonProcess, *names: str) -> None:
    wait_until(lambda: interfaces(daemon) == list(names), f"bindings by {names}")


def publish(client: PacketClient, numbers: Sequence[int]) -> None:
    for number in numbers:
        client.publish("demo/x", b"%d" % number)


def heard(client: PacketClient, count: int) -> list[int]:
    """So many numbers, and those that have come besides until the daemon answers."""
    first = [int(client.message()[1]) for _ in range(count)]
    return first + [int(packet.rpartition(b"\0")[2]) for packet in client.drain()]


def arrives(sender: DaemonProcess, receiver: PacketClient) -> bool:
    with PacketClient(sender.socket) as client:
        client.publish("demo/x", b"0")
        client.drain()
    return bool(receiver.drain())


def plug(host: Host, name: str, address: str, switch: str, bridge: str) -> None:
    """A veth from the host to a bridge in the namespace of the switch."""
    port = f"{name}-{host.name}"
    ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", name, "netns", host.namespace)
    ip("-n", switch, "link", "set", port, "master", bridge, "up")
    ip("-n", host.namespace, "address", "add", address, "brd", "+", "dev", name)
    ip("-n", host.namespace, "link", "set", name, "up")
    wait_until(lambda: forwards(switch, bridge), "the bridge to forward")


@pytest.mark.parametrize("address", ["255.255.255.255", "10.99.0.255", "subnet", GROUP, GROUP6])
def test_each_kind_of_address_reaches_each_host_once(
    segment: Segment, start_daemon: StartDaemon, address: str
) -> None:
    daemons = [start_daemon(host, "--broadcast", address, ready=False) for host in segment.hosts]
    for daemon in daemons:
        daemon.wait_until_ready()
        wait_for_interfaces(daemon, "eth0")
    with (
        PacketClient(daemons[0].socket) as alpha,
        PacketClient(daemons[1].socket) as beta,
        PacketClient(daemons[2].socket) as gamma,
    ):
        for client in (alpha, beta, gamma):
            client.subscribe("demo/>")
        publish(alpha, range(100))
        for client in (alpha, beta, gamma):
            assert heard(client, 100) == list(range(100))
        wait_until(lambda: alpha.status()["rejected"].get("own", 0) >= 100, "its own datagrams to come back")
        assert alpha.drain() == []
        assert beta.status()["rejected"].get("duplicate", 0) == 0


@pytest.mark.parametrize("group", [GROUP, GROUP6])
def test_multicast_stays_on_the_link(segment: Segment, start_daemon: StartDaemon, group: str) -> None:
    alpha, beta, _ = segment.hosts
    daemon = start_daemon(alpha, "--broadcast", group)
    wait_for_interfaces(daemon, "eth0")
    assert group in alpha.run(["ip", "maddress", "show", "dev", "eth0"]).stdout
    tcpdump = ["tcpdump", "-i", "eth0", "-n", "-v", "-c", "1", "--immediate-mode", "udp", "port", str(PORT)]
    with (
        beta.start(tcpdump, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as capture,
        PacketClient(daemon.socket) as client,
    ):
        assert capture.stdout
        assert capture.stderr
        assert b"listening" in capture.stderr.readline()
        client.publish("demo/x", b"1")
        shown = capture.stdout.read().decode()
    assert "ttl 1," in shown or "hlim 1," in shown


def test_links_come_and_go(segment: Segment, start_daemon: StartDaemon) -> None:
    """A host without a link serves its own programs; with the first link it serves the segment too."""
    alpha, beta, _ = segment.hosts
    switch = alpha.namespace.removesuffix("alpha") + "switch"
    ip("-n", alpha.namespace, "link", "delete", "eth0")
    daemon, other = start_daemon(alpha), start_daemon(beta)
    with PacketClient(daemon.socket) as here, PacketClient(other.socket) as there:
        here.subscribe("demo/>")
        there.subscribe("demo/>")
        publish(here, range(3))
        assert heard(here, 3) == [0, 1, 2]
        assert "serving this host alone" in daemon.log
        wait_until(lambda: here.status()["counters"]["unsent"] >= 3, "that nothing was sent")
        for name in ("eth0", "lan7", "eth0"):
            plug(alpha, name, "10.99.0.1/24", switch, "br0")
            wait_for_interfaces(daemon, name)
            there.drain()
            wait_until(lambda: arrives(daemon, there), "a message on the other host")
            here.drain()
            wait_until(lambda: arrives(other, here), "a message from the other host")
            ip("-n", alpha.namespace, "link", "delete", name)
            wait_for_interfaces(daemon)
    with PacketClient(daemon.socket) as client:
        assert client.status()["counters"]["sent"] >= 3  # by links that are gone


def test_a_link_comes_back_with_another_address(segment: Segment, start_daemon: StartDaemon) -> None:
    alpha = segment.hosts[0]
    daemon = start_daemon(alpha, "--broadcast", "subnet")
    wait_for_interfaces(daemon, "eth0")
    ip("-n", alpha.namespace, "link", "set", "eth0", "down")
    wait_for_interfaces(daemon)
    ip("-n", alpha.namespace, "link", "set", "eth0", "up")
    wait_for_interfaces(daemon, "eth0")
    ip("-n", alpha.namespace, "address", "del", "10.99.0.1/24", "dev", "eth0")
    wait_for_interfaces(daemon)
    ip("-n", alpha.namespace, "address", "add", "10.77.0.1/16", "dev", "eth0")
    wait_for_interfaces(daemon, "eth0")
    with PacketClient(daemon.socket) as client:
        assert [row["address"] for row in client.status()["segments"]] == ["10.77.255.255"]


def test_datagrams_come_from_the_address_that_holds_now(segment: Segment, start_daemon: StartDaemon) -> None:
    alpha, beta = segment.hosts[:2]
    near = start_daemon(alpha, "--broadcast", "10.99.0.255")
    far = start_daemon(beta, "--broadcast", "10.99.0.255")
    with PacketClient(near.socket) as client, PacketClient(far.socket) as reader:
        reader.request("format", "full")
        reader.subscribe("demo/>")

        def comes_from(address: str) -> bool:
            client.publish("demo/x")
            return any(packet.startswith(b"RECV %b:" % address.encode()) for packet in reader.drain())

        wait_until(lambda: comes_from(alpha.address), "a message from the first address")
        ip("-n", alpha.namespace, "address", "add", "10.99.0.77/24", "brd", "+", "dev", "eth0")
        ip("-n", alpha.namespace, "address", "del", f"{alpha.address}/24", "dev", "eth0")
        ip("-n", alpha.namespace, "address", "replace", "10.99.0.77/24", "brd", "+", "dev", "eth0")
        wait_until(lambda: comes_from("10.99.0.77"), "one from the second")


def test_two_shared_links_deliver_once_and_never_loop(segment: Segment, start_daemon: StartDaemon) -> None:
    alpha, beta, _ = segment.hosts
    switch = alpha.namespace.removesuffix("alpha") + "switch"
    ip("-n", switch, "link", "add", "br1", "type", "bridge")
    ip("-n", switch, "link", "set", "br1", "up")
    plug(alpha, "eth1", "10.98.0.1/24", switch, "br1")
    plug(beta, "eth1", "10.98.0.2/24", switch, "br1")
    daemons = [start_daemon(host, environ=UNREPAIRED) for host in (alpha, beta)]
    for daemon in daemons:
        wait_for_interfaces(daemon, "eth0", "eth1")
    with PacketClient(daemons[0].socket) as here, PacketClient(daemons[1].socket) as there:
        here.subscribe("demo/>")
        there.subscribe("demo/>")
        publish(here, range(200))
        assert heard(there, 200) == list(range(200))
        assert heard(here, 200) == list(range(200))
        wait_until(lambda: there.status()["counters"]["received"] == 400, "all that was sent twice")
        assert there.drain() == here.drain() == []
        assert here.status()["counters"]["sent"] == 400
        assert there.status()["counters"]["sent"] == 0


def test_container_bridges_are_used_only_when_named(segment: Segment, start_daemon: StartDaemon) -> None:
    alpha, beta, _ = segment.hosts
    for host in (alpha, beta):
        ip("-n", host.namespace, "link", "add", "docker0", "type", "bridge")
        ip("-n", host.namespace, "address", "add", "172.17.0.1/16", "brd", "+", "dev", "docker0")
        ip("-n", host.namespace, "link", "set", "docker0", "up")
    assert interfaces(start_daemon(alpha)) == ["eth0"]
    assert interfaces(start_daemon(beta, "--interface", "docker0", "--interface", "eth*")) == [
        "docker0",
        "eth0",
    ]


def test_a_reload_changes_bindings_and_keeps_clients(
    segment: Segment, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    alpha, beta, _ = segment.hosts
    file = tmp_path / "bccnd.toml"
    file.write_text('interfaces = ["lo"]\n')
    daemon, other = start_daemon(alpha, "--config", str(file)), start_daemon(beta)
    with PacketClient(daemon.socket) as here, PacketClient(other.socket) as there:
        here.subscribe("demo/>")
        there.subscribe("demo/>")
        assert interfaces(daemon) == ["lo"]
        file.write_text("")
        os.kill(daemon.process.pid, signal.SIGHUP)
        wait_for_interfaces(daemon, "eth0")
        publish(here, [1])
        assert heard(there, 1) == [1]
        assert heard(here, 1) == [1]
