"""Whose a datagram is: what a host sent itself, and how much room the sources of each host take."""

import json
from typing import Any

import pytest

from tests.hosts.conftest import KEY, PORT, StartDaemon
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


@pytest.mark.parametrize("key", [None, KEY])
def test_one_host_pushes_out_nobody_elses_presence(
    segment: Segment, start_daemon: StartDaemon, key: bytes | None
) -> None:
    """With the key it may invent hosts as well."""
    alpha, beta, gamma = segment.hosts
    daemon = start_daemon(alpha, key=key, environ={"BCCND_DEDUP__SOURCES": "256"})
    other = start_daemon(beta, key=key, environ={"BCCND_HEARTBEAT__SECONDS": "1"})
    with (
        PacketClient(daemon.socket) as client,
        PacketClient(other.socket) as beating,
        gamma.udp_socket(PORT) as loud,
    ):
        beating.request("heartbeat", "1")

        def alive() -> set[str]:
            rows: list[dict[str, Any]] = json.loads(client.request("sources", "beta/"))["sources"]
            rows = [row for row in rows if row["src"].startswith("beta/") and row["state"] == "alive"]
            return {row["src"] for row in rows}

        wait_until(lambda: len(alive()) == 2, "the other daemon and its client")
        before = alive()
        for number in range(2000):
            src = f"made-up{number}/prog/1" if number % 4 else f"gamma/prog/{number}"
            loud.sendto(datagram(src, 1, f"heartbeat/{src}", b"", key), (BROADCAST, PORT))
        wait_until(lambda: client.status()["counters"]["accepted"] >= 1000, "the flood")
        assert alive() == before
