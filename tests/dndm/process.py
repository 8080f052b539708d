"""Real gateways, each in a process of its own, and robots that are sockets of the test."""

import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess, ServiceProcess
from tests.dndm.pseudo_serial import PseudoSerial
from tests.packet_client import PATIENCE
from tests.plain_bccn import free_address, free_port
from tests.wire.dndm import plain_dndm
from tests.wire.dndm.plain_dndm import Fields, written

DNDM = [sys.executable, "-m", "bccnd.dndm"]
HEADER = {"receive_timestamp": 1, "timestamp": 2, "want_result": 4, "signature": 5, "route": 6}
NAMES = {number: name for name, number in plain_dndm.TYPES.items()}
MINUTE_NS = 60_000_000_000


class DndmProcess(ServiceProcess):
    """``bccnd-dndm`` beside the daemon at ``bus``; its log and its settings are in `folder`."""

    def __init__(
        self,
        folder: Path,
        bus: Path,
        *flags: str,
        prefix: Sequence[str] = (),
        environ: Mapping[str, str] = {},
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.config = folder / "dndm.toml"
        if not self.config.exists():
            self.config.write_text("[dndm]\n")
        kept = ["--socket", str(bus), "--log-format", "json", "--config", str(self.config)]
        super().__init__([*prefix, *DNDM, *kept, *flags], folder / "dndm.log", environ)


class Robot:
    """A public peer at the other end of a stream, by the second codec: what it says, and what it hears.

    ``me``: its address. Frames are read whole; pings are answered while it reads.
    """

    def __init__(self, stream: socket.socket | PseudoSerial, me: str = "tcp:///") -> None:
        self.stream = stream
        self.me = me
        self.heard: list[tuple[str, dict[int, Any], Fields | bytes]] = []
        self._memory = b""

    # -- what it says

    def write(self, data: bytes) -> None:
        self.stream.sendall(data)

    def frame(self, kind: str | int, body: bytes, **header: int | bytes) -> bytes:
        number = plain_dndm.TYPES[kind] if isinstance(kind, str) else kind
        stamp = {"timestamp": time.time_ns()} | header
        head: Fields = [*((HEADER[name], value) for name, value in stamp.items()), (3, number)]
        return plain_dndm.frame(written(head), body)

    def say(self, kind: str | int, fields: Fields, **header: int | bytes) -> None:
        self.write(self.frame(kind, written(fields), **header))

    def greet(self, stage: int = 1, you: str = "tcp:///") -> None:
        self.say("HANDSHAKE", [(1, self.me.encode()), (2, you.encode()), (3, stage)])

    def meet(self) -> Self:
        """Dial: the handshake from its first to its last stage."""
        self.greet(1)
        self.until(lambda: self.of("HANDSHAKE"))
        self.greet(2)
        return self

    def answer(self) -> Self:
        """Be dialled."""
        self.until(lambda: self.of("HANDSHAKE"))
        self.greet(2)
        return self

    def advert(self, kind: str, route: str, *, on: bool = True, ttl: int = MINUTE_NS) -> None:
        self.say(kind, [(1, route.encode()), (3, ttl), (4, int(on))])

    def send(self, route: str, body: bytes, **header: int | bytes) -> None:
        self.write(self.frame("MESSAGE", body, route=route.encode(), **header))

    def settle(self) -> None:
        """Return when all that it has said was worked on."""
        pongs = len(self.of("PONG"))
        self.say("PING", [(3, bytes(16))])
        self.until(lambda: len(self.of("PONG")) > pongs)

    # -- what it hears

    def until(self, condition: Callable[[], Any]) -> Any:
        """Read until the condition holds, and return what it gives."""
        deadline = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < deadline, [kind for kind, _, _ in self.heard[-20:]]
            self.read()
        return found

    def read(self) -> None:
        """What comes next; raises ``EOFError`` at the end."""
        self.stream.settimeout(PATIENCE)
        data = self.stream.recv(1 << 16)
        if not data:
            raise EOFError
        self._memory += data
        while len(self._memory) >= 8:
            size = 8 + int.from_bytes(self._memory[4:8], "big")
            if len(self._memory) < size:
                break
            frame, self._memory = self._memory[:size], self._memory[size:]
            self._take(*plain_dndm.split(frame))

    def _take(self, header: bytes, body: bytes) -> None:
        head = dict(plain_dndm.read(header))
        kind = NAMES.get(int(head.get(3, 0)), "USER")
        message: Fields | bytes = body if kind in ("MESSAGE", "USER") else plain_dndm.read(body)
        if kind == "PING":
            payload = dict(plain_dndm.read(body)).get(3, b"")
            self.say("PONG", [(1, time.time_ns()), (3, head.get(2, 0)), (4, payload)])
        else:
            self.heard.append((kind, head, message))

    def of(self, kind: str) -> list[tuple[dict[int, Any], Any]]:
        return [(header, message) for each, header, message in self.heard if each == kind]

    def wants(self, route: str) -> bool:
        """Whether somebody has an interest, as it was told last."""
        return self._told("INTEREST", 5, route)

    def offered(self, route: str) -> bool:
        return self._told("INTENT", 4, route)

    def _told(self, kind: str, inside: int, route: str) -> bool:
        state = False
        for each, _, message in self.heard:
            assert isinstance(message, bytes | list)
            if isinstance(message, bytes):
                continue
            adverts = [message] if each == kind else []
            if each == "HANDSHAKE":
                adverts = [plain_dndm.read(value) for number, value in message if number == inside]  # type: ignore[arg-type]
            elif each == f"{kind}S":
                adverts = [plain_dndm.read(value) for _, value in message]  # type: ignore[arg-type]
            for fields in map(dict, adverts):
                if fields.get(1) == route.encode():
                    state = bool(fields.get(4, 0))
        return state

    def messages(self) -> list[tuple[str, bytes]]:
        return [(header[6].decode(), body) for header, body in self.of("MESSAGE")]

    def close(self) -> None:
        self.stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def dialled(address: str, me: str = "tcp:///") -> Robot:
    """A robot that has dialled the gateway at ``host:port``, and is its peer."""
    host, _, port = address.rpartition(":")
    return Robot(socket.create_connection((host, int(port)), PATIENCE), me).meet()


@contextmanager
def site(folder: Path, *flags: str) -> Iterator[tuple[DaemonProcess, DndmProcess, str]]:
    """A daemon on a segment of its own, a gateway beside it, and the address at which it listens."""
    folder.mkdir(exist_ok=True)
    where = free_address()
    segment = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()))
    with (
        DaemonProcess(folder, *segment) as daemon,
        DndmProcess(folder / "gateway", daemon.socket, "--listen", f"tcp://{where}", *flags) as gateway,
    ):
        yield daemon, gateway, where
