"""Connections, each on one end of a pair of sockets; the other is the test."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bccnd.mux import limits
from bccnd.mux.accounts import Accounts
from bccnd.mux.carrier import Plain
from bccnd.mux.connection import Connection, House
from bccnd.mux.daemon import Daemon
from bccnd.mux.peer import Peer
from bccnd.mux.turns import Turns
from bpmux import chunks
from bpmux.chunks import TOP, head
from bpmux.endpoint import Endpoint
from bpmux.events import Closed, Event, Message, Opened, Responded
from bpmux.limits import OPENING_WORK, PAYLOAD_BYTES
from tests.mux.in_process import TestDaemon, until
from tests.packet_client import PATIENCE

PEER = Peer(1000, (1000,), 1, b"node")
CREDIT = head(chunks.CREDIT, TOP, 65_536)


class World:
    """A house before a daemon that is the test."""

    def __init__(self, folder: Path) -> None:
        self.daemon = TestDaemon(folder / "bus.sock")
        loop = asyncio.get_running_loop()
        self.accounts = Accounts(10, 10)
        self.house = House(loop, Daemon(loop, str(self.daemon.path), 10_000), self.accounts)
        self.sockets: list[socket.socket] = []

    def enter(self, **options: Any) -> socket.socket:
        """The socket of a peer that came in."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.accounts.admit(PEER.uid)
        Connection(self.house, ours, Plain(), PEER, **options)
        self.sockets.append(theirs)
        return theirs

    @property
    def connection(self) -> Connection:
        (found,) = self.house.connections
        return found

    def close(self) -> None:
        for connection in list(self.house.connections):
            connection.drop("stopped")
        for each in self.sockets:
            each.close()
        self.daemon.close()


class Talker:
    """The other side of a connection: an endpoint, and what it has seen."""

    def __init__(self, theirs: socket.socket) -> None:
        self.socket = theirs
        self.endpoint = Endpoint(0.0)
        self.seen: list[Event] = []

    def turn(self) -> bool:
        """Send and read what goes."""
        if data := self.endpoint.data_to_send(1 << 14):
            self.socket.send(data)
        self.seen += self.endpoint.events()
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return True
        self.seen += self.endpoint.receive(data, 0.0)
        return bool(data)

    async def sees(self, kind: type) -> Any:
        def found() -> Any:
            self.turn()
            return next((event for event in self.seen if isinstance(event, kind)), None)

        event = await until(found, kind.__name__)
        self.seen.remove(event)
        return event


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    made.close()
    await asyncio.sleep(0)


async def gone(world: World) -> str:
    """Why the one connection was dropped."""
    await until(lambda: not world.house.connections, "end of the connection")
    ((why, _),) = world.house.dropped.items()
    return why


async def said(theirs: socket.socket) -> bytes:
    """Everything that was said until the end."""
    heard = b""
    async with asyncio.timeout(PATIENCE):
        while data := await asyncio.get_running_loop().sock_recv(theirs, 65_536):
            heard += data
    return heard


async def answered(theirs: socket.socket) -> None:
    """The version that was asked for has come."""
    heard = b""
    async with asyncio.timeout(PATIENCE):
        while b"bccnd-mux " not in heard:
            data = await asyncio.get_running_loop().sock_recv(theirs, 100)
            # It would say so for ever, without a turn for the timeout.
            assert data, "the connection has ended"
            heard += data


async def test_a_connection_grants_credit_at_once(world: World) -> None:
    theirs = world.enter()
    assert await asyncio.get_running_loop().sock_recv(theirs, 100) == CREDIT


async def test_a_session_goes_through_to_the_daemon_and_back(world: World) -> None:
    talker = Talker(world.enter())
    bus = talker.endpoint.open_duplex(b"bus", 1 << 16)
    assert bus
    talker.turn()
    accepting = asyncio.ensure_future(world.daemon.accept())
    await until(lambda: talker.turn() and accepting.done())
    link = accepting.result()
    talker.endpoint.send(bus, b"SUB a")
    talker.turn()
    assert await world.daemon.receive(link) == b"SUB a"
    link.send(b"MSG a\0x")
    assert (await talker.sees(Message)).payload == b"MSG a\0x"
    talker.socket.close()
    assert await world.daemon.receive(link) == b""
    link.close()


@pytest.mark.parametrize("first", [b"SUB a/>\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"LIST\n"])
async def test_who_speaks_no_bpmux_gets_a_line_and_the_end(world: World, first: bytes) -> None:
    theirs = world.enter()
    theirs.send(first)
    assert (await said(theirs)).removeprefix(CREDIT).startswith(b"bccnd-mux: this socket carries bpmux")
    assert await gone(world) == "foreign"


async def test_a_broken_chunk_drops_the_connection_without_a_word(world: World) -> None:
    theirs = world.enter()
    theirs.send(CREDIT + b"\x8c")
    assert await said(theirs) in (b"", CREDIT)
    assert await gone(world) == "protocol-tag"


async def test_who_says_nothing_is_told_what_to_say_and_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GREETING_SECONDS", 0.01)
    theirs = world.enter()
    assert (await said(theirs)).removeprefix(CREDIT).startswith(b"bccnd-mux: this socket carries bpmux")
    assert await gone(world) == "no greeting"


async def test_who_gives_no_credit_is_dropped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GREETING_SECONDS", 0.01)
    world.enter().send(head(chunks.PING, TOP) * 3)
    assert await gone(world) == "no greeting"


async def test_who_is_turned_away_hears_the_reason(world: World) -> None:
    talker = Talker(world.enter(turned_away=b"limit: enough"))
    assert await talker.sees(Closed) == Closed(talker.endpoint.top, b"limit: enough")


async def test_who_is_turned_away_holds_little(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REFUSAL_SECONDS", 600.0)
    theirs = world.enter(turned_away=b"limit: too many")
    begun = (
        head(chunks.PARTIAL, TOP, 9) + head(chunks.SINK, ident, 0)
        for ident in range(limits.REFUSED_BYTES // PAYLOAD_BYTES + 1)
    )
    await asyncio.get_running_loop().sock_sendall(theirs, CREDIT + b"".join(begun))
    assert await gone(world) == "turned away"


async def test_half_a_chunk_at_a_time_is_one_message(world: World) -> None:
    theirs = world.enter()
    for byte in CREDIT + head(chunks.REQUEST, 0, 7) + b"version":
        theirs.send(bytes([byte]))
        await asyncio.sleep(0)
    await answered(theirs)


async def test_who_does_not_read_its_replies_is_not_read(world: World) -> None:
    theirs = world.enter()
    connection = world.connection
    theirs.send(CREDIT)
    pings = head(chunks.PING, TOP) * 65_536

    def is_stopped() -> bool:
        with suppress(BlockingIOError):
            theirs.send(pings)
        return connection._replies > limits.REPLIES

    await until(is_stopped, "stop")
    assert not connection._is_read
    assert not connection._has_turn
    assert connection._endpoint.replies <= limits.REPLIES + 13 * limits.CHUNKS
    async with asyncio.timeout(PATIENCE):
        while not connection._is_read:
            assert await asyncio.get_running_loop().sock_recv(theirs, 1 << 20)
    assert world.house.connections


async def test_chatter_ends_a_connection_that_strangers_may_open(world: World) -> None:
    theirs = world.enter(chatter=100)
    theirs.send(CREDIT + head(chunks.PING, TOP) * 90)
    await until(lambda: world.connection._endpoint.chatter >= 90)
    theirs.send(head(chunks.PING, TOP) * 200)
    assert await gone(world) == "protocol-limit"


async def test_chatter_is_bounded_after_a_silence_as_well(world: World) -> None:
    theirs = world.enter(chatter=100)
    theirs.send(CREDIT)
    connection = world.connection
    await until(lambda: connection._is_greeted)
    connection._chatter_since -= 2 * limits.CHATTER_SECONDS
    theirs.send(head(chunks.PING, TOP) * 900)
    await until(lambda: connection._endpoint.chatter >= 900)
    connection._chatter_since -= 2 * limits.CHATTER_SECONDS
    theirs.send(head(chunks.PING, TOP) * 1100)
    assert await gone(world) == "protocol-limit"


OPENED = head(chunks.REQUEST, 0, 7) + b"version" + head(chunks.CANCEL_REQUEST, 0, 0)


@pytest.mark.parametrize("tiny", [head(chunks.PING, TOP), OPENED], ids=["pings", "requests"])
async def test_a_turn_has_no_more_work_than_it_may(world: World, tiny: bytes) -> None:
    """Counted in chunks. The loop has time for others after each turn."""
    theirs = world.enter()
    endpoint = world.connection._endpoint
    theirs.send(CREDIT + tiny * (limits.READ // len(tiny)))
    turns, before = 0, 0
    while not before or endpoint.is_behind:
        await asyncio.sleep(0)
        assert endpoint.work - before < limits.CHUNKS + OPENING_WORK
        turns += endpoint.work > before
        before = endpoint.work
    assert turns > 10
    assert world.connection._is_read


async def test_others_have_their_turns_beside_much_work(world: World) -> None:
    busy = world.enter()
    busy.send(CREDIT + head(chunks.PING, TOP) * (limits.READ - len(CREDIT)))
    working = world.connection._endpoint
    await until(lambda: working.work)
    other = world.enter()
    other.send(CREDIT + head(chunks.REQUEST, 0, 7) + b"version")
    await answered(other)
    assert working.is_behind


async def test_connections_of_a_user_share_the_work_of_a_turn(world: World) -> None:
    for _ in range(10):
        world.enter().send(CREDIT + head(chunks.PING, TOP) * (limits.READ - len(CREDIT)))
    endpoints = [connection._endpoint for connection in world.house.connections]
    await until(lambda: all(each.is_behind for each in endpoints))
    begun = [each.work for each in endpoints]
    for _ in range(20):
        before = sum(each.work for each in endpoints)
        await asyncio.sleep(0)
        assert sum(each.work for each in endpoints) - before < 2 * limits.CHUNKS
    done = [each.work - was for each, was in zip(endpoints, begun, strict=True)]
    assert max(done) - min(done) < limits.CHUNKS
    assert min(done) > limits.CHUNKS


async def test_connections_of_a_user_share_what_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PIECE", 1000)
    world.house.writing = Turns(world.house.loop, 10_000, 1000)
    for _ in range(10):
        world.enter().send(CREDIT)
    await until(lambda: all(each._is_greeted for each in world.house.connections))
    endpoints = [connection._endpoint for connection in world.house.connections]
    for connection in world.house.connections:
        channel = connection._endpoint.open_sink(bytes(30_000))
        assert channel
        connection._wake()
    sizes = [sum(each.queued for each in endpoints)]
    while sizes[-1]:
        await asyncio.sleep(0)
        sizes.append(sum(each.queued for each in endpoints))
    assert max(before - after for before, after in pairwise(sizes)) <= 12_000 + 10 * 16_384


async def test_all_that_came_before_a_break_is_judged(world: World) -> None:
    """More than is read at once."""
    theirs = world.enter()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    window = head(chunks.CREDIT, TOP, 1 << 16)
    theirs.send(window + b"".join(head(chunks.DUPLEX, ident, 3) + b"bus" for ident in range(4)))
    links = [await world.daemon.accept() for _ in range(4)]
    connection = world.connection
    await until(lambda: connection._endpoint.replies == 0)
    size = limits.WINDOW // 2
    connection._stop_reading()
    theirs.send(b"".join(head(chunks.MESSAGE, ident, size) + b"MSG a\0".ljust(size) for ident in range(4)))
    theirs.close()
    connection._is_broken = True
    connection._go_on()
    for link in links:
        assert len(await world.daemon.receive(link)) == size
        link.close()
    assert await gone(world) == "left"


async def test_what_waits_for_its_turn_weighs(world: World) -> None:
    theirs = world.enter()
    connection = world.connection
    theirs.send(CREDIT + head(chunks.PING, TOP) * 50_000)
    await until(lambda: connection._endpoint.is_behind)
    connection._weigh()
    assert world.accounts.held > 50_000 - 10 * limits.CHUNKS


async def test_a_carrier_that_is_behind_is_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives a byte at a time."""
    kept = bytearray()

    def received(_self: Plain, data: bytes, _most: int) -> bytes:
        kept.extend(data)
        return bytes([kept.pop(0)]) if kept else b""

    monkeypatch.setattr(Plain, "received", received)
    monkeypatch.setattr(Plain, "is_behind", property(lambda _self: bool(kept)))
    theirs = world.enter()
    theirs.send(CREDIT + head(chunks.REQUEST, 0, 7) + b"version")
    await answered(theirs)


@pytest.mark.parametrize("replies", [limits.REPLIES, 1000])
async def test_what_waits_for_its_turn_is_judged_after_a_break(
    world: World, monkeypatch: pytest.MonkeyPatch, replies: int
) -> None:
    """However much has been said to it that it never reads."""
    monkeypatch.setattr(limits, "REPLIES", replies)
    theirs = world.enter()
    pings = head(chunks.PING, TOP) * 30_000
    last = b"MSG a\0last"
    window = head(chunks.CREDIT, TOP, 1 << 16)
    theirs.send(window + head(chunks.DUPLEX, 0, 3) + b"bus")
    link = await world.daemon.accept()
    await until(lambda: len(world.connection._conversation._speakers))
    connection = world.connection
    await until(lambda: connection._endpoint.replies == 0)
    theirs.send(pings + head(chunks.MESSAGE, 0, len(last)) + last)
    theirs.close()
    assert await world.daemon.receive(link) == last
    assert await world.daemon.receive(link) == b""
    assert await gone(world) == "left"
    assert connection._is_broken
    link.close()


async def test_what_came_before_the_end_of_a_carrier_is_judged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A carrier may say with the last bytes that nothing follows them."""
    theirs = world.enter()
    theirs.send(head(chunks.CREDIT, TOP, 1 << 16) + head(chunks.DUPLEX, 0, 3) + b"bus")
    link = await world.daemon.accept()
    monkeypatch.setattr(Plain, "has_ended", True)
    last = b"MSG a\0last"
    theirs.send(head(chunks.PING, TOP) * 2 * limits.CHUNKS + head(chunks.MESSAGE, 0, len(last)) + last)
    assert await world.daemon.receive(link) == last
    assert await gone(world) == "left"
    link.close()


async def test_a_silent_peer_is_asked_and_given_up(world: World) -> None:
    theirs = world.enter()
    connection = world.connection
    theirs.send(CREDIT)
    await until(lambda: connection._is_greeted)
    loop_time, start = connection._loop.time, connection._loop.time()
    skipped = 0.0

    def later() -> float:
        return loop_time() + skipped

    connection._loop.time = later  # type: ignore[method-assign]
    try:
        while world.house.connections:
            skipped += 10.5
            assert later() - start < 100
            connection._on_deadline()
            await asyncio.sleep(0)
    finally:
        connection._loop.time = loop_time  # type: ignore[method-assign]
    assert await gone(world) == "silent"
    assert head(chunks.PING, TOP) in await said(theirs)


async def test_the_place_is_held_until_the_daemon_has_taken_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LINGER_SECONDS", 60.0)
    talker = Talker(world.enter())
    bus = talker.endpoint.open_duplex(b"bus", 1 << 16)
    assert bus
    talker.turn()
    accepting = asyncio.ensure_future(world.daemon.accept(joins=False))
    await until(lambda: talker.turn() and accepting.done())
    link = accepting.result()
    talker.endpoint.send(bus, b"MSG a\0last")
    talker.turn()
    await until(lambda: world.connection._conversation.waiting)
    talker.socket.close()
    await until(lambda: not world.house.connections)
    assert (len(world.accounts), world.accounts.held) == (1, 10 + limits.PACKET_BYTES)
    assert (await world.daemon.receive(link)).startswith(b"CMSG peer")
    link.send(b"CMSG peer\0here/node/1")
    assert await world.daemon.receive(link) == b"MSG a\0last"
    assert await world.daemon.receive(link) == b""
    assert (len(world.accounts), world.accounts.held, world.house.daemon.links) == (0, 0, 0)
    link.close()


async def test_the_heaviest_connection_of_a_user_is_dropped(world: World) -> None:
    world.accounts.bytes_each = 100 + PAYLOAD_BYTES
    theirs = world.enter()
    total = head(chunks.PARTIAL, TOP, 1000)
    theirs.send(CREDIT + total + head(chunks.REQUEST, 0, 90) + bytes(90))
    await until(lambda: world.accounts.held == 90 + PAYLOAD_BYTES)
    theirs.send(head(chunks.REQUEST, 0, 20) + bytes(20))
    assert await gone(world) == "weight"


async def test_all_that_sessions_say_in_one_round_goes_out_together(world: World) -> None:
    talker = Talker(world.enter())
    for _ in range(3):
        talker.endpoint.request(b"version")
    for _ in range(3):
        await talker.sees(Responded)
    assert not any(isinstance(event, Opened) for event in talker.seen)
