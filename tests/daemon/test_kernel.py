"""A daemon whose kernel filters and drops datagrams: what it counts, reports and hands over."""

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from bccnd.daemon import kernel
from bccnd.daemon.kernel import Kernel, enough, remedy
from tests.daemon_process import LOOPBACK_BROADCAST
from tests.packet_client import PacketClient, wait_until
from tests.plain_bccn import datagram, plain_socket
from tests.replaceable_daemon import ReplaceableDaemon

FLOOD = 400  # datagrams of 1400 bytes: far more than SMALL holds
SMALL = 64 << 10


@pytest.fixture
def running(tmp_path: Path, loopback_port: int) -> Iterator[ReplaceableDaemon]:
    flags = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port))
    environ = {"BCCND_BUFFERS__RECEIVE_BYTES": str(SMALL), "BCCND_LOG__FORMAT": "json"}
    with ReplaceableDaemon(tmp_path, *flags, environ=environ) as daemon:
        yield daemon


@pytest.fixture
def network(loopback_port: int) -> Iterator[Callable[[bytes], object]]:
    with plain_socket(0) as sock:
        yield lambda sent: sock.sendto(sent, (LOOPBACK_BROADCAST, loopback_port))


def counts(client: PacketClient) -> tuple[int, int]:
    return handled(client)[:2]


def handled(client: PacketClient) -> tuple[int, int, int]:
    """How many datagrams were dropped, filtered and received: each is one of them."""
    status = client.status()
    return status["kernel"]["dropped"], status["kernel"]["filtered"], status["counters"]["received"]


def test_foreign_datagrams_are_counted_but_not_read(
    running: ReplaceableDaemon, network: Callable[[bytes], object]
) -> None:
    with PacketClient(running.socket) as client:
        for other in (b"", b"BCC", b"HELLO", b"BCCX1[3]a"):
            network(other)
        network(b"BCCN9[3]abc")
        network(b"BCCN")
        wait_until(lambda: client.rejected("version") + client.rejected("magic") == 2, "a verdict on both")
        assert sum(counts(client)) == 4
        assert client.status()["counters"]["received"] == 2


def test_the_filter_is_off_while_somebody_taps(
    running: ReplaceableDaemon, network: Callable[[bytes], object]
) -> None:
    with PacketClient(running.socket) as tap, PacketClient(running.socket) as client:
        network(b"not yet")
        assert tap.request("tap", "on") == "on"
        network(b"HELLO")
        assert tap.receive().endswith(b" magic\0HELLO")
        running.replace()
        network(b"HELLO again")
        assert tap.receive().endswith(b" magic\0HELLO again")
        assert tap.request("tap", "off") == "off"
        before = sum(counts(client))
        network(b"no more")
        wait_until(lambda: sum(counts(client)) > before, "the kernel's count")
        assert sum(counts(client)) == before + 1 == 2
        assert client.rejected("magic") == 2


def test_an_overflow_is_counted_and_reported_with_a_remedy(
    running: ReplaceableDaemon, network: Callable[[bytes], object]
) -> None:
    with PacketClient(running.socket) as client:
        os.kill(running.pid, signal.SIGSTOP)
        try:
            for number in range(FLOOD):
                network(datagram("noise", 1 + number, "noise/x", bytes(1300)))
                network(b"HELLO")
        finally:
            os.kill(running.pid, signal.SIGCONT)
        wait_until(lambda: sum(handled(client)) >= 2 * FLOOD, "an end to each of them")
        dropped, filtered, received = handled(client)
        assert dropped + filtered + received == 2 * FLOOD
        # More only if another program overflows in the same second.
        assert dropped >= FLOOD - received > FLOOD // 2
        wait_until(lambda: running.logged("kernel dropped datagrams: receive buffer full"), "a warning")
        (line,) = running.logged("kernel dropped datagrams: receive buffer full")
        assert line["dropped"] == dropped
        assert line["buffer"] == SMALL < line["wanted"]
        assert f"set buffers.receive_bytes = {line['wanted']}" in line["remedy"]
        running.replace()
        assert counts(client) == (dropped, filtered)
        network(b"HELLO")
        wait_until(lambda: sum(counts(client)) > dropped + filtered, "the kernel's count")
        assert sum(counts(client)) == dropped + filtered + 1
        assert len(running.logged("kernel dropped datagrams: receive buffer full")) == 1


# --- the account, in this process ---


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    with ExitStack() as opened:
        yield [opened.enter_context(plain_socket(0))]


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """What is logged, even if a daemon ran in this process before and configured logging."""
    structlog.reset_defaults()
    with capture_logs() as captured:
        yield captured


def test_a_small_buffer_is_reported_once_per_socket(sockets: list[socket.socket], lines: list[Any]) -> None:
    sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    watched = Kernel(lambda: sockets, 8192)
    watched.tapped(False)
    assert lines == []
    watched = Kernel(lambda: sockets, 1 << 20)
    watched.tapped(False)
    watched.tick(0.0)
    (line,) = lines
    assert line["event"] == "receive buffer smaller than configured"
    assert line["buffer"] == 8192
    with plain_socket(0) as another:
        sockets.append(another)
        watched.tick(1.0)
        assert len(lines) == 2
        sockets.pop()


def test_drops_are_reported_once_an_interval(
    sockets: list[socket.socket], lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = iter([3, 0, 5, 2, 0])
    watched = Kernel(lambda: sockets, 4096)

    def sample(_sockets: object) -> int:
        new = next(lost)
        watched._drops.dropped += new
        return new

    monkeypatch.setattr(watched._drops, "sample", sample)
    for now in (0.0, 1.0, 2.0, 3.0, kernel.REPORT_SECONDS):
        watched.tick(now)
    assert [line["dropped"] for line in lines if line["event"].startswith("kernel dropped")] == [3, 7]


@pytest.mark.parametrize(
    ("given", "lost", "wanted"), [(65536, 1, 131072), (65536, 0, 65536), (1 << 20, 10_000, 1 << 24)]
)
def test_the_buffer_that_is_enough_is_a_power_of_two(given: int, lost: int, wanted: int) -> None:
    assert enough(given, lost) == wanted


@pytest.mark.parametrize(
    ("wanted", "given", "configured", "allowed", "steps"),
    [
        # Less is allowed than configured; more is needed than both; CAP_NET_ADMIN; the limit is hidden.
        (4096, 1024, 4096, 1024, ["sysctl -w net.core.rmem_max=4096"]),
        (8192, 1024, 4096, 1024, ["sysctl -w net.core.rmem_max=8192", "set buffers.receive_bytes = 8192"]),
        (8192, 4096, 4096, 1024, ["set buffers.receive_bytes = 8192"]),
        (8192, 1024, 1024, 1 << 20, ["set buffers.receive_bytes = 8192"]),
        (8192, 4096, 4096, None, ["sysctl -w net.core.rmem_max=8192", "set buffers.receive_bytes = 8192"]),
    ],
)
def test_the_remedy_has_the_steps_that_apply(
    wanted: int, given: int, configured: int, allowed: int | None, steps: list[str]
) -> None:
    text = remedy(wanted, given, configured, allowed)
    assert text == ", then ".join([*steps, "systemctl kill --kill-whom=main -s USR2 bccnd"])


def test_a_buffer_at_its_limit_has_another_remedy() -> None:
    assert "more CPU" in remedy(1 << 30, 1 << 30, 1 << 30, 1 << 20)


def test_the_state_is_plain_values(sockets: list[socket.socket]) -> None:
    made = Kernel(lambda: sockets, 4096)
    made.tick(0.0)
    assert json.loads(json.dumps(made.state()))["dropped"] == 0
