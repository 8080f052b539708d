"""SIGTERM on busy days: what was said is delivered, and nobody can keep the daemon from leaving."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE, PacketClient
from tests.plain_bccn import datagram, plain_socket

PAYLOAD = bytes(1000)


@pytest.fixture
def busy() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Does one thing without end, in a thread, until it fails for want of a daemon or the test is over."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def keep_doing(action: Callable[[], object]) -> None:
        def work() -> None:
            try:
                while not over.is_set():
                    action()
            except OSError:
                pass

        threads.append(threading.Thread(target=work, daemon=True))
        threads[-1].start()

    yield keep_doing
    over.set()
    for thread in threads:
        thread.join(PATIENCE)


def heard_until_closed(client: PacketClient) -> int:
    """How many messages the daemon had for this client before it said that it leaves."""
    heard = 0
    while (packet := client.receive()) != b"CMSG closing\0shutdown":
        assert packet == b"MSG local/x\0" + PAYLOAD
        heard += 1
    return heard


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest", "block"])
def test_a_stopped_client_holds_nobody_up(daemon: DaemonProcess, policy: str) -> None:
    with (
        PacketClient(daemon.socket) as stopped,
        PacketClient(daemon.socket) as listener,
        PacketClient(daemon.socket) as publisher,
        PacketClient(daemon.socket) as asking,
    ):
        stopped.request("queue", f"packets=100 policy={policy}")
        for client in (stopped, listener):
            client.subscribe("local/>")
        publisher.socket.setblocking(False)
        published = 0
        while published < 2000 and not (policy == "block" and asking.holds()):
            with suppress(BlockingIOError):
                publisher.publish("local/x", PAYLOAD)
                published += 1
        daemon.process.send_signal(signal.SIGTERM)
        assert heard_until_closed(listener) >= published
        assert daemon.process.wait(PATIENCE) == 0


def test_a_slow_client_still_gets_its_backlog(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket) as slow, PacketClient(daemon.socket) as publisher:
        slow.subscribe("local/>")
        for _ in range(2000):  # more than its socket takes
            publisher.publish("local/x", PAYLOAD)
        publisher.drain()
        daemon.process.send_signal(signal.SIGTERM)
        assert heard_until_closed(slow) == 2000
        assert daemon.process.wait(PATIENCE) == 0


def test_busy_publishers_do_not_delay_the_stop(
    daemon: DaemonProcess, busy: Callable[[Callable[[], object]], None]
) -> None:
    with ExitStack() as clients:
        for number in range(4):
            publisher = clients.enter_context(PacketClient(daemon.socket))
            subscriber = clients.enter_context(PacketClient(daemon.socket))
            subscriber.subscribe("local/>")
            busy(lambda client=publisher, n=number: client.publish(f"local/{n}", PAYLOAD))  # type: ignore[misc]
            busy(lambda client=subscriber: client.receive() or client.send(b""))  # type: ignore[misc]
        with PacketClient(daemon.socket) as asking:
            assert asking.status()["clients"] == 9
            assert daemon.terminate() == 0
    assert not daemon.socket.exists()


def test_a_busy_segment_does_not_delay_the_stop(
    daemon: DaemonProcess, loopback_port: int, busy: Callable[[Callable[[], object]], None]
) -> None:
    with PacketClient(daemon.socket) as deaf, plain_socket(loopback_port) as wire:
        deaf.subscribe("demo/>")  # and never reads
        sent = datagram("?", 1, "demo/x", PAYLOAD)
        busy(lambda: wire.sendto(sent, (LOOPBACK_BROADCAST, loopback_port)))
        with PacketClient(daemon.socket) as asking:
            while asking.status()["counters"]["received"] < 1000:
                pass
        assert daemon.terminate() == 0


def test_published_messages_leave_with_all_copies(tmp_path: Path, loopback_port: int) -> None:
    flags = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port))
    environ = {"BCCND_COPIES": "3", "BCCND_COPIES_SPREAD_MS": "100"}
    with plain_socket(loopback_port) as wire, DaemonProcess(tmp_path, *flags, environ=environ) as daemon:
        with PacketClient(daemon.socket) as publisher:
            for number in range(50):
                publisher.publish("demo/x", b"%d" % number)
        assert daemon.terminate() == 0
        heard: list[bytes] = []
        while len(heard) < 150:
            head, _, payload = wire.recv(2048).partition(b"|")
            heard += [payload] * head.endswith(b":demo/x")
        assert sorted(heard, key=int) == [b"%d" % number for number in range(50) for _ in range(3)]


def test_a_tap_does_not_delay_the_stop(daemon: DaemonProcess) -> None:
    """Its leaving would change the filter of sockets that are closed by then."""
    with PacketClient(daemon.socket) as tap:
        tap.request("tap", "on")
        assert daemon.terminate() == 0
        assert tap.receive() == b"CMSG closing\0shutdown"
    assert "Traceback" not in daemon.log


def test_who_is_told_to_leave_cannot_come_back(daemon: DaemonProcess) -> None:
    """To a daemon that has others to tell, and would close the connection a moment later."""
    with ExitStack() as connected:
        first, *_ = [connected.enter_context(PacketClient(daemon.socket)) for _ in range(300)]
        first.drain()
        daemon.process.send_signal(signal.SIGTERM)
        assert heard_until_closed(first) == 0
        with pytest.raises((FileNotFoundError, ConnectionRefusedError)):
            PacketClient(daemon.socket)
        assert daemon.process.wait(PATIENCE) == 0
