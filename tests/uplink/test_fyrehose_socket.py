"""The carrier with a real backbone on the loopback, by lines that lose, double and reorder."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bccnd.uplink.fyrehose import Options
from bccnd.uplink.fyrehose_socket import FyrehoseCarrier
from tests.backbone.process import BackboneProcess, client
from tests.packet_client import PATIENCE
from tests.plain_bccn import free_port
from tests.uplink.fyrehose_world import Ear, Shelf
from tests.waiting import until

# Nothing is given up, however slow the machine is.
STUBBORN = Options(keepalive=0.1, unanswered=50, tries=1 << 20, patience=1e9)
# Cut off soon, and for good only if the backbone is.
HASTY = Options(keepalive=0.1, unanswered=5)


class Line:
    """Between a carrier and a backbone, both ways. ``loss`` and ``doubling`` are shares; a share of the packets comes
    up to 10 ms late.
    """

    def __init__(self, seed: int, loss: float, doubling: float, late: float) -> None:
        self.chance = random.Random(seed)
        self.loss, self.doubling, self.late = loss, doubling, late
        self.lost = 0
        self._carrier: tuple[str, int] | None = None
        self._backbone: tuple[str, int] | None = None
        self._ends: list[asyncio.DatagramTransport] = []

    @asynccontextmanager
    async def to(self, backbone: tuple[str, int]) -> AsyncIterator[tuple[str, int]]:
        near, far = _End(self._from_carrier), _End(self._from_backbone)
        loop = asyncio.get_running_loop()
        for end in (near, far):
            here = "127.0.0.1", 0
            transport, _ = await loop.create_datagram_endpoint(lambda end=end: end, local_addr=here)
            self._ends.append(transport)
        self._backbone = backbone
        try:
            yield self._ends[0].get_extra_info("sockname")
        finally:
            for each in self._ends:
                each.abort()

    def _from_carrier(self, packet: bytes, source: tuple[str, int]) -> None:
        self._carrier = source
        self._pass_on(packet, 1, self._backbone)

    def _from_backbone(self, packet: bytes, _source: tuple[str, int]) -> None:
        self._pass_on(packet, 0, self._carrier)

    def _pass_on(self, packet: bytes, end: int, to: tuple[str, int] | None) -> None:
        def send() -> None:
            if to and not self._ends[end].is_closing():
                self._ends[end].sendto(packet, to)

        for _ in range(1 + (self.chance.random() < self.doubling)):
            if self.chance.random() < self.loss:
                self.lost += 1
            elif self.chance.random() < self.late:
                asyncio.get_running_loop().call_later(0.01 * self.chance.random(), send)
            else:
                send()


class _End(asyncio.DatagramProtocol):
    def __init__(self, received: Callable[[bytes, tuple[str, int]], None]) -> None:
        self._received = received

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._received(data, addr)

    def error_received(self, exc: Exception) -> None:
        """The backbone is not there at the moment."""


class Post:
    """A carrier with an outbox, as the core has one."""

    def __init__(self, address: tuple[str, int], options: Options, shelf: Shelf | None = None) -> None:
        self.ear, self.shelf, self.outbox = Ear(), Shelf() if shelf is None else shelf, dict[int, bytes]()
        self.carrier = FyrehoseCarrier(*address, self.ear, self.shelf, options)
        self.ear.on_change = self._fill
        self._next = 1

    def publish(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            self.outbox[self._next] = message
            self._next += 1
        self._fill()

    def _fill(self) -> None:
        while self.outbox and self.carrier.room:
            number = next(iter(self.outbox))
            self.carrier.publish(number, self.outbox.pop(number), b"chan")

    @property
    def is_connected(self) -> bool:
        return not self.carrier.facts().reason

    async def say_each_moment(self) -> None:
        """As the core does each second, so that the loss of a last message shows."""
        while True:
            self.carrier.say(b"status")
            await asyncio.sleep(0.1)


@asynccontextmanager
async def running(made: Post, position: int = 0, *, says: bool = False) -> AsyncIterator[Post]:
    tasks = [asyncio.create_task(made.carrier.run(position))]
    if says:
        tasks.append(asyncio.create_task(made.say_each_moment()))
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def post(
    address: tuple[str, int],
    options: Options = STUBBORN,
    position: int = 0,
    shelf: Shelf | None = None,
    *,
    says: bool = False,
) -> AsyncIterator[Post]:
    async with running(Post(address, options, shelf), position, says=says) as made:
        await until(lambda: made.is_connected, "a connection")
        yield made


def numbered(name: str, count: int) -> list[bytes]:
    return [b"%b %d" % (name.encode(), index) for index in range(count)]


@pytest.mark.parametrize("loss", [0.05, 0.2])
async def test_what_is_published_arrives_by_lossy_lines(tmp_path: Path, loss: float) -> None:
    """In between the backbone is killed, and goes on a million numbers further."""
    ours, theirs = Line(1, loss, 0.05, 0.1), Line(2, loss, 0.05, 0.1)
    with BackboneProcess(tmp_path) as backbone:
        async with (
            ours.to(backbone.address) as here,
            theirs.to(backbone.address) as there,
            post(here, position=1, says=True) as one,
            post(there, position=1, says=True) as other,
        ):
            wanted, theirs_wanted = numbered("one", 400), numbered("other", 200)
            one.publish(wanted[:200])
            other.publish(theirs_wanted)
            await until(lambda: len(one.ear.numbers) >= 100, "a part to be published")
            backbone.kill()
            one.publish(wanted[200:])
            await asyncio.to_thread(backbone.start)
            await until(lambda: set(wanted) <= other.ear.messages, "all of one")
            await until(lambda: set(theirs_wanted) <= one.ear.messages, "all of the other")
            await until(lambda: len(one.ear.numbers) == len(wanted), "all to be known as published")
            assert sorted(one.ear.numbers) == list(range(1, len(wanted) + 1))
            assert ours.lost
            assert theirs.lost


async def test_who_was_away_catches_up_from_another(tmp_path: Path) -> None:
    """Answers come straight from the other's address, and not from that of the backbone."""
    wanted = numbered("one", 500)
    with BackboneProcess(tmp_path) as backbone:
        async with post(backbone.address, says=True) as one:
            one.publish(wanted)
            await until(lambda: len(one.ear.numbers) == len(wanted), "all to be published")
            async with post(backbone.address, position=1) as late:
                await until(lambda: set(wanted) <= late.ear.messages, "all that it missed")
                facts = late.carrier.facts()
                assert facts.repaired >= 500
                assert facts.lost == 0
                assert one.carrier.facts().answered >= 500


async def test_what_it_keeps_itself_it_does_not_ask_for(tmp_path: Path) -> None:
    shelf = Shelf()
    with BackboneProcess(tmp_path) as backbone:
        async with post(backbone.address, position=1, shelf=shelf) as one:
            one.publish(numbered("one", 50))
            await until(lambda: len(one.ear.numbers) == 50, "all to be published")
        async with post(backbone.address, position=1, shelf=shelf, says=True) as again:
            await until(lambda: set(numbered("one", 50)) <= again.ear.messages, "what it has")
            assert again.carrier.facts().repaired == 0


async def test_it_says_why_it_is_cut_off_and_comes_back(tmp_path: Path) -> None:
    with BackboneProcess(tmp_path) as backbone:
        async with post(backbone.address, HASTY) as one:
            assert one.carrier.room
            backbone.kill()
            await until(lambda: not one.is_connected, "the end of the connection")
            assert one.carrier.room == 0
            assert one.carrier.facts().reason.startswith("no answer from {}:{}: ".format(*backbone.address))
            one.publish([b"kept"])
            await asyncio.to_thread(backbone.start)
            await until(lambda: one.ear.numbers == [1], "what waited to be published")


async def test_a_name_that_nobody_knows_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look)
    async with running(Post(("nobody", 4900), STUBBORN)) as made:
        await until(
            lambda: made.carrier.facts().reason == "nobody: Name or service not known", "it as the reason"
        )


async def test_a_moved_backbone_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.uplink.fyrehose_socket.RESOLVE_SECONDS", 0.05)
    with BackboneProcess(tmp_path) as backbone:
        loop = asyncio.get_running_loop()
        known = loop.getaddrinfo
        looks, places = [0], [("127.0.0.1", free_port())]

        async def look(_host: str, _port: int, **options: int) -> object:
            looks[0] += 1
            return await known(*places[-1], **options)

        monkeypatch.setattr(loop, "getaddrinfo", look)
        async with running(Post(("backbone", 4900), HASTY)) as made:
            await until(lambda: looks[0] > 2, "looks at the name")
            assert made.carrier.facts().reason.startswith("no answer from backbone:4900: ")
            places.append(backbone.address)
            await until(lambda: made.is_connected, "a connection")


async def test_a_key_is_proved(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("a secret of the backbone\n")
    file.chmod(0o600)
    with BackboneProcess(tmp_path, "--key-file", str(file)) as backbone:
        async with (
            running(Post(backbone.address, STUBBORN)) as stranger,
            post(backbone.address, Options(key=b"a secret of the backbone")) as one,
        ):
            one.publish([b"hello"])
            await until(lambda: one.ear.numbers == [1], "a message to be published")
            assert not stranger.is_connected


async def test_a_message_of_a_foreign_client_is_heard(tmp_path: Path) -> None:
    with BackboneProcess(tmp_path) as backbone, client(backbone) as foreign:
        async with post(backbone.address) as one:
            foreign.push(b"not ours")
            await until(lambda: one.ear.heard == {1: b"not ours"}, "it")
            assert one.ear.completes == [2]


async def test_what_the_socket_refuses_waits_or_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as backbone:
        backbone.bind(("127.0.0.1", 0))
        backbone.settimeout(PATIENCE)
        errors = [OSError(1, "not permitted"), BlockingIOError(11, "full"), OSError(105, "no buffers")]
        plain = socket.socket.sendto

        class Reluctant(socket.socket):
            def sendto(self, *arguments: object) -> int:
                if errors:
                    raise errors.pop(0)
                return plain(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr("bccnd.uplink.fyrehose_socket.socket.socket", Reluctant)
        async with running(Post(backbone.getsockname(), STUBBORN)) as made:
            await until(lambda: not errors, "all three errors")
            packet = await asyncio.to_thread(backbone.recv, 1000)
            assert packet[0] == 0x10
            assert made.carrier.unsent == 1
