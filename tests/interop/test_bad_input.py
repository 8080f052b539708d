"""Hostile and broken input, from the network and from local clients, leads to a counter or a ``CMSG error``.

In every test a bystander subscribes and loses nothing. At the daemon's end ``DaemonProcess`` asserts that it logged
no traceback and left with code 0.
"""

import array
import itertools
import json
import os
import random
import resource
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PacketClient, wait_until
from tests.plain_bccn import datagram, plain_socket

VECTORS = Path(__file__).parents[2] / "clients" / "vectors"


# Sound datagrams that are not delivered; every other count in ``rejected`` must be a reason of the vectors.
NOT_MALFORMED = {"own", "duplicate", "late", "conflict", "local-channel", "unknown-source"}


def malformed(status: dict[str, Any]) -> Counter[str]:
    """How many datagrams were malformed, by reason."""
    counts = Counter(
        {reason: n for reason, n in status["rejected"].items() if n and reason not in NOT_MALFORMED}
    )
    assert set(counts) <= {vector["reason"] for vector in invalid("bccn1.json")}
    return counts


def invalid(name: str) -> list[dict[str, Any]]:
    """The entries of a vectors file that must be refused."""
    return list(json.loads((VECTORS / name).read_text())["invalid"])


def loopback(port: int) -> tuple[str, ...]:
    return ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(port))


class Bystander:
    """A subscriber and a publisher of their own; ``check`` fails if anything of theirs was lost."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.subscriber = PacketClient(daemon.socket)
        self.subscriber.subscribe("bystander/>")
        self.publisher = PacketClient(daemon.socket)
        self._number = itertools.count()

    def check(self) -> None:
        payload = b"%d" % next(self._number)
        self.publisher.publish("bystander/x", payload)
        assert self.subscriber.message() == ("bystander/x", payload)

    def close(self) -> None:
        assert self.subscriber.messages() == []
        assert self.publisher.drain() == []
        self.subscriber.close()
        self.publisher.close()


@contextmanager
def undisturbed(daemon: DaemonProcess) -> Iterator[Bystander]:
    one = Bystander(daemon)
    one.check()
    yield one
    one.check()
    one.close()


@pytest.fixture
def bystander(daemon: DaemonProcess) -> Iterator[Bystander]:
    with undisturbed(daemon) as one:
        yield one


@pytest.fixture
def network(loopback_port: int, daemon: DaemonProcess) -> Iterator[Callable[[bytes], object]]:
    """Sends a datagram to the daemon's port from elsewhere."""
    with plain_socket(0) as sock:
        yield lambda datagram: sock.sendto(datagram, (LOOPBACK_BROADCAST, loopback_port))


# --- from the network ---


def deployments() -> dict[str, list[dict[str, Any]]]:
    """The malformed datagrams of the vectors, by the required integrity and the key."""
    found: dict[str, list[dict[str, Any]]] = {}
    for vector in invalid("bccn1.json"):
        found.setdefault(vector["required"] + (", a key" if vector["key"] else ""), []).append(vector)
    return found


@pytest.mark.parametrize("deployment", sorted(deployments()))
def test_malformed_datagrams_are_counted_by_their_reason(
    tmp_path: Path, loopback_port: int, deployment: str
) -> None:
    vectors = deployments()[deployment]
    environ = {"BCCND_INTEGRITY": vectors[0]["required"]}
    if vectors[0]["key"]:
        (key,) = {bytes.fromhex(vector["key"]) for vector in vectors}
        file = tmp_path / "keys"
        file.touch(0o600)
        file.write_bytes(key + b"\n")
        environ["BCCND_KEY_FILE"] = str(file)
    with (
        DaemonProcess(tmp_path, *loopback(loopback_port), environ=environ) as daemon,
        plain_socket(0) as network,
    ):
        bystander = Bystander(daemon)
        everything = PacketClient(daemon.socket)
        everything.subscribe("")
        everything.request("listen")
        tap = PacketClient(daemon.socket)  # with a tap the kernel filters nothing
        tap.request("tap", "on")
        expected: Counter[str] = Counter()
        for vector in vectors:
            reason = vector["reason"]
            expected[reason] += 1
            network.sendto(bytes.fromhex(vector["datagram"]), (LOOPBACK_BROADCAST, loopback_port))
            wait_until(
                lambda reason=reason: bystander.publisher.rejected(reason) == expected[reason],
                f"{vector['name']} to be counted as {reason}",
            )
            bystander.check()
        assert malformed(bystander.publisher.status()) == expected
        assert {chan for chan, _ in everything.messages()} == {"bystander/x"}
        bystander.close()
        everything.close()
        tap.close()


def noise(rng: random.Random) -> bytes:
    """Random bytes, or a good datagram with bytes cut off, added or changed."""
    if rng.random() < 0.3:
        return rng.randbytes(rng.randrange(0, 2500))
    good = bytearray(
        datagram("noise/raw/1", rng.randrange(2**64), "noise/x", rng.randbytes(rng.randrange(100)))
    )
    for _ in range(rng.randrange(1, 5)):
        good[rng.randrange(len(good))] = rng.choice(b"[]:|=!?*0 \n\0\xffZ")
    return bytes(
        good[: rng.randrange(len(good))] if rng.random() < 0.3 else good + rng.randbytes(rng.randrange(3))
    )


def test_random_datagrams_are_counted_under_a_known_reason(
    bystander: Bystander, network: Callable[[bytes], object]
) -> None:
    rng = random.Random(2026)
    for _ in range(40):
        for _ in range(50):
            network(noise(rng))
        bystander.check()
    assert malformed(bystander.publisher.status()).total() > 1000


def test_an_empty_datagram(bystander: Bystander, network: Callable[[bytes], object]) -> None:
    network(b"")
    # As filtered; as dropped, if another program of the machine overflowed in that second.
    wait_until(
        lambda: sum(bystander.publisher.status()["kernel"].values()) == 1, "the empty datagram to be counted"
    )


def test_datagrams_of_the_largest_size(bystander: Bystander, network: Callable[[bytes], object]) -> None:
    network(datagram("big/raw/1", 1, "bystander/x", b"=" * 65_400))
    wait_until(lambda: bystander.publisher.rejected("truncated") == 1, "the large datagram to be counted")


def test_ten_thousand_sources_cost_nobody_anything(tmp_path: Path, loopback_port: int) -> None:
    with (
        DaemonProcess(tmp_path, *loopback(loopback_port), environ={"BCCND_DEDUP__SOURCES": "100"}) as daemon,
        plain_socket(0) as network,
    ):
        bystander = Bystander(daemon)
        for number in range(10_000):
            network.sendto(datagram(f"src{number}", 1, "x"), (LOOPBACK_BROADCAST, loopback_port))
            if number % 100 == 0:
                bystander.check()
        assert bystander.publisher.status()["sources"] <= 100
        bystander.close()


# --- from local clients ---


def test_malformed_packets_are_answered(daemon: DaemonProcess, bystander: Bystander) -> None:
    for vector in invalid("sbus.json"):
        with PacketClient(daemon.socket) as client:
            if vector["closes"]:
                assert client.request("pack", "on").startswith("on")
            client.send(bytes.fromhex(vector["packet"]))
            answer = client.receive().decode().replace("\0", " ")  # one that ends in LF is answered in a line
            assert answer.startswith(f"CMSG error {vector['code']} "), (vector["name"], answer)
            if vector["closes"]:
                assert client.receive() == b"CMSG closing\0framing", vector["name"]
                assert client.receive() == b"", vector["name"]
            else:
                client.send(b"CMSG ping")
                assert client.receive().startswith(b"CMSG pong"), vector["name"]


@pytest.mark.parametrize(
    ("packet", "error"),
    [
        ("MSG demo/x\0" + "=" * 1400, "too-large MSG demo/x: 14"),
        ("MSG local/x\0" + "=" * 65_537, "too-large MSG local/x: 65537 bytes of payload, at most 65536"),
        (
            "MSG local/x\0" + "=" * 90_000,
            "too-large MSG local/x: more than 66553 bytes of payload, at most 65536",
        ),
        ("UNSUB never/subscribed", "not-subscribed UNSUB never/subscribed:"),
        ("CMSG format\0colourful", "bad-value CMSG format:"),
        ("CMSG queue\0packets=-1", "bad-value CMSG queue:"),
        ("CMSG queue\0packets=1e9 policy=wait", "bad-value CMSG queue:"),
        ("CMSG queue\0packets=99999999999999999999999", "CMSG queue:"),
        ("CMSG name\0two words", "bad-name CMSG name:"),
        ("CMSG name\0?", "CMSG name:"),
        ("CMSG separator\0::", "bad-value CMSG separator:"),
        ("CMSG tap\0sideways", "CMSG tap:"),
        ("PACK \0\0\0\x05SUB a", "not-agreed packet:"),
    ],
    ids=lambda value: value.replace("\0", " ")[:30],
)
def test_a_wrong_request_is_answered_and_its_client_stays(
    shared_daemon: DaemonProcess, packet: str, error: str
) -> None:
    with undisturbed(shared_daemon), PacketClient(shared_daemon.socket) as client:
        client.send(packet.encode())
        answer = client.receive().decode()
        assert answer.startswith("CMSG error\0")
        assert error in answer
        assert len(answer) < 2000
        assert client.drain() == []


def test_random_packets_harm_nobody(daemon: DaemonProcess, bystander: Bystander) -> None:
    rng = random.Random(2026)
    heads = [
        b"SUB ",
        b"UNSUB ",
        b"MSG ",
        b"CMSG ",
        b"CMSG name\0",
        b"CMSG queue\0",
        b"CMSG clients\0",
        b"PACK ",
        b"BCCN1[",
        b"",
    ]
    with ExitStack() as clients:
        connected = [clients.enter_context(PacketClient(daemon.socket)) for _ in range(10)]
        for number in range(1000):
            at = rng.randrange(len(connected))
            try:
                connected[at].socket.send(
                    rng.choice(heads) + rng.randbytes(rng.randrange(1, 60)), socket.MSG_DONTWAIT
                )
            except OSError:  # the daemon closed it for its framing, or because it reads no errors
                connected[at].close()
                connected[at] = clients.enter_context(PacketClient(daemon.socket))
            if number % 50 == 0:
                bystander.check()


def packed(packet: bytes) -> bytes:
    return b"PACK " + struct.pack(">I", len(packet)) + packet


def test_a_pack_within_a_pack_is_refused(daemon: DaemonProcess, bystander: Bystander) -> None:
    nested = packed(b"SUB a")
    for _ in range(1000):
        nested = packed(nested)
    with PacketClient(daemon.socket) as client:
        client.request("pack", "on")
        client.send(nested)
        assert client.receive().startswith((b"CMSG error\0bad-packet", b"CMSG closing\0framing"))


def test_an_empty_packet_does_not_end_the_connection(daemon: DaemonProcess, bystander: Bystander) -> None:
    with PacketClient(daemon.socket) as client:
        client.send(b"")
        assert client.receive().startswith(b"CMSG error\0bad-packet ")
        client.send(b"SUB a")
        client.send(b"")
        client.publish("a", b"after it")
        assert client.receive().startswith(b"CMSG error\0bad-packet ")
        assert client.message() == ("a", b"after it")


def test_an_oversized_packet_is_refused_whole(daemon: DaemonProcess, bystander: Bystander) -> None:
    with PacketClient(daemon.socket) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        client.send(b"MSG local/x\0" + b"=" * 150_000)
        assert client.receive().startswith(b"CMSG error\0too-large")
        assert client.drain() == []


def test_descriptors_sent_along_are_closed(daemon: DaemonProcess, bystander: Bystander) -> None:
    descriptors = Path(f"/proc/{daemon.process.pid}/fd")
    with PacketClient(daemon.socket) as client:
        assert client.drain() == []
        before = len(list(descriptors.iterdir()))
        rights = array.array("i", [client.socket.fileno()] * 10).tobytes()
        for _ in range(20):
            client.socket.sendmsg([b"SUB demo/>"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        assert client.drain() == []
        # The daemon may have one more for a moment, to look at something.
        wait_until(lambda: len(list(descriptors.iterdir())) <= before, "no more descriptors than before")


def test_clients_may_vanish_at_any_moment(daemon: DaemonProcess, bystander: Bystander) -> None:
    for number in range(100):
        with PacketClient(daemon.socket) as client:
            client.send(b"SUB bystander/>")
            client.send(b"MSG other/x\0payload")
            client.send(b"CMSG status")
        if number % 10 == 0:
            bystander.check()
    wait_until(lambda: bystander.publisher.status()["clients"] == 2, "the vanished clients to be forgotten")


def test_a_client_that_never_reads_costs_the_others_nothing(
    daemon: DaemonProcess, bystander: Bystander
) -> None:
    with PacketClient(daemon.socket) as stalled:
        stalled.subscribe("bystander/>")
        assert stalled.request("queue", "packets=100").startswith("packets=100 ")
        rows: dict[str, Any] = {}
        for number in itertools.count():
            for _ in range(100):
                bystander.check()
            rows = json.loads(bystander.publisher.request("clients"))
            if any(row["dropped"] for row in rows["clients"]):
                break
            assert number < 100, rows
        assert sum(bool(row["dropped"]) for row in rows["clients"]) == 1
        notices = [packet for packet in stalled.drain() if packet.startswith(b"CMSG dropped\0")]
        assert notices
        assert sum(int(notice.partition(b"\0")[2]) for notice in notices) >= 1


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_connections(many_descriptors: None, daemon: DaemonProcess, bystander: Bystander) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(PacketClient(daemon.socket)) for _ in range(1000)]
        for number, client in enumerate(clients):
            client.send(b"SUB thousand/%d" % number)
            if number % 100 == 0:
                bystander.check()
        assert all(client.drain() == [] for client in clients)
        assert bystander.publisher.status()["clients"] == 1002
        clients[0].publish("!", b"to all of you")
        assert bystander.subscriber.message() == ("!", b"to all of you")
        assert {client.message() for client in clients} == {("!", b"to all of you")}
        clients[0].publish("thousand/999", b"to the last")
        assert clients[999].message() == ("thousand/999", b"to the last")
        assert all(client.messages() == [] for client in clients[:10])
    wait_until(lambda: bystander.publisher.status()["clients"] == 2, "the thousand to be forgotten")


def test_a_secret_key_of_sbus_is_not_on_the_wire(
    daemon: DaemonProcess, bystander: Bystander, loopback_port: int
) -> None:
    chan, refused = "!/cred/0/0/1/key", b"CMSG error\0bad-channel "
    bridged = datagram("far/prog/1", 1, chan, b"secret")
    with plain_socket(loopback_port) as wire, PacketClient(daemon.socket) as sender:
        sender.request("pack", "on")
        one = f"MSG {chan}\0secret".encode()
        for packet in (one, b"PACK " + struct.pack(">I", len(one)) + one, bridged):
            sender.send(packet)
            (answer,) = sender.drain()
            assert answer.startswith(refused)
        sender.send(f"CMSG listeners\0{chan} token".encode())
        assert sender.receive().startswith(refused)
        sender.send(b"CMSG format lines")
        assert sender.receive() == b"CMSG format lines\n"
        sender.send(f"MSG {chan} secret\n".encode())
        assert sender.receive().startswith(b"CMSG error bad-channel ")
        sender.publish("the/end", b"x")
        wanted = b"the/end|x"
        heard: list[bytes] = []
        while not heard or wanted not in heard[-1]:
            heard.append(wire.recv(2048))
    assert not [each for each in heard if b"secret" in each or b"!/cred" in each]


def test_running_out_of_descriptors_is_survived(tmp_path: Path, loopback_port: int) -> None:
    with DaemonProcess(tmp_path, *loopback(loopback_port)) as daemon:
        bystander = Bystander(daemon)
        before = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (40, before[1]))
        with ExitStack() as stack:
            for _ in range(60):
                client = stack.enter_context(PacketClient(daemon.socket))
                with suppress(OSError):  # one that was turned away at once
                    client.send(b"SUB bystander/none")
            bystander.check()
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, before)
        bystander.check()
        with PacketClient(daemon.socket) as newcomer:
            assert newcomer.drain() == []
        bystander.close()
    assert os.path.getsize(daemon.log_file) < 20_000  # one report per episode, not one per attempt
