"""A real nats-server with JetStream, or three, and a hearer that stands in for the core of an uplink."""

import asyncio
import contextlib
import itertools
import json
import socket
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Self

from bccnd.uplink.nats import NatsCarrier, Place
from bccnd.uplink.nats_options import NatsOptions
from tests.daemon_process import mortal
from tests.packet_client import PATIENCE, wait_until
from tests.plain_bccn import datagram, free_port
from tests.waiting import until

SEGMENT = "siteA"


class NatsServer:
    """A context manager; ``more`` is added to its configuration."""

    def __init__(self, folder: Path, more: str = "", *, jetstream: bool = True) -> None:
        self.port = free_port(socket.SOCK_STREAM)
        self.url = f"nats://127.0.0.1:{self.port}"
        self._folder = folder
        self._configuration = folder / "nats.conf"
        folder.mkdir(exist_ok=True)
        store = f'jetstream {{ store_dir: "{folder}" }}' if jetstream else ""
        self._configuration.write_text(f'listen: "127.0.0.1:{self.port}"\n{store}\n{more}\n')
        self.process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def launch(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                mortal(["nats-server", "-c", str(self._configuration)]),
                stdout=log,
                stderr=log,
            )

    def start(self) -> None:
        """Returns once it accepts connections, and has read its streams before."""
        self.launch()
        wait_until(self._accepts, "nats-server")

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def _accepts(self) -> bool:
        assert self.process.poll() is None, self.log
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[list[NatsServer]]:
    """Three servers that replicate."""
    routes = [free_port(socket.SOCK_STREAM) for _ in range(3)]
    named = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    servers = [
        NatsServer(
            folder / f"n{index}",
            f'server_name: n{index}\ncluster {{ name: c, listen: "127.0.0.1:{port}", routes: [{named}] }}',
        )
        for index, port in enumerate(routes)
    ]
    with contextlib.ExitStack() as stack:
        for server in servers:
            server.launch()
            stack.callback(server.kill)
        yield servers


class Ear:
    """A hearer. ``numbers``: how often each link number came, by its link; ``settled``: what was published;
    ``take``: what is called when everything below a position has come.
    """

    def __init__(self) -> None:
        self.take: Callable[[int], None] = lambda _position: None
        self.numbers: dict[str, Counter[int]] = {}
        self.positions: list[int] = []
        self.said: list[tuple[int, bytes]] = []
        self.settled: list[int] = []
        self.completed = self.changes = 0
        self.came_late = 0  # below what was complete

    def came(self, position: int, datagram: bytes) -> None:
        if not datagram.startswith(b"BCCN1["):
            return
        src, seq, rest = datagram.partition(b"]")[2].split(b":", 2)
        if rest.startswith(b"bccnd/link/status|"):
            self.said.append((position, datagram))
            return
        self.numbers.setdefault(src.decode(), Counter())[int(seq)] += 1
        self.positions.append(position)
        self.came_late += position < self.completed

    def complete(self, position: int) -> None:
        self.completed = position
        self.take(position)

    def published(self, number: int) -> None:
        self.settled.append(number)

    def changed(self) -> None:
        self.changes += 1

    def has(self, link: str, numbers: range) -> bool:
        return self.numbers.get(link, Counter()).keys() >= set(numbers)


class Kept:
    """What a journal keeps of the stream."""

    def __init__(self) -> None:
        self.stream = "", 0


class Uplink:
    """A carrier with its ear, which runs in a task. ``publish`` numbers as the core does."""

    def __init__(
        self,
        options: NatsOptions,
        segment: str = SEGMENT,
        instance: str = "00c0ffee",
        place: Place | None = None,
    ) -> None:
        self.source = f"{segment}/uplink/{instance}"
        self.ear = Ear()
        self.place = place or Kept()
        self.carrier = NatsCarrier(options, self.source.encode(), self.ear, self.place)
        self.ear.take = self.carrier.taken
        self.task: asyncio.Task[None]
        self._next = itertools.count(1)

    def datagram(self, number: int, channel: str = "factory/line1", payload: bytes = b"x" * 100) -> bytes:
        inner = datagram(f"host/program/{number}", number, channel, payload)
        return datagram(self.source, number, "bccnd/link", b"%d\n" % number + inner)

    def status(self, text: bytes) -> bytes:
        return datagram(self.source, 1, "bccnd/link/status", text)

    def publish(self, count: int = 1, channel: str = "factory/line1") -> None:
        for number in itertools.islice(self._next, count):
            self.carrier.publish(number, self.datagram(number, channel), channel.encode())

    async def publish_all(self, count: int) -> None:
        """As room allows, until each is acknowledged."""
        wanted = len(self.ear.settled) + count
        while count:
            now = min(count, self.carrier.room)
            self.publish(now)
            count -= now
            await asyncio.sleep(0.002)
        await until(lambda: len(self.ear.settled) >= wanted, "acknowledgements")

    @property
    def reason(self) -> str:
        return self.carrier.facts().reason

    @property
    def is_up(self) -> bool:
        return self.carrier._session is not None

    def start(self, position: int = 0) -> None:
        self.task = asyncio.create_task(self.carrier.run(position))

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task}, timeout=PATIENCE)
        assert self.task.cancelled(), self.task


@contextlib.asynccontextmanager
async def running(*uplinks: Uplink, position: int = 0) -> AsyncIterator[None]:
    """Until the block is left; all are connected in it."""
    for each in uplinks:
        each.start(position)
    try:
        await until(lambda: all(each.is_up for each in uplinks), "connections")
        yield
    finally:
        for each in uplinks:
            await each.stop()


def options_for(*servers: NatsServer, **more: object) -> NatsOptions:
    return NatsOptions(tuple(server.url for server in servers), **more)  # type: ignore[arg-type]


async def ask(server: NatsServer, what: str, request: object = None) -> Any:
    """A request to JetStream, as NATS's own tools make it, without our code or nats-py."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    payload = b"" if request is None else json.dumps(request).encode()
    writer.write(b'CONNECT {"verbose":false}\r\nSUB answer.%d 1\r\n' % id(writer))
    writer.write(
        b"PUB $JS.API.%s answer.%d %d\r\n%s\r\n" % (what.encode(), id(writer), len(payload), payload)
    )
    try:
        while not (line := await asyncio.wait_for(reader.readline(), PATIENCE)).startswith(b"MSG "):
            assert line.split()[0] in (b"INFO", b"PING"), line
        answer = json.loads(await reader.readexactly(int(line.split()[-1])))
    finally:
        writer.close()
        await writer.wait_closed()
    assert "error" not in answer, answer
    return answer
