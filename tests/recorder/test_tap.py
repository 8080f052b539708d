"""The connection to the daemon: what is asked for, what is read, what happens when nobody takes it."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bccnd.errors import ProtocolError, RefusedError, UnavailableError
from bccnd.recorder.inbox import CHUNK_BYTES, ROOM, Chunk, Closed, Finished, Inbox, Item, Lost, Opened
from bccnd.recorder.tap import Tap, begin, connect
from bccnd.wire import sbus
from tests.packet_client import PATIENCE, wait_until

RECV = sbus.Recv(b"local", 5, b"ok", b"BCCN1[6]x:7:a|", b"-").serialize()
STATUS = json.dumps({"host": "here", "local": ["local/>", "x/*"]}).encode()


class FakeDaemon:
    """Answers as it is told to; what it was asked stands in ``asked``."""

    def __init__(self, path: Path) -> None:
        self.answers = {b"status": STATUS, b"queue": b"packets=1", b"pack": b"on 66565", b"tap": b"interface"}
        self.asked: list[bytes] = []
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(path))
        self._listening.listen()
        self._listening.settimeout(PATIENCE)
        self.client: socket.socket

    def accept(self) -> None:
        """Takes a client up to the end of its greeting."""
        self.client, _ = self._listening.accept()
        self.client.settimeout(PATIENCE)
        while packet := self.client.recv(ROOM):
            self.asked.append(packet)
            key = packet.removeprefix(b"CMSG ").partition(b"\0")[0]
            answer = self.answers.get(key, b"")
            said = answer if answer.startswith(b"CMSG ") else b"CMSG %b\0%b" % (key, answer)
            self.client.send(said)
            if key == b"tap":
                return

    def expect(self, beginning: bytes) -> bytes:
        """The next packet that begins so."""
        while not (packet := self.client.recv(ROOM)).startswith(beginning):
            assert packet
        return packet

    def close(self) -> None:
        self._listening.close()
        if hasattr(self, "client"):
            self.client.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    made = FakeDaemon(tmp_path / "bus.sock")
    yield made
    made.close()


@contextmanager
def running(path: Path, inbox: Inbox) -> Iterator[tuple[Tap, list[BaseException]]]:
    faults: list[BaseException] = []
    tap = Tap(str(path), inbox, faults.append)
    thread = threading.Thread(target=tap.run)
    thread.start()
    try:
        yield tap, faults
    finally:
        tap.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def next_but(inbox: Inbox, kind: type[Item] = Chunk) -> Item:
    """The next item, which must be of this kind."""
    item = inbox.get(PATIENCE)
    assert isinstance(item, kind), item
    return item


def packets_of(chunk: Item) -> list[bytes]:
    assert isinstance(chunk, Chunk)
    return [chunk.memory[start:end] for start, end in zip(chunk.starts, chunk.ends, strict=True)]


def next_packets(inbox: Inbox, count: int) -> list[bytes]:
    """The next packets: those sent one after the other may come in as many chunks."""
    packets: list[bytes] = []
    while len(packets) < count:
        packets += packets_of(next_but(inbox))
    return packets


def test_what_it_asks_for(daemon: FakeDaemon, tmp_path: Path):
    answering = threading.Thread(target=daemon.accept)
    answering.start()
    with connect(str(tmp_path / "bus.sock")) as tap:
        opened = begin(tap)
    answering.join(PATIENCE)
    assert (opened.host, opened.local) == ("here", (b"local/>", b"x/*"))
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
        (b"CMSG error\0bad-value CMSG tap: one of on, off", Exception, "install the same version of both"),
        (b"CMSG closing\0shutdown", UnavailableError, "the daemon says"),
    ],
)
def test_what_it_may_be_told(
    daemon: FakeDaemon, tmp_path: Path, answer: bytes, fault: type[Exception], text: str
):
    daemon.answers[b"tap"] = answer
    answering = threading.Thread(target=daemon.accept)
    answering.start()
    with connect(str(tmp_path / "bus.sock")) as tap, pytest.raises(fault, match=text):
        begin(tap)
    answering.join(PATIENCE)


def test_a_daemon_with_smaller_queues_is_asked_for_less(daemon: FakeDaemon, tmp_path: Path):
    daemon.answers[b"queue"] = b"CMSG error\0bad-value CMSG queue: packets is a number from 1 to 5"
    answering = threading.Thread(target=daemon.accept)
    answering.start()
    with connect(str(tmp_path / "bus.sock")) as tap:
        begin(tap)
    answering.join(PATIENCE)
    assert [packet for packet in daemon.asked if packet.startswith(b"CMSG queue")] == [
        b"CMSG queue\0packets=100000 bytes=67108864 policy=drop-oldest",
        b"CMSG queue\0packets=10000 bytes=8388608 policy=drop-oldest",
    ]


def test_nobody_there(tmp_path: Path):
    with pytest.raises(UnavailableError, match="is bccnd running"):
        connect(str(tmp_path / "none.sock"))


def test_packets_come_as_they_were_sent_with_a_ping_between(daemon: FakeDaemon, tmp_path: Path):
    inbox = Inbox(4 * CHUNK_BYTES)
    with running(tmp_path / "bus.sock", inbox) as (tap, faults):
        daemon.accept()
        next_but(inbox, Opened)
        assert daemon.expect(b"CMSG ping\0")[10:].isdigit()
        pack = sbus.pack([RECV, RECV])
        daemon.client.send(RECV)
        daemon.client.send(pack)
        assert next_packets(inbox, 2) == [RECV, pack]
        assert daemon.expect(b"CMSG ping\0"), "a second later another"
        assert tap.connected
    assert faults == []


def test_once_told_to_stop_it_reads_what_there_is_and_says_up_to_when(daemon: FakeDaemon, tmp_path: Path):
    inbox = Inbox(4 * CHUNK_BYTES)
    with running(tmp_path / "bus.sock", inbox) as (tap, _):
        daemon.accept()
        opened = next_but(inbox, Opened)
        tap.stop()
        daemon.expect(b"CMSG tap\0off")
        daemon.client.send(RECV)
        daemon.client.send(b"CMSG tap\0off")
    assert next_packets(inbox, 2) == [RECV, b"CMSG tap\0off"]
    closed = next_but(inbox, Closed)
    assert isinstance(closed, Closed)
    assert isinstance(opened, Opened)
    assert closed.time_ns is not None
    assert closed.time_ns >= opened.time_ns
    next_but(inbox, Finished)


def test_a_daemon_that_says_nothing_any_more_does_not_keep_it(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("bccnd.recorder.tap.LAST_SECONDS", 0.05)
    inbox = Inbox(4 * CHUNK_BYTES)
    with running(tmp_path / "bus.sock", inbox):
        daemon.accept()
        next_but(inbox, Opened)
    assert inbox.get(0) == Closed(None)


def test_it_connects_again_and_asks_for_everything_anew(daemon: FakeDaemon, tmp_path: Path):
    inbox = Inbox(4 * CHUNK_BYTES)
    with running(tmp_path / "bus.sock", inbox):
        daemon.accept()
        next_but(inbox, Opened)
        daemon.client.send(RECV)
        daemon.client.close()
        assert next_packets(inbox, 1) == [RECV]
        assert next_but(inbox, Closed) == Closed(None)
        daemon.asked.clear()
        daemon.accept()
        next_but(inbox, Opened)
        assert daemon.asked[-1] == b"CMSG tap\0interface"


def test_what_nobody_takes_is_counted_and_reading_goes_on(daemon: FakeDaemon, tmp_path: Path):
    """Of three chunks two wait, one is read into: from then on what it holds is counted, as often as it is full."""
    inbox = Inbox(3 * CHUNK_BYTES)
    payload = b"x" * 60_000
    pack = sbus.pack([RECV + payload, b"CMSG dropped\x005"])
    with running(tmp_path / "bus.sock", inbox) as (tap, _):
        daemon.accept()
        for _ in range(200):
            daemon.client.send(pack)
        wait_until(lambda: tap.unrecorded >= 600, "messages that are counted")
    kept = lost = 0
    while not isinstance(item := inbox.get(0), Finished):
        if isinstance(item, Chunk):
            kept += 6 * len([packet for packet in packets_of(item) if packet.startswith(b"PACK")])
        elif isinstance(item, Lost):
            lost += item.messages
    assert lost == tap.unrecorded > 0
    assert kept + lost == 200 * 6


@pytest.mark.parametrize(
    ("packet", "fault"),
    [(b"CMSG revoked\0CMSG tap", RefusedError), (b"x" * (ROOM + 1), ProtocolError)],
)
def test_what_it_cannot_go_on_from(daemon: FakeDaemon, tmp_path: Path, packet: bytes, fault: type[Exception]):
    inbox = Inbox(0)
    with running(tmp_path / "bus.sock", inbox) as (tap, faults):
        daemon.accept()
        daemon.client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        daemon.client.send(packet)
        if fault is RefusedError:
            tap.ended("the right to tap was revoked")
        wait_until(lambda: faults, "a fault")
    assert isinstance(faults[0], fault)
