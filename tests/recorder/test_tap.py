"""The tap: what it asks for, what it reads, and what happens when the writer is behind."""

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bccn.transport import PACKET_LIMIT
from bccnd.errors import ConfigError, ProtocolError, RefusedError, UnavailableError
from bccnd.recorder.feed import Block
from bccnd.recorder.inbox import BLOCK_BYTES, Closed, Finished, Inbox, Item, Lost, Opened
from bccnd.recorder.tap import Tap
from bccnd.wire import sbus
from tests.packet_client import PATIENCE, wait_until

RECV = sbus.Recv(b"local", 5, b"ok", b"BCCN1[6]x:7:a|", b"-").serialize()
STATUS = json.dumps({"host": "here", "local": ["local/>", "x/*"]}).encode()


class FakeDaemon:
    """Gives the answers in ``answers``, and keeps what it was asked in ``asked``."""

    def __init__(self, path: Path) -> None:
        self.answers = {b"status": STATUS, b"queue": b"packets=1", b"pack": b"on 66565", b"tap": b"interface"}
        self.asked: list[bytes] = []
        # The request that ends the greeting.
        self.last = b"tap"
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(path))
        self._listening.listen()
        self._listening.settimeout(PATIENCE)
        self.client: socket.socket

    def accept(self) -> None:
        """Answer a client up to the end of its greeting."""
        self.client, _ = self._listening.accept()
        self.client.settimeout(PATIENCE)
        while packet := self.client.recv(PACKET_LIMIT):
            self.asked.append(packet)
            key = packet.removeprefix(b"CMSG ").partition(b"\0")[0]
            if packet.startswith(b"SUB "):
                continue
            answer = self.answers.get(key, b"")
            key = b"pong" if key == b"ping" else key
            self.client.send(answer if answer.startswith(b"CMSG ") else b"CMSG %b\0%b" % (key, answer))
            if key == self.last.replace(b"ping", b"pong"):
                return

    def expect(self, beginning: bytes) -> bytes:
        """The next packet with this beginning."""
        while not (packet := self.client.recv(PACKET_LIMIT)).startswith(beginning):
            assert packet
        return packet

    def close(self) -> None:
        self._listening.close()
        if hasattr(self, "client"):
            self.client.close()


@pytest.fixture(autouse=True)
def _short_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of these daemons do not answer ``tap off``."""
    monkeypatch.setattr("bccnd.recorder.tap.LAST_SECONDS", 0.05)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    made = FakeDaemon(tmp_path / "bus.sock")
    yield made
    made.close()


@contextmanager
def running(
    path: Path, inbox: Inbox, patterns: Sequence[str] = ()
) -> Iterator[tuple[Tap, list[BaseException]]]:
    faults: list[BaseException] = []
    tap = Tap(str(path), inbox, faults.append, patterns)
    thread = threading.Thread(target=tap.run)
    thread.start()
    try:
        yield tap, faults
    finally:
        tap.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def next_item(inbox: Inbox, kind: type[Item] = Block) -> Item:
    """The next item, which must be of this kind."""
    item = inbox.get(PATIENCE)
    assert isinstance(item, kind), item
    return item


def packets_of(block: Item) -> list[bytes]:
    assert isinstance(block, Block)
    return [block.memory[start:end] for start, end in zip(block.starts, block.ends, strict=True)]


def next_packets(inbox: Inbox, count: int) -> list[bytes]:
    """The next packets, however many blocks they come in."""
    packets: list[bytes] = []
    while len(packets) < count:
        packets += packets_of(next_item(inbox))
    return packets


def test_the_greeting_asks_for_the_largest_queue(daemon: FakeDaemon, tmp_path: Path):
    inbox = Inbox(0)
    with running(tmp_path / "bus.sock", inbox):
        daemon.accept()
        opened = next_item(inbox, Opened)
    assert isinstance(opened, Opened)
    assert (opened.host, opened.local) == ("here", ("local/>", "x/*"))
    assert opened.status == STATUS.decode()
    assert daemon.asked == [
        b"CMSG status\0",
        b"CMSG queue\0packets=100000 bytes=67108864 policy=drop-oldest",
        b"CMSG pack\0on",
        b"CMSG tap\0interface",
    ]


@pytest.mark.parametrize(
    ("answer", "fault", "text"),
    [
        (b"CMSG error\0refused CMSG tap: no right to tap", RefusedError, "no right to tap"),
        (b"CMSG error\0bad-value CMSG tap: one of on, off", ConfigError, "install the same version of"),
    ],
)
def test_a_rejected_greeting_ends_it(
    daemon: FakeDaemon, tmp_path: Path, answer: bytes, fault: type[Exception], text: str
):
    daemon.answers[b"tap"] = answer
    inbox = Inbox(0)
    with running(tmp_path / "bus.sock", inbox) as (_, faults):
        daemon.accept()
        wait_until(lambda: faults, "a fault")
        assert inbox.get(PATIENCE) == Finished()
    [error] = faults
    assert isinstance(error, fault)
    assert text in str(error)


def test_a_daemon_with_smaller_queues_is_asked_for_less(daemon: FakeDaemon, tmp_path: Path):
    daemon.answers[b"queue"] = b"CMSG error\0bad-value CMSG queue: packets is a number from 1 to 5"
    inbox = Inbox(0)
    with running(tmp_path / "bus.sock", inbox):
        daemon.accept()
        next_item(inbox, Opened)
    assert [packet for packet in daemon.asked if packet.startswith(b"CMSG queue")] == [
        b"CMSG queue\0packets=100000 bytes=67108864 policy=drop-oldest",
        b"CMSG queue\0packets=10000 bytes=8388608 policy=drop-oldest",
    ]


def test_a_missing_or_closing_daemon_is_waited_for(daemon: FakeDaemon, tmp_path: Path):
    inbox = Inbox(0)
    path = tmp_path / "later.sock"
    with capture_logs() as lines, running(path, inbox) as (_, faults):
        wait_until(lambda: lines, "a line about the daemon")
        (tmp_path / "bus.sock").rename(path)
        daemon.answers[b"tap"] = b"CMSG closing\0shutdown"
        daemon.accept()
        daemon.client.close()
        wait_until(lambda: len(lines) > 1, "another line")
        daemon.answers[b"tap"] = b"interface"
        daemon.accept()
        next_item(inbox, Opened)
    assert faults == []
    assert [line["event"] for line in lines[:2]] == ["no daemon, trying again"] * 2
    assert "No such file or directory" in lines[0]["reason"]
    assert "shutdown" in lines[1]["reason"]


def test_packets_arrive_as_they_were_sent_and_pings_go_out(daemon: FakeDaemon, tmp_path: Path):
    inbox = Inbox(4 * BLOCK_BYTES)
    with running(tmp_path / "bus.sock", inbox) as (tap, faults):
        daemon.accept()
        next_item(inbox, Opened)
        assert daemon.expect(b"CMSG ping\0")[10:].isdigit()
        pack = sbus.pack([RECV, RECV])
        daemon.client.send(RECV)
        daemon.client.send(pack)
        assert next_packets(inbox, 2) == [RECV, pack]
        assert daemon.expect(b"CMSG ping\0"), "a second later another"
        assert tap.connected
    assert faults == []


def test_stopping_reads_the_rest_and_notes_up_to_when(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("bccnd.recorder.tap.LAST_SECONDS", PATIENCE)
    inbox = Inbox(4 * BLOCK_BYTES)
    with running(tmp_path / "bus.sock", inbox) as (tap, _):
        daemon.accept()
        opened = next_item(inbox, Opened)
        tap.stop()
        daemon.expect(b"CMSG tap\0off")
        daemon.client.send(RECV)
        daemon.client.send(b"CMSG tap\0off")
    assert next_packets(inbox, 2) == [RECV, b"CMSG tap\0off"]
    closed = next_item(inbox, Closed)
    assert isinstance(closed, Closed)
    assert isinstance(opened, Opened)
    assert closed.time_ns is not None
    assert closed.time_ns >= opened.time_ns
    next_item(inbox, Finished)


def test_the_daemon_is_asked_for_its_account(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In its greeting, every LOOK_SECONDS, when the writer wants more, and before the tap ends."""
    monkeypatch.setattr("bccnd.recorder.tap.LOOK_SECONDS", 0.0)
    with running(tmp_path / "bus.sock", Inbox(4 * BLOCK_BYTES)) as (tap, _):
        daemon.accept()
        assert [daemon.expect(b"CMSG ")[:9] for _ in range(4)] == [b"CMSG ping", b"CMSG stat"] * 2
        tap.ask("clients", "17")
        assert daemon.expect(b"CMSG clients") == b"CMSG clients\x0017"
        tap.stop()
        assert daemon.expect(b"CMSG clients") == b"CMSG clients\0"
        assert daemon.expect(b"CMSG tap") == b"CMSG tap\0off"


def test_patterns_are_subscribed_to_and_read_to_the_end(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without a tap there is none to turn off: a pong says that everything was read."""
    monkeypatch.setattr("bccnd.recorder.tap.LAST_SECONDS", PATIENCE)
    inbox = Inbox(4 * BLOCK_BYTES)
    daemon.last = b"ping"
    with running(tmp_path / "bus.sock", inbox, ["a/>", "b"]) as (tap, _):
        daemon.accept()
        next_item(inbox, Opened)
        assert [packet for packet in daemon.asked if packet.startswith((b"SUB", b"CMSG tap"))] == [
            b"SUB a/>",
            b"SUB b",
        ]
        tap.stop()
        daemon.expect(b"CMSG clients")
        ping = daemon.expect(b"CMSG ping")
        daemon.client.send(RECV)
        daemon.client.send(ping.replace(b"ping", b"pong"))
    assert RECV in next_packets(inbox, 2)
    closed = next_item(inbox, Closed)
    assert isinstance(closed, Closed)
    assert b"%d" % (closed.time_ns or 0) == ping.partition(b"\0")[2]


def test_a_first_attempt_that_fails_is_raised(daemon: FakeDaemon, tmp_path: Path):
    tap = Tap(str(tmp_path / "none"), Inbox(0), lambda _: None)
    with pytest.raises(UnavailableError, match="No such file"):
        tap.connect()
    daemon.answers[b"tap"] = b"CMSG error\0refused CMSG tap: no right to tap"
    answering = threading.Thread(target=daemon.accept)
    answering.start()
    with pytest.raises(RefusedError, match="no right to tap"):
        Tap(str(tmp_path / "bus.sock"), Inbox(0), lambda _: None).connect()
    answering.join()


def test_the_end_of_a_connection_keeps_its_reason(daemon: FakeDaemon, tmp_path: Path):
    """Also where the packet that says it finds no empty block."""
    inbox = Inbox(3 * BLOCK_BYTES)
    with running(tmp_path / "bus.sock", inbox):
        daemon.accept()
        next_item(inbox, Opened)
        for _ in range(100):
            daemon.client.send(RECV + b"x" * 60_000)
        daemon.client.send(b"CMSG closing\0shutdown")
        daemon.client.close()
        while not isinstance(item := inbox.get(PATIENCE), Closed):
            assert item is not None
    assert (item.time_ns, item.reason) == (None, "shutdown")
    assert item.gone_ns is not None


def test_a_silent_daemon_does_not_delay_stopping(daemon: FakeDaemon, tmp_path: Path):
    inbox = Inbox(4 * BLOCK_BYTES)
    with running(tmp_path / "bus.sock", inbox):
        daemon.accept()
        next_item(inbox, Opened)
    assert inbox.get(0) == Closed(None)


def test_a_new_connection_asks_for_everything_again(daemon: FakeDaemon, tmp_path: Path):
    inbox = Inbox(4 * BLOCK_BYTES)
    with running(tmp_path / "bus.sock", inbox):
        daemon.accept()
        next_item(inbox, Opened)
        daemon.client.send(RECV)
        daemon.client.close()
        assert next_packets(inbox, 1) == [RECV]
        closed = next_item(inbox, Closed)
        assert isinstance(closed, Closed)
        assert closed.time_ns is None
        assert closed.gone_ns is not None
        daemon.asked.clear()
        daemon.accept()
        next_item(inbox, Opened)
        assert daemon.asked[-1] == b"CMSG tap\0interface"


def test_packets_without_a_block_are_counted_and_reading_goes_on(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of three blocks two wait and one is read into: whenever that is full, its messages are counted and dropped."""
    monkeypatch.setattr("bccnd.recorder.tap.LAST_SECONDS", PATIENCE)
    inbox = Inbox(3 * BLOCK_BYTES)
    payload = b"x" * 60_000
    pack = sbus.pack([RECV + payload, b"CMSG dropped\x005"])
    with running(tmp_path / "bus.sock", inbox) as (tap, _):
        daemon.accept()
        for _ in range(200):
            daemon.client.send(pack)
        wait_until(lambda: tap.unrecorded >= 600, "messages that are counted")
        tap.stop()
        daemon.expect(b"CMSG tap\0off")
        daemon.client.send(b"CMSG tap\0off")
    kept = lost = 0
    while not isinstance(item := inbox.get(0), Finished):
        if isinstance(item, Block):
            kept += 6 * len([packet for packet in packets_of(item) if packet.startswith(b"PACK")])
        elif isinstance(item, Lost):
            lost += item.messages
    assert lost == tap.unrecorded > 0
    assert kept + lost == 200 * 6


@pytest.mark.parametrize(
    ("packet", "fault"),
    [(b"CMSG revoked\0CMSG tap", RefusedError), (b"x" * (PACKET_LIMIT + 1), ProtocolError)],
)
def test_a_fault_is_passed_on(daemon: FakeDaemon, tmp_path: Path, packet: bytes, fault: type[Exception]):
    inbox = Inbox(0)
    with running(tmp_path / "bus.sock", inbox) as (tap, faults):
        daemon.accept()
        daemon.client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        daemon.client.send(packet)
        if fault is RefusedError:
            tap.ended("the right to tap was revoked")
        wait_until(lambda: faults, "a fault")
    assert isinstance(faults[0], fault)
