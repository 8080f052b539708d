"""Ten replacements under load: twenty clients and the segment notice nothing.

Four local publishers and a plain BCCN program on the network send numbered messages: 5,000 a second in all where the
machine keeps up, and no test depends on that. At the end the test compares what each client received.
"""

import re
import selectors
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.daemon_process import LOOPBACK_BROADCAST
from tests.packet_client import PacketClient, wait_until
from tests.plain_bccn import datagram, plain_socket
from tests.replaceable_daemon import ReplaceableDaemon

REPLACEMENTS = 10
KEY = b"the-key-that-all-hosts-of-this-segment-share"
FORMATS = ["plain", "packed", "full", "lines"]
PUBLISHERS = ["plain0", "plain1", "packed0", "packed1"]
A_TURN = 0.01  # seconds
LOCAL_A_TURN = 8  # messages of each local publisher
NETWORK_A_TURN = 28  # with what a turn takes, 5,000 a second in all
TURNS_UNHEARD = 50  # half a second, many times a replacement; 2,500 messages
_SO_RCVBUFFORCE = 33
_LOAD = re.compile(rb"(?:MSG |:)load/(\w+)[\0 |](\d+)")


class Listener(threading.Thread):
    """Keeps what every socket receives, in order. After ``finish`` it ends as soon as nothing comes any more."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: dict[str, list[bytes]] = defaultdict(list)
        self.closed: list[str] = []
        self._selector = selectors.DefaultSelector()
        self._finishing = False

    def add(self, name: str, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ, name)

    def run(self) -> None:
        while (ready := self._selector.select(1.0)) or not self._finishing:
            for key, _ in ready:
                packet = key.fileobj.recv(1 << 17)  # type: ignore[union-attr]
                self.heard[key.data].append(packet)
                if not packet:
                    self.closed.append(key.data)
                    self._selector.unregister(key.fileobj)

    def finish(self) -> None:
        self._finishing = True
        self.join()
        self._selector.close()

    def numbers(self, name: str) -> dict[str, list[int]]:
        """By stream, the numbers that this one heard, in order."""
        numbers: dict[str, list[int]] = defaultdict(list)
        for packet in self.heard[name]:
            for message in unpacked(packet):
                found = _LOAD.search(message)
                assert found, f"{name}: {message!r}"
                numbers[found[1].decode()].append(int(found[2]))
        return numbers


def unpacked(packet: bytes) -> list[bytes]:
    if not packet.startswith(b"PACK "):
        return [packet]
    messages, at = [], 5
    while at < len(packet):
        size = int.from_bytes(packet[at : at + 4], "big")
        messages.append(packet[at + 4 : at + 4 + size])
        at += 4 + size
    return messages


class Load(threading.Thread):
    """Calls each of ``turns`` every A_TURN with the number of the turn, until ``stop``.

    ``heard`` gives the number of turns whose last message was received. On a busy machine the load waits for it:
    otherwise the network would send more than the kernel holds for a daemon that gets no time.
    """

    def __init__(self, turns: list[Callable[[int], None]], heard: Callable[[], float]) -> None:
        super().__init__()
        self._calls = turns
        self._heard = heard
        self._stopping = threading.Event()
        self.turns = 0

    def run(self) -> None:
        while not self._stopping.wait(A_TURN):
            if self.turns - self._heard() < TURNS_UNHEARD:
                for call in self._calls:
                    call(self.turns)
                self.turns += 1

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def local_turn(publisher: PacketClient, name: str) -> Callable[[int], None]:
    def turn(number: int) -> None:
        first = number * LOCAL_A_TURN
        messages = [b"MSG load/%b\0%d" % (name.encode(), first + k) for k in range(LOCAL_A_TURN)]
        if name.startswith("packed"):
            messages = [b"PACK " + b"".join([len(m).to_bytes(4, "big") + m for m in messages])]
        for message in messages:
            publisher.send(message)

    return turn


def network_turn(neighbour: socket.socket, port: int, sent: list[bytes]) -> Callable[[int], None]:
    """Appends to ``sent`` what it sends."""

    def turn(number: int) -> None:
        for n in range(number * NETWORK_A_TURN, (number + 1) * NETWORK_A_TURN):
            sent.append(datagram("there/prog/1", 1000 + n, "load/network", b"%d" % n, KEY))
            neighbour.sendto(sent[-1], (LOOPBACK_BROADCAST, port))

    return turn


def streams_of(subscriber: str) -> list[str]:
    """What it subscribes to: each to one of the first three publishers, one of each format to the network as well."""
    number = int(subscriber[-1])
    return [PUBLISHERS[number]] + ["network"] * (number == 0)


class Clients:
    """Twenty: three subscribers of each format, four publishers of which one hears itself, and four others."""

    def __init__(self, daemon: ReplaceableDaemon, stack: ExitStack) -> None:
        def connect() -> PacketClient:
            client = stack.enter_context(PacketClient(daemon.socket))
            # However slow this machine is at listening.
            client.request("queue", "packets=100000 bytes=67108864")
            return client

        self.subscribers = {f"{form}{n}": connect() for form in FORMATS for n in range(3)}
        for name, subscriber in self.subscribers.items():
            self._subscribe(subscriber, name)
        self.publishers = {name: connect() for name in PUBLISHERS}
        for name, publisher in self.publishers.items():
            publisher.extend_name(name)
            if name.startswith("packed"):
                publisher.request("pack", "on")
        self.names = {name: publisher.request("whoami") for name, publisher in self.publishers.items()}
        self.own = self.publishers["packed1"]
        self.own.subscribe("load/packed1")
        self.tap, self.quiet, self.asking, self.spare = (connect() for _ in range(4))
        self.tap.request("tap", "on")
        self.quiet.subscribe("nothing/>")
        self.spare.subscribe("load/plain0")

    def _subscribe(self, subscriber: PacketClient, name: str) -> None:
        if name.startswith("packed"):
            subscriber.request("pack", "on")
        elif not name.startswith("lines"):
            subscriber.request("format", name[:-1])
        end = "\n" if name.startswith("lines") else ""
        for chan in streams_of(name):
            subscriber.send(f"SUB load/{chan}{end}".encode())

    def listen_with(self, listener: Listener) -> None:
        others = {"tap": self.tap, "own": self.own, "spare": self.spare}
        for name, client in (self.subscribers | others).items():
            listener.add(name, client.socket)


def numbers_on_the_network(listener: Listener) -> dict[str, list[int]]:
    """By source, the sequence numbers that the neighbour heard, in order."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for packet in listener.heard["neighbour"]:
        src, seq, _ = packet.partition(b"]")[2].split(b":", 2)
        numbers[src.decode()].append(int(seq))
    return numbers


def all_went(asking: PacketClient, turns: int) -> bool:
    """Whether the daemon has read all that these turns sent, and has passed it on to the sockets of its clients."""
    status = asking.status()
    echoes = status["rejected"].get("own", 0) == len(PUBLISHERS) * turns * LOCAL_A_TURN
    heard = status["counters"]["accepted"] == turns * NETWORK_A_TURN
    again = status["rejected"].get("duplicate", 0) == REPLACEMENTS
    return echoes and heard and again and not status["queued"]["packets"]


def verdicts(listener: Listener) -> Counter[bytes]:
    """What the tap received of each datagram."""
    return Counter(packet.partition(b"\0")[0].rsplit(b" ", 1)[1] for packet in listener.heard["tap"])


def test_ten_replacements_under_load(tmp_path: Path, loopback_port: int) -> None:
    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_bytes(KEY)
    flags = ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    counted = {"BCCND_REPAIR__ON": "false"}  # each datagram is
    with (
        ReplaceableDaemon(tmp_path, *flags, "--key-file", str(keys), environ=counted) as daemon,
        ExitStack() as stack,
    ):
        clients = Clients(daemon, stack)
        assert clients.asking.status()["clients"] == 20
        neighbour = stack.enter_context(plain_socket(loopback_port))
        neighbour.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
        listener = Listener()
        clients.listen_with(listener)
        listener.add("neighbour", neighbour)
        sent: list[bytes] = []
        turns = [local_turn(publisher, name) for name, publisher in clients.publishers.items()]
        load = Load(
            [*turns, network_turn(neighbour, loopback_port, sent)],
            lambda: len(listener.heard["plain0"]) / (LOCAL_A_TURN + NETWORK_A_TURN),
        )
        listener.start()
        load.start()
        pids = {daemon.pid}
        wait_until(lambda: len(sent) > 1000, "the load")
        try:
            for _ in range(REPLACEMENTS):
                pids.add(daemon.replace())
                # Once more what was sent a moment ago; mostly the predecessor had it.
                neighbour.sendto(sent[-10], (LOOPBACK_BROADCAST, loopback_port))
            load.stop()
            wait_until(lambda: all_went(clients.asking, load.turns), "the daemon to be done with all of it")
        finally:
            load.stop()
            listener.finish()

        assert len(pids) == REPLACEMENTS + 1
        assert listener.closed == []
        local = list(range(load.turns * LOCAL_A_TURN))
        network = list(range(load.turns * NETWORK_A_TURN))
        for name in clients.subscribers:
            wanted = {stream: network if stream == "network" else local for stream in streams_of(name)}
            assert listener.numbers(name) == wanted, name
        assert listener.numbers("own") == {"packed1": local}
        assert listener.numbers("spare") == {"plain0": local}
        assert clients.quiet.drain() == []

        heard = numbers_on_the_network(listener)
        for name in clients.names.values():
            assert heard[name] == list(range(heard[name][0], heard[name][0] + len(local))), name
        assert clients.publishers["plain0"].request("whoami") == clients.names["plain0"]

        judged = verdicts(listener)
        assert judged == {
            b"ok": len(network) + 4 * len(local),
            b"own": 4 * len(local),
            b"duplicate": REPLACEMENTS,
        }
        status = clients.asking.status()
        assert status["clients"] == 20
        assert status["rejected"] == {"own": 4 * len(local), "duplicate": REPLACEMENTS}
        counters = status["counters"]
        assert (counters["published"], counters["sent"]) == (4 * len(local), 4 * len(local))
        assert (counters["accepted"], counters["dropped"], counters["unsent"]) == (len(network), 0, 0)
