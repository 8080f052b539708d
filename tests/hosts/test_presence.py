"""Presence of three hosts: they appear, one is killed, one is cut off and comes back."""

import json
from collections import defaultdict
from typing import Any

from tests.command_line import bccn
from tests.daemon_process import DaemonProcess
from tests.hosts.conftest import StartDaemon
from tests.hosts.segment import Segment, ip
from tests.packet_client import PATIENCE, PacketClient, wait_until

BEATING = {"BCCND_HEARTBEAT__SECONDS": "1"}


class Watcher:
    """What one host reports of the others: their events in order, and the notices."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.client = PacketClient(daemon.socket)
        self.client.subscribe("local/presence/>")
        self._here = self.client.request("whoami").partition("/")[0]
        self.events: defaultdict[str, list[str]] = defaultdict(list)
        self.notices: list[dict[str, Any]] = []

    def saw(self, host: str, *events: str) -> bool:
        for packet in self.client.drain():
            notice = json.loads(packet.partition(b"\0")[2])
            source = notice["src"].partition("/")[0]
            if source != self._here:
                self.events[source].append(notice["event"])
                self.notices.append(notice)
        return self.events[host] == list(events)


def test_hosts_appear_fall_silent_and_come_back(start_daemon: StartDaemon, segment: Segment) -> None:
    alpha, beta, gamma = segment.hosts
    watching = start_daemon(alpha, environ=BEATING)
    watcher = Watcher(watching)
    killed = start_daemon(beta, environ=BEATING)
    cut_off = start_daemon(gamma, environ=BEATING)
    for host in (beta, gamma):
        wait_until(lambda host=host: watcher.saw(host.name, "appeared"), f"{host.name} to appear")
    assert {notice["peer"].partition(":")[0] for notice in watcher.notices} == {beta.address, gamma.address}
    wait_until(lambda: paces(watching) == {1}, "the interval of their heartbeats")

    killed.kill()
    ip("-n", gamma.namespace, "link", "set", "eth0", "down")
    for host in (beta, gamma):
        wait_until(lambda host=host: watcher.saw(host.name, "appeared", "silent"), f"silence of {host.name}")
    ip("-n", gamma.namespace, "link", "set", "eth0", "up")
    ip("-n", gamma.namespace, "route", "replace", "default", "dev", "eth0")
    wait_until(lambda: watcher.saw(gamma.name, "appeared", "silent", "back"), "its return")

    assert bccn(watching, "ping", gamma.name, "-c", "1", "-W", str(PATIENCE)).returncode == 0
    assert bccn(watching, "ping", beta.name, "-c", "1", "-W", "0.2").returncode == 3
    cut_off.terminate()
    wait_until(lambda: watcher.saw(gamma.name, "appeared", "silent", "back", "left"), "its farewell")
    killed.start()
    wait_until(lambda: watcher.saw(beta.name, "appeared", "silent", "appeared"), "its successor")
    watcher.client.close()


def paces(daemon: DaemonProcess) -> set[int]:
    with PacketClient(daemon.socket) as client:
        sources = json.loads(client.request("sources"))["sources"]
    return {round(row["heartbeat"] or 0) for row in sources}
