"""Keys on three hosts: a rotation under load loses nothing and admits nothing forged, and recordings stay out."""

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from bccnd.relay.dedup import JUMP
from tests.daemon_process import DaemonProcess
from tests.hosts.conftest import KEY, PORT
from tests.hosts.segment import BROADCAST, Host, Segment
from tests.packet_client import PacketClient, message_of, wait_until
from tests.plain_bccn import datagram

OLD, NEW, WRONG = KEY, b"the-key-that-comes-after-the-first-one", b"a-key-that-nobody-here-has-ever-had"
RATE = 200  # messages a second, each publisher
BETWEEN_STEPS = 100  # messages of each publisher


def give_keys(daemon: DaemonProcess, *keys: bytes) -> None:
    """Replaces the key file as a whole and has the daemon read it."""
    file = daemon.socket.with_name("keys")
    new = file.with_suffix(".new")
    new.touch(0o600)
    new.write_bytes(b"\n".join(keys) + b"\n")
    new.replace(file)
    before = daemon.log.count('"reloaded"')
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: daemon.log.count('"reloaded"') > before, "the reload")


class Repeating(threading.Thread):
    """Repeats one call until it is stopped; ``times`` counts the calls."""

    def __init__(self, action: Callable[[int], object]) -> None:
        super().__init__(daemon=True)
        self._action = action
        self._stop_wanted = threading.Event()
        self.times = 0

    def run(self) -> None:
        while not self._stop_wanted.wait(1 / RATE):
            self._action(self.times)
            self.times += 1

    def stop(self) -> None:
        self._stop_wanted.set()
        self.join()


class Forger:
    """A program on a host of the segment that knows the protocol but not the key."""

    def __init__(self, host: Host) -> None:
        self.socket = host.udp_socket(PORT)
        self._numbers = itertools.count(2**62)  # if one were accepted, the real source would be stale

    def send(self, src: str, key: bytes | None) -> None:
        self.socket.sendto(datagram(src, next(self._numbers), "load/forged", b"", key), (BROADCAST, PORT))


@pytest.fixture
def forger(segment: Segment) -> Iterator[Forger]:
    forger = Forger(segment.hosts[2])
    yield forger
    forger.socket.close()


def rejected(daemon: DaemonProcess, reason: str) -> int:
    with PacketClient(daemon.socket) as asking:
        return asking.rejected(reason)


def wait_until_rejected(daemon: DaemonProcess, reason: str, times: int) -> None:
    wait_until(lambda: rejected(daemon, reason) >= times, f"{times} {reason} at {daemon.socket}")


def wait_until_all_rejected(daemons: list[DaemonProcess], times: int) -> None:
    """What was sent without a key of the segment, so many times, whichever way it is refused."""

    def all_rejected() -> bool:
        return all(rejected(each, "hmac") + rejected(each, "unauthenticated") >= times for each in daemons)

    wait_until(all_rejected, f"{times} refused")


def assert_heard_all(subscriber: PacketClient, published: dict[str, int]) -> None:
    """Of every channel the messages 0, 1, 2 ... in order, up to the number published, and no others."""
    heard: dict[str, list[int]] = {}
    for _ in range(sum(published.values())):
        chan, payload = message_of(subscriber.receive())
        heard.setdefault(chan, []).append(int(payload or b"-1"))
    assert heard == {chan: list(range(count)) for chan, count in published.items()}


def test_key_rotation_loses_nothing_and_admits_no_forgery(
    daemons: list[DaemonProcess], forger: Forger
) -> None:
    with ExitStack() as open_clients:

        def connect(daemon: DaemonProcess) -> PacketClient:
            return open_clients.enter_context(PacketClient(daemon.socket))

        subscribers = [connect(daemon) for daemon in daemons]
        for subscriber in subscribers:
            subscriber.request("queue", "packets=100000")
            subscriber.subscribe("load/>")
        clients = {daemon.socket.parent.name: connect(daemon) for daemon in daemons}
        srcs = [client.request("whoami") for client in clients.values()]

        def publishing(host: str, client: PacketClient) -> Repeating:
            return Repeating(lambda number: client.publish(f"load/{host}", b"%d" % number))

        publishers = {host: publishing(host, client) for host, client in clients.items()}
        forging = Repeating(lambda number: forger.send(srcs[number % 3], [WRONG, None][number % 2]))
        threads = [*publishers.values(), forging]
        for thread in threads:
            thread.start()

        def some_traffic() -> None:
            before = [thread.times for thread in threads]
            wait_until(
                lambda: all(t.times > b + BETWEEN_STEPS for t, b in zip(threads, before, strict=True)),
                "some traffic",
            )

        for keys in [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]:
            for daemon in daemons:
                give_keys(daemon, *keys)
            some_traffic()
        for thread in threads:
            thread.stop()

        published = {f"load/{host}": thread.times for host, thread in publishers.items()}
        for subscriber in subscribers:
            assert_heard_all(subscriber, published)

        wait_until_all_rejected(daemons, forging.times)
        # The old key is worth as much as none. The new key still works.
        before = [rejected(daemon, "hmac") for daemon in daemons]
        assert min(before) >= BETWEEN_STEPS
        forger.send("gamma/forger/1", OLD)
        for daemon, count in zip(daemons, before, strict=True):
            wait_until(
                lambda d=daemon, c=count: rejected(d, "hmac") == c + 1, "the removed key to be refused"
            )  # type: ignore[misc]
        forger.send("gamma/forger/1", NEW)
        for subscriber in subscribers:
            assert message_of(subscriber.receive()) == ("load/forged", b"")
            assert subscriber.messages() == []


def test_a_replayed_recording_reaches_nobody(segment: Segment, daemons: list[DaemonProcess]) -> None:
    messages = 2500
    listening = segment.hosts[2].udp_socket(PORT)
    with (
        listening,
        ExitStack() as during_test,
        PacketClient(daemons[1].socket) as subscriber,
    ):
        subscriber.subscribe("demo/>")
        recording: list[bytes] = []
        with PacketClient(daemons[0].socket) as publisher:
            for number in range(messages):
                publisher.publish("demo/x", b"%d" % number)
                while (copy := listening.recv(2048)).find(b":demo/x|") < 0:
                    pass
                recording.append(copy)
            assert [subscriber.message()[1] for _ in range(messages)] == [b"%d" % n for n in range(messages)]
        time.sleep(JUMP / 1e6)  # the numbers of a name that comes back so late are those of the clock
        publisher = during_test.enter_context(PacketClient(daemons[0].socket))
        publisher.publish("demo/x", b"again")
        assert subscriber.message() == ("demo/x", b"again")
        for part in range(0, messages, 100):
            for copy in recording[part : part + 100]:
                listening.sendto(copy, (BROADCAST, PORT))
            time.sleep(0.005)  # keeps receive buffers from overflowing
        for daemon, reason in ((daemons[1], "replayed"), (daemons[2], "replayed"), (daemons[0], "own")):
            wait_until(lambda d=daemon, r=reason: rejected(d, r) >= messages, f"{reason} to be counted")  # type: ignore[misc]
        assert subscriber.messages() == []
        publisher.publish("demo/x", b"live")
        assert subscriber.message() == ("demo/x", b"live")
        (row,) = [line for line in subscriber.request("sources").split("},") if "alpha" in line]
        assert f'"replayed":{messages}' in row
        assert '"restarts":0' in row
