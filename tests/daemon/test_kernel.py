"""A daemon whose kernel filters and drops: what it counts, says of it, and hands on."""

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

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
    row = client.status()["kernel"]
    return row["dropped"], row["filtered"]


def test_what_is_no_bccn_is_not_read_but_counted(
    running: ReplaceableDaemon, network: Callable[[bytes], object]
) -> None:
    with PacketClient(running.socket) as client:
        for other in (b"", b"BCC", b"HELLO", b"BCCX1[3]a"):
            network(other)
        network(b"BCCN9[3]abc")
        network(b"BCCN")
        wait_until(lambda: client.rejected("version") + client.rejected("magic") == 2, "both to be judged")
        assert sum(counts(client)) == 4
        assert client.status()["counters"]["received"] == 2


def test_a_tap_sees_everything_from_its_answer_on_and_the_last_one_puts_the_filter_back(
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
        assert sum(counts(client)) == before + 1 == 2
        assert client.rejected("magic") == 2


def test_an_overflow_is_counted_and_warned_about_with_its_remedy_and_both_survive_a_replacement(
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
        dropped, filtered = counts(client)
        received = client.status()["counters"]["received"]
        assert dropped + filtered + received == 2 * FLOOD
        assert (
            dropped >= FLOOD - received > FLOOD // 2
        )  # more only if another program overflowed in this second
        wait_until(lambda: running.logged("kernel dropped datagrams: receive buffer full"), "a warning")
        (line,) = running.logged("kernel dropped datagrams: receive buffer full")
        assert line["dropped"] == dropped
        assert line["buffer"] == SMALL < line["wanted"]
        assert f"set buffers.receive_bytes = {line['wanted']}" in line["remedy"]
        running.replace()
        assert counts(client) == (dropped, filtered)
        network(b"HELLO")
        assert sum(counts(client)) == dropped + filtered + 1
        assert len(running.logged("kernel dropped datagrams: receive buffer full")) == 1


# --- the account, in a process of its own ---


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    with ExitStack() as opened:
        yield [opened.enter_context(plain_socket(0))]


def events(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line]


def test_a_smaller_buffer_than_configured_is_said_once_per_socket(
    sockets: list[socket.socket], capsys: pytest.CaptureFixture[str]
) -> None:
    sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    watched = Kernel(lambda: sockets, 8192)
    watched.tapped(False)
    assert events(capsys) == []
    watched = Kernel(lambda: sockets, 1 << 20)
    watched.tapped(False)
    watched.tick(0.0)
    (line,) = events(capsys)
    assert "receive buffer smaller than configured" in line
    assert "buffer=8192" in line
    with plain_socket(0) as another:
        sockets.append(another)
        watched.tick(1.0)
        assert len(events(capsys)) == 1
        sockets.pop()


def test_losses_are_told_once_in_a_while(
    sockets: list[socket.socket], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = iter([3, 0, 5, 2, 0])
    watched = Kernel(lambda: sockets, 4096)

    def sample(_sockets: object) -> int:
        new = next(lost)
        watched._drops.dropped += new
        return new

    monkeypatch.setattr(watched._drops, "sample", sample)
    told = []
    for now in (0.0, 1.0, 2.0, 3.0, kernel.REPORT_SECONDS):
        watched.tick(now)
        told += [line for line in events(capsys) if "kernel dropped" in line]
    assert [line.split("dropped=")[1].split()[0] for line in told] == ["3", "7"]


@pytest.mark.parametrize(
    ("given", "lost", "wanted"), [(65536, 1, 131072), (65536, 0, 65536), (1 << 20, 10_000, 1 << 24)]
)
def test_the_buffer_that_would_have_been_enough_is_a_power_of_two(given: int, lost: int, wanted: int) -> None:
    assert enough(given, lost) == wanted


@pytest.mark.parametrize(
    ("wanted", "given", "configured", "allowed", "steps"),
    [
        # Not permitted what is configured; more is needed than both; unlimited (CAP_NET_ADMIN); nothing known.
        (4096, 1024, 4096, 1024, ["sysctl -w net.core.rmem_max=4096"]),
        (8192, 1024, 4096, 1024, ["sysctl -w net.core.rmem_max=8192", "set buffers.receive_bytes = 8192"]),
        (8192, 4096, 4096, 1024, ["set buffers.receive_bytes = 8192"]),
        (8192, 1024, 1024, 1 << 20, ["set buffers.receive_bytes = 8192"]),
        (8192, 4096, 4096, None, ["sysctl -w net.core.rmem_max=8192", "set buffers.receive_bytes = 8192"]),
    ],
)
def test_the_remedy_has_what_applies(
    wanted: int, given: int, configured: int, allowed: int | None, steps: list[str]
) -> None:
    text = remedy(wanted, given, configured, allowed)
    assert text == ", then ".join([*steps, "systemctl kill --kill-whom=main -s USR2 bccnd"])


def test_without_a_remedy_it_says_so() -> None:
    assert "more CPU" in remedy(1 << 30, 1 << 30, 1 << 30, 1 << 20)


def test_the_state_is_plain(sockets: list[socket.socket]) -> None:
    made = Kernel(lambda: sockets, 4096)
    made.tick(0.0)
    assert json.loads(json.dumps(made.state()))["dropped"] == 0
