"""The daemon on bad days of its sockets: clients that leave in a hurry, no descriptors, a listener shut down."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon_process import DaemonProcess
from tests.packet_client import PacketClient, wait_until


@contextmanager
def stopped(daemon: DaemonProcess) -> Iterator[None]:
    """The daemon finds at once whatever happened meanwhile."""
    daemon.process.send_signal(signal.SIGSTOP)
    state = Path(f"/proc/{daemon.process.pid}/stat")
    wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "the daemon to stop")
    try:
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


def roomy(client: PacketClient) -> None:
    """Let it send all of a test's packets while the daemon reads none."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)


def numbered(count: int) -> list[tuple[str, bytes]]:
    return [("last/words", b"%d" % number) for number in range(count)]


@pytest.mark.parametrize("count", [1, 64, 150], ids=["one", "a batch", "more"])
def test_last_words_of_a_client_that_leaves_with_packets_unread(daemon: DaemonProcess, count: int) -> None:
    """The kernel makes such an end a reset, which is told before what the client sent."""
    with PacketClient(daemon.socket) as listener:
        listener.subscribe("last/>")
        with PacketClient(daemon.socket) as hasty:
            roomy(hasty)
            hasty.subscribe("busy/>")
            listener.publish("busy/x", b"never read")
            listener.drain()
            with stopped(daemon):
                for chan, payload in numbered(count):
                    hasty.publish(chan, payload)
                hasty.close()
        assert [listener.message() for _ in range(count)] == numbered(count)
        wait_until(lambda: listener.status()["clients"] == 1, "the client to be forgotten")


@pytest.mark.parametrize("count", [1, 150], ids=["one", "more than a batch"])
def test_last_words_of_a_client_that_a_delivery_finds_gone(daemon: DaemonProcess, count: int) -> None:
    with PacketClient(daemon.socket) as listener, PacketClient(daemon.socket) as busy:
        listener.subscribe("last/>")
        with PacketClient(daemon.socket) as hasty:
            roomy(hasty)
            hasty.subscribe("busy/>")
            busy.drain()
            with stopped(daemon):
                busy.publish("busy/x", b"finds it gone")  # read first, since it came first
                for chan, payload in numbered(count):
                    hasty.publish(chan, payload)
                hasty.close()
        assert [listener.message() for _ in range(count)] == numbered(count)
        wait_until(lambda: listener.status()["clients"] == 2, "the client to be forgotten")
