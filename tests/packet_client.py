"""The local bus packet by packet, without a client library."""

import errno
import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

# Bytes: more than any packet of the bus.
PACKET_LIMIT = 1 << 17

# Seconds that something which must happen may take. A busy machine is slow, and only a failing test waits so long.
PATIENCE = 30.0

# Polls of a condition, a hundredth of a second apart, before it may be said that it has not come true.
LEAST_POLLS = 100


@contextmanager
def crowd(path: Path) -> Iterator[None]:
    """As many connections to the listening socket at ``path`` as may wait there."""
    with ExitStack() as clients:
        error = 0
        while not error:
            client = clients.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            client.setblocking(False)
            error = client.connect_ex(str(path))
        assert error == errno.EAGAIN
        yield


@contextmanager
def crowded(path: Path) -> Iterator[socket.socket]:
    """A listening socket at ``path`` that accepts nobody, and to which as many have connected as may wait."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen(0)
        with crowd(path):
            yield listening


class PacketClient:
    """One connection to a daemon's socket (a path, or ``@name``)."""

    def __init__(self, path: Path | str, *, seconds: float = PATIENCE) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(seconds)
        name = str(path)
        try:
            self.socket.connect("\0" + name[1:] if name.startswith("@") else name)
        except BaseException:
            self.socket.close()
            raise

    def send(self, packet: bytes) -> None:
        self.socket.send(packet)

    def receive(self) -> bytes:
        """The next packet; empty once the daemon has closed the connection."""
        return self.socket.recv(PACKET_LIMIT)

    def subscribe(self, *patterns: str) -> None:
        for pattern in patterns:
            self.send(f"SUB {pattern}".encode())
        self.drain()

    def publish(self, chan: str, payload: bytes = b"") -> None:
        self.send(b"MSG %b\0%b" % (chan.encode(), payload))

    def request(self, key: str, value: str | None = None) -> str:
        """The answer to ``CMSG <key>``; fails on ``CMSG error`` and on anything else that comes first."""
        self.send(f"CMSG {key}".encode() + (b"" if value is None else b"\0" + value.encode()))
        answer = self.receive()
        head, _, rest = answer.partition(b"\0")
        assert head == f"CMSG {key}".encode(), answer
        return rest.decode()

    def drain(self) -> list[bytes]:
        """All packets up to the answer to a ping: whatever the daemon had for this client until then."""
        self.send(b"CMSG ping\0drained")
        packets: list[bytes] = []
        while (packet := self.receive()) != b"CMSG pong\0drained":
            assert packet, f"closed by the daemon after {packets}"
            packets.append(packet)
        return packets

    def messages(self) -> list[tuple[str, bytes]]:
        """(channel, payload) of every message the daemon had for this client by now; nothing but messages."""
        return [message_of(packet) for packet in self.drain()]

    def message(self) -> tuple[str, bytes]:
        return message_of(self.receive())

    def name(self, name: str) -> str:
        return self.request("name", name)

    def extend_name(self, tail: str) -> str:
        """Names this client ``<its own name>/<tail>``."""
        return self.name(f"{self.request('whoami')}/{tail}")

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.request("status")))

    def holds(self) -> int:
        """How many publishers wait for the clients on the first page."""
        return sum(row["holds"] for row in json.loads(self.request("clients"))["clients"])

    def rejected(self, reason: str) -> int:
        return int(self.status()["rejected"].get(reason, 0))

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def message_of(packet: bytes) -> tuple[str, bytes]:
    head, _, payload = packet.partition(b"\0")
    assert head.startswith(b"MSG "), packet
    return head[4:].decode(), payload


def wait_until(
    condition: Callable[[], object], what: str | Callable[[], str], seconds: float = PATIENCE
) -> None:
    """Polls `condition` until it is true. Fails after `seconds` and says `what` it waited for.

    While the machine stands still nothing can come true: `LEAST_POLLS` are made however late it is."""
    deadline = time.monotonic() + seconds
    for poll in itertools.count():
        if condition():
            return
        if poll >= LEAST_POLLS and time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.01)
