"""From the inbox to the files: marks where something is missing, gaps where much is, a disk that takes its time."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bccnd.errors import BccndError
from bccnd.recorder import files
from bccnd.recorder.files import Limits
from bccnd.recorder.inbox import CHUNK_BYTES, Closed, Finished, Inbox, Lost, Opened
from bccnd.recorder.writer import Writer
from bccnd.wire import sbus
from tests.packet_client import PATIENCE, wait_until
from tests.recorder_process import assert_well_kept, rows_of

NOON = 1_760_000_000_000_000_000
SECOND = 10**9


def recv(time_ns: int) -> bytes:
    return sbus.Recv(b"local", time_ns, b"ok", b"BCCN1[6]x:7:a|", b"-").serialize()


class Running:
    """A writer on its thread, fed by hand."""

    def __init__(self, output: Path, limit: int = 8 * CHUNK_BYTES) -> None:
        self.output = output
        self.inbox = Inbox(limit)
        self.ended: list[str] = []
        self.faults: list[BaseException] = []
        self.writer = Writer(output, Limits(), self.inbox, limit, self.ended.append, self.faults.append)
        self.thread = threading.Thread(target=self.writer.run)
        self.thread.start()

    def read(self, *packets: bytes) -> bool:
        """Have these read together; whether there was room."""
        chunk = self.inbox.chunk()
        if chunk is None:
            return False
        for packet in packets:
            chunk.memory[chunk.used : chunk.used + len(packet)] = packet
            chunk.add(len(packet))
        self.inbox.put(chunk)
        return True

    def finish(self) -> list[dict[str, Any]]:
        """Every row of its files."""
        self.inbox.put(Finished())
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        paths = sorted(self.output.glob("date=*/host=*/*.parquet"), key=lambda path: path.name)
        return [row for path in paths for row in rows_of(path)]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.finish()


def shown(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Verdict, milliseconds since NOON, and size where that is a count."""
    return [
        (row["verdict"], (row["time_ns"] - NOON) // 10**6, 0 if row["direction"] else row["size"])
        for row in rows
    ]


def test_losses_are_marked_before_what_comes_next(running: Running):
    running.inbox.put(Opened(NOON, "here", ()))
    running.read(recv(NOON + 10**6), b"CMSG dropped\x007", recv(NOON + 2 * 10**6))
    running.inbox.put(Lost(5))
    running.read(b"CMSG dropped\x003", recv(NOON + 3 * 10**6))
    running.inbox.put(Lost(2))
    running.inbox.put(Closed(NOON + 4 * 10**6))
    rows = running.finish()
    assert_well_kept(rows)
    assert shown(rows) == [
        ("opened", 0, 0),
        ("ok", 1, 0),
        ("unrecorded", 2, 7),
        ("ok", 2, 0),
        ("unrecorded", 3, 8),
        ("ok", 3, 0),
        ("unrecorded", 4, 2),
        ("closed", 4, 0),
    ]
    assert running.writer.dropped == 10


def test_where_more_than_a_second_is_missing_nobody_takes_it_for_recorded(running: Running):
    running.inbox.put(Opened(NOON, "here", ()))
    running.read(recv(NOON + SECOND), b"CMSG dropped\x007", recv(NOON + 5 * SECOND))
    running.inbox.put(Closed(None))
    rows = running.finish()
    assert assert_well_kept(rows) == [(NOON, NOON + SECOND), (NOON + 5 * SECOND, NOON + 5 * SECOND)]
    assert shown(rows)[3:] == [
        ("opened", 5000, 0),
        ("unrecorded", 5000, 7),
        ("ok", 5000, 0),
        ("closed", 5000, 0),
    ]


def test_an_answered_ping_says_how_far_the_record_reaches(running: Running):
    """A loss in the middle of a silence is within a second of where it happened."""
    running.inbox.put(Opened(NOON, "here", ()))
    running.read(recv(NOON + 1), b"CMSG pong\x00%d" % (NOON + 60 * SECOND))
    running.read(b"CMSG dropped\x001", recv(NOON + 60 * SECOND + 5 * 10**8))
    running.inbox.put(Closed(None))
    rows = running.finish()
    assert len(assert_well_kept(rows)) == 1
    assert ("unrecorded", 60_500, 1) in shown(rows)


def test_between_two_connections_nothing_is_recorded(running: Running):
    running.inbox.put(Opened(NOON, "here", ()))
    running.read(recv(NOON + 1))
    running.inbox.put(Closed(None))
    running.inbox.put(Opened(NOON + 3 * SECOND, "here", (b"a",)))
    running.read(recv(NOON + 4 * SECOND))
    running.inbox.put(Closed(NOON + 5 * SECOND))
    rows = running.finish()
    assert assert_well_kept(rows) == [(NOON, NOON + 1), (NOON + 3 * SECOND, NOON + 5 * SECOND)]
    assert [row["direction"] for row in rows if row["direction"]] == ["out", "local"]


def test_a_daemon_that_comes_back_under_another_name_has_files_of_its_own(running: Running):
    for number, host in enumerate(("here", "there")):
        running.inbox.put(Opened(NOON + number * SECOND, host, ()))
        running.read(recv(NOON + number * SECOND))
        running.inbox.put(Closed(None))
    rows = running.finish()
    assert len(assert_well_kept(rows)) == 2
    folders = {path.parent.name for path in running.output.rglob("*.parquet")}
    assert folders == {"host=here", "host=there"}
    assert running.writer.counts.files == 2


def test_what_the_daemon_says_of_the_end_is_passed_on(running: Running):
    running.inbox.put(Opened(NOON, "here", ()))
    running.read(b"CMSG revoked\0CMSG tap")
    running.inbox.put(Closed(None))
    running.finish()
    assert running.ended == ["the right to tap was revoked"]


def test_what_it_cannot_go_on_from(tmp_path: Path):
    (tmp_path / "file").write_text("")
    running = Running(tmp_path / "file")
    running.inbox.put(Opened(NOON, "here", ()))
    running.thread.join(PATIENCE)
    (fault,) = running.faults
    assert isinstance(fault, BccndError)
    assert fault.exit_code == 2


def test_a_slow_disk_holds_the_reader_up_no_longer_than_there_are_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What then finds no chunk is counted by the reader, and marked where it is missing."""
    slow, write = threading.Event(), files.os.write
    written: list[int] = []

    def waiting(descriptor: int, data: bytes) -> int:
        slow.wait(PATIENCE)
        written.append(len(data))
        return write(descriptor, data)

    monkeypatch.setattr(files.os, "write", waiting)
    running = Running(tmp_path, limit=3 * CHUNK_BYTES)
    running.inbox.put(Opened(NOON, "here", ()))
    taken = 0
    while running.read(recv(NOON + taken)):
        taken += 1
    assert taken == 3
    running.inbox.put(Lost(100))
    assert not written
    slow.set()
    wait_until(lambda: running.read(recv(NOON + 3)), "a chunk that is free again")
    running.inbox.put(Closed(None))
    rows = running.finish()
    assert_well_kept(rows)
    assert [row["verdict"] for row in rows] == ["opened", "ok", "ok", "ok", "unrecorded", "ok", "closed"]
    assert [row["size"] for row in rows if row["verdict"] == "unrecorded"] == [100]
