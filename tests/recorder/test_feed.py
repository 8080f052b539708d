"""A raw feed: what it asks for, what it reads where, how it waits, and how it comes back."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bccn
from bccn.transport import PACKET_LIMIT
from bccnd.recorder.feed import Block, Feed
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient

STATUS = json.dumps({"host": "here", "local": ["local/>", "x/*"]}).encode()
QUEUES = ["packets=9", "packets=5"]

Script = Callable[[socket.socket, bytes], bool]


def answering(rest: Script = lambda *_: False) -> Script:
    """A script that answers ``status``, and leaves everything else to ``rest``."""

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"CMSG status"):
            return bool(connection.send(b"CMSG status\0" + STATUS))
        return rest(connection, packet)

    return script


def packets_of(block: Block) -> list[bytes]:
    return [block.memory[start:end] for start, end in zip(block.starts, block.ends, strict=True)]


def read(feed: Feed, block: Block, count: int) -> list[bytes]:
    """The packets of the block, once it has this many."""
    until = time.monotonic() + PATIENCE
    while len(block.ends) < count and time.monotonic() < until:
        assert feed.fill(block)
        feed.wait(0.1)
    return packets_of(block)


def read_messages(feed: Feed, count: int) -> bytes:
    """What comes up to so many messages, of which a packet may have several."""
    packets, block = 1, Block(4 * PACKET_LIMIT)
    while (read_so_far := b"".join(read(feed, block, packets))).count(b"RECV local ") < count:
        assert len(block.ends) == packets, read_so_far
        packets += 1
    return read_so_far


@pytest.fixture
def block() -> Block:
    return Block(4 * PACKET_LIMIT)


@pytest.fixture
def feeds() -> Iterator[list[Feed]]:
    """Feeds that are closed at the end."""
    made: list[Feed] = []
    yield made
    for feed in made:
        feed.close()


def test_packets_lie_side_by_side_behind_their_gaps() -> None:
    block = Block(4 * PACKET_LIMIT, gap=4)
    block.put(b"one")
    block.put(b"three")
    assert (block.starts, block.ends, block.used) == ([4, 11], [7, 16], 16)
    assert packets_of(block) == [b"one", b"three"]
    block.clear()
    assert (block.used, block.full, block.starts) == (0, False, [])


def test_full_means_no_room_for_the_longest_packet() -> None:
    block = Block(3 * (PACKET_LIMIT + 4), gap=4)
    for _ in range(3):
        assert not block.full
        block.put(bytes(PACKET_LIMIT))
    assert block.full
    assert block.used <= len(block.memory)
    with pytest.raises(bccn.ProtocolError, match=f"at most {PACKET_LIMIT}"):
        block.put(bytes(PACKET_LIMIT + 1))


def test_a_tap_asks_for_everything(tmp_path: Path, feeds: list[Feed]) -> None:
    with ScriptedDaemon(tmp_path / "bus", answering()) as scripted:
        feeds.append(feed := Feed(scripted.path, queues=QUEUES))
        feed.connect()
        assert (feed.host, feed.local, feed.status) == ("here", ("local/>", "x/*"), STATUS.decode())
        feed.close()
    assert scripted.seen == [
        b"CMSG status\0", b"CMSG queue\0packets=9", b"CMSG pack\0on", b"CMSG tap\0interface",
    ]  # fmt: skip


def test_a_smaller_queue_is_asked_for_when_one_is_rejected(tmp_path: Path, feeds: list[Feed]) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        rejected = packet.startswith(b"CMSG queue")
        return rejected and bool(connection.send(b"CMSG error\0bad-value CMSG queue: from 1 to 4"))

    with ScriptedDaemon(tmp_path / "bus", answering(script)) as scripted:
        feeds.append(feed := Feed(scripted.path, queues=QUEUES))
        feed.connect()
        feed.close()
    queues = [packet for packet in scripted.seen if packet.startswith(b"CMSG queue")]
    assert queues == [b"CMSG queue\0packets=9", b"CMSG queue\0packets=5"]
    assert scripted.seen[-1] == b"CMSG tap\0interface"


def test_patterns_are_subscribed_to(tmp_path: Path, feeds: list[Feed], block: Block) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        return packet == b"SUB b" and bool(connection.send(b"RECV early"))

    with ScriptedDaemon(tmp_path / "bus", answering(script)) as scripted:
        feeds.append(feed := Feed(scripted.path, ["a/>", "b"]))
        feed.connect()
        assert feed.fill(block)
        assert packets_of(block) == [b"RECV early"], "what came before the last answer comes first"
        feed.close()
    assert scripted.seen[2:] == [b"CMSG format\0full", b"SUB a/>", b"SUB b", b"CMSG ping\0"]


def test_a_real_daemon_feeds_a_tap_and_a_subscriber(
    daemon: DaemonProcess, feeds: list[Feed], block: Block
) -> None:
    tap, subscriber = Feed(daemon.socket), Feed(daemon.socket, ["local/a"])
    feeds += [tap, subscriber]
    for feed in feeds:
        feed.connect()
        assert (feed.host, feed.local) == ("here", ("local/>",))
    with PacketClient(daemon.socket) as client:
        for channel in ("local/b", "local/a"):
            client.publish(channel, b"x")
        client.drain()
        tapped, subscribed = (read_messages(feed, count) for feed, count in zip(feeds, (2, 1), strict=True))
    assert tapped.count(b"RECV local ") == 2
    assert subscribed.count(b"RECV local ") == 1
    assert b":local/a|x" in subscribed


def test_a_full_block_is_filled_no_further(tmp_path: Path, feeds: list[Feed]) -> None:
    packets = [b"%d" % number + bytes(60_000) for number in range(6)]

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"CMSG ping\0go":
            for each in packets:
                connection.send(each)
        return False

    small, rest = Block(PACKET_LIMIT + 60_000), Block(8 * PACKET_LIMIT)
    with ScriptedDaemon(tmp_path / "bus", answering(script)) as scripted:
        feeds.append(feed := Feed(scripted.path))
        feed.connect()
        feed.request("ping", "go")
        assert read(feed, small, 1) == packets[:1]
        assert small.full
        assert feed.fill(small)
        assert len(small.ends) == 1
        assert read(feed, rest, 6) == [*packets[1:], b"CMSG pong\0go"]
        feed.close()


def test_a_connection_that_ends_is_read_to_its_end(tmp_path: Path, feeds: list[Feed], block: Block) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"CMSG ping"):
            connection.send(b"RECV last")
            connection.close()  # with a request unread: a reset comes first
            return True
        return False

    with ScriptedDaemon(tmp_path / "bus", answering(script)) as scripted:
        feeds.append(feed := Feed(scripted.path))
        feed.connect()
        feed.request("ping", "1")
        feed.request("ping", "2")
        until = time.monotonic() + PATIENCE
        while feed.fill(block):
            feed.wait(0.1)
            assert time.monotonic() < until
        assert packets_of(block) == [b"RECV last"]
        assert not feed.fill(block)
        feed.request("ping", "into the void")
        feed.connect()
        assert feed.fill(block), "it comes back"
        assert scripted.seen[-1] == b"CMSG tap\0interface"
        feed.close()
        assert not feed.fill(block)


def test_a_packet_that_is_too_long_is_an_error(tmp_path: Path, feeds: list[Feed], block: Block) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"CMSG ping"):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            connection.send(bytes(PACKET_LIMIT + 1))
        return False

    with ScriptedDaemon(tmp_path / "bus", answering(script)) as scripted:
        feeds.append(feed := Feed(scripted.path))
        feed.connect()
        feed.request("ping", "1")
        with pytest.raises(bccn.ProtocolError, match=f"sent {PACKET_LIMIT + 1} bytes"):
            read(feed, block, 1)
        feed.close()


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (b"CMSG error\0refused CMSG tap: no right to tap", bccn.RefusedError, "no right to tap"),
        (b"CMSG error\0bad-value CMSG tap: one of on, off", bccn.RejectedError, "one of on, off"),
        (b"", bccn.UnavailableError, "went away"),
        (None, bccn.UnavailableError, "does not answer"),
    ],
)
def test_connecting_fails_without_the_tap(
    tmp_path: Path, feeds: list[Feed], block: Block, answer: bytes | None, error: type[Exception], text: str
) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet != b"CMSG tap\0interface":
            return False
        if answer:
            connection.send(answer)
        elif answer is not None:
            connection.close()
        return True

    with ScriptedDaemon(tmp_path / "bus", answering(script)) as scripted:
        feeds.append(feed := Feed(scripted.path, timeout=0.2 if answer is None else PATIENCE))
        with pytest.raises(error, match=text):
            feed.connect()
        assert not feed.fill(block)


def test_without_a_daemon_pauses_grow(
    tmp_path: Path, feeds: list[Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds.append(feed := Feed(tmp_path / "none"))
    pauses: list[float] = []
    monkeypatch.setattr(feed, "wait", pauses.append)
    for _ in range(4):
        with pytest.raises(bccn.UnavailableError, match="no daemon at"):
            feed.connect()
        feed.pause()
    assert 0 < pauses[0] < pauses[3] < 2


def test_a_wait_ends_when_it_is_woken(tmp_path: Path, feeds: list[Feed]) -> None:
    feeds.append(feed := Feed(tmp_path / "none"))
    feed.wake()
    begun = time.monotonic()
    feed.wait(PATIENCE)
    timer = threading.Timer(0.05, feed.wake)
    timer.start()
    feed.wait(PATIENCE)
    timer.join()
    assert 0.05 <= time.monotonic() - begun < PATIENCE, "the first wake ends one wait only"


def test_packets_before_the_last_answer_are_kept(tmp_path: Path, feeds: list[Feed], block: Block) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"CMSG tap"):
            connection.send(b"MSG a\0x")
            connection.send(b"CMSG dropped\x003")
        return False

    with ScriptedDaemon(tmp_path / "bus", answering(script)) as scripted:
        feeds.append(feed := Feed(scripted.path))
        feed.connect()
        assert feed.fill(block)
        assert packets_of(block) == [b"MSG a\0x", b"CMSG dropped\x003"]
        feed.close()


def test_a_closing_daemon_says_why(tmp_path: Path, feeds: list[Feed]) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        return packet.startswith(b"CMSG tap") and bool(connection.send(b"CMSG closing\0shutdown"))

    with ScriptedDaemon(tmp_path / "bus", answering(script)) as scripted:
        feeds.append(feed := Feed(scripted.path))
        with pytest.raises(bccn.UnavailableError, match="shutdown") as caught:
            feed.connect()
    assert caught.value.reason == "shutdown"
