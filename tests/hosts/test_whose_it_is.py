"""Whose a datagram is: what a host sent itself, and how much room the sources of each host take."""

import json
from typing import Any

from tests.hosts.conftest import PORT, StartDaemon
from tests.hosts.segment import BROADCAST, Segment
from tests.packet_client import PacketClient, wait_until
from tests.plain_bccn import datagram


def test_what_comes_back_is_own_and_the_rest_a_conflict(segment: Segment, start_daemon: StartDaemon) -> None:
    """By where it comes from: another host sends the very bytes that this one sent."""
    alpha, beta, _ = segment.hosts
    daemon = start_daemon(alpha, key=None)
    with PacketClient(daemon.socket) as client, beta.udp_socket(PORT) as thief:
        client.request("whoami")
        for _ in range(5):
            client.publish("demo/x", b"mine")
        heard: list[bytes] = []
        while len(heard) < 5:
            if (one := thief.recv(2048)).endswith(b"|mine"):
                heard.append(one)
        wait_until(lambda: client.rejected("own") >= 5, "the echoes")
        for each in heard:
            thief.sendto(each, (BROADCAST, PORT))
        wait_until(lambda: client.rejected("conflict") == 5, "the conflicts")


def test_the_echo_of_a_program_that_has_left_is_own(segment: Segment, start_daemon: StartDaemon) -> None:
    daemon = start_daemon(segment.hosts[0], key=None)
    with PacketClient(daemon.socket) as watching:
        for _ in range(20):
            with PacketClient(daemon.socket) as brief:
                brief.publish("demo/x", b"short")
        wait_until(lambda: watching.rejected("own") >= 20, "the echoes")
        assert watching.rejected("duplicate") == 0


def test_one_host_pushes_out_nobody_elses_presence(segment: Segment, start_daemon: StartDaemon) -> None:
    alpha, beta, gamma = segment.hosts
    daemon = start_daemon(alpha, key=None, environ={"BCCND_DEDUP__SOURCES": "256"})
    start_daemon(beta, key=None, environ={"BCCND_HEARTBEAT__SECONDS": "1"})
    with PacketClient(daemon.socket) as client, gamma.udp_socket(PORT) as loud:

        def row() -> dict[str, Any] | None:
            rows = json.loads(client.request("sources"))["sources"]
            return next((each for each in rows if each["src"].startswith("beta/bccnd/")), None)

        wait_until(lambda: (found := row()) is not None and found["state"] == "alive", "the other daemon")
        for number in range(2000):
            src = f"made-up{number}/prog/1" if number % 2 else f"gamma/prog/{number}"
            loud.sendto(datagram(src, 1, f"heartbeat/{src}", b""), (BROADCAST, PORT))
        wait_until(lambda: client.status()["counters"]["accepted"] >= 1000, "the flood")
        found = row()
        assert found is not None
        assert found["state"] == "alive"
