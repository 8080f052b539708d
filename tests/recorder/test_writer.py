"""From the inbox to the files: marks where messages are missing, gaps where much is, a slow disk."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bccnd.errors import BccndError
from bccnd.recorder import sink
from bccnd.recorder.files import Limits
from bccnd.recorder.folders import recorded
from bccnd.recorder.inbox import BLOCK_BYTES, Closed, Finished, Inbox, Lost, Opened
from bccnd.recorder.layout import DAY_NS
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

    def __init__(self, output: Path, limit: int = 8 * BLOCK_BYTES) -> None:
        self.output = output
        self.inbox = Inbox(limit)
        self.ended: list[str] = []
        self.faults: list[BaseException] = []
        self.asked: list[tuple[str, str]] = []
        self.writer = Writer(
            lambda host, counts: recorded(output, host, Limits(), counts), self.inbox, limit, self.ended.append,
            lambda *request: self.asked.append(request), self.faults.append,
        )  # fmt: skip
        self.thread = threading.Thread(target=self.writer.run)
        self.thread.start()

    def read(self, *packets: bytes) -> bool:
        """Put these packets into the inbox as one block; False if there is no empty block."""
        block = self.inbox.block()
        if block is None:
            return False
        for packet in packets:
            block.put(packet)
        self.inbox.put(block)
        return True

    def finish(self) -> list[dict[str, Any]]:
        """End the writer; returns every row of its files."""
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


def test_losses_are_marked_before_the_next_row(running: Running):
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


def test_a_long_gap_closes_the_record_before_and_opens_it_after(running: Running):
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


def test_a_pong_says_how_far_the_record_reaches(running: Running):
    """A loss during a silence is marked within a second of when it happened."""
    running.inbox.put(Opened(NOON, "here", ()))
    running.read(recv(NOON + 1), b"CMSG pong\x00%d" % (NOON + 60 * SECOND))
    running.read(b"CMSG dropped\x001", recv(NOON + 60 * SECOND + 5 * 10**8))
    running.inbox.put(Closed(None))
    rows = running.finish()
    assert len(assert_well_kept(rows)) == 1
    assert ("unrecorded", 60_500, 1) in shown(rows)


def test_a_clock_set_back_begins_one_other_file(running: Running):
    """Across midnight too, where files of the two days would otherwise take turns with every block."""
    midnight = NOON - NOON % DAY_NS + DAY_NS
    running.inbox.put(Opened(midnight - SECOND, "here", ()))
    running.read(recv(midnight + 5 * SECOND))
    for number in range(20):
        running.read(
            recv(midnight - 60 * SECOND + number), b"CMSG pong\x00%d" % (midnight - 60 * SECOND + number)
        )
        wait_until(lambda: running.inbox.idle, "the writer")
    running.inbox.put(Closed(midnight - 59 * SECOND))
    assert assert_well_kept(running.finish()) == [
        (midnight - 60 * SECOND, midnight - 59 * SECOND),
        (midnight - SECOND, midnight),
        (midnight, midnight + 5 * SECOND),
    ]


def test_between_two_connections_nothing_is_recorded(running: Running):
    running.inbox.put(Opened(NOON, "here", ()))
    running.read(recv(NOON + 1))
    running.inbox.put(Closed(None))
    running.inbox.put(Opened(NOON + 3 * SECOND, "here", ("a",)))
    running.read(recv(NOON + 4 * SECOND))
    running.inbox.put(Closed(NOON + 5 * SECOND))
    rows = running.finish()
    assert assert_well_kept(rows) == [(NOON, NOON + 1), (NOON + 3 * SECOND, NOON + 5 * SECOND)]
    assert [row["direction"] for row in rows if row["direction"]] == ["out", "local"]


def test_a_renamed_daemon_gets_files_of_its_own(running: Running):
    for number, host in enumerate(("here", "there")):
        running.inbox.put(Opened(NOON + number * SECOND, host, ()))
        running.read(recv(NOON + number * SECOND))
        running.inbox.put(Closed(None))
    rows = running.finish()
    assert len(assert_well_kept(rows)) == 2
    folders = {path.parent.name for path in running.output.rglob("*.parquet")}
    assert folders == {"host=here", "host=there"}
    assert running.writer.counts.files == 2


def inner(rows: list[dict[str, Any]]) -> list[tuple[str, int, dict[str, Any]]]:
    """Verdict, milliseconds since NOON and payload of the marks that have one."""
    return [
        (row["verdict"], (row["time_ns"] - NOON) // 10**6, json.loads(row["payload"]))
        for row in rows
        if not row["direction"] and row["payload"]
    ]


@pytest.mark.parametrize(
    ("packets", "closed", "mark", "reason"),
    [
        ([b"CMSG closing\0shutdown"], "", "stopped", "shutdown"),
        ([], "shutdown", "stopped", "shutdown"),
        ([b"CMSG closing\0slow"], "", "disconnected", "slow"),
        ([b"CMSG closing\0limit: " + b"x" * 1000], "", "disconnected", "limit: " + "x" * 193),
        ([], "", "disappeared", None),
    ],
)
def test_the_end_of_a_connection_is_marked(
    running: Running, packets: list[bytes], closed: str, mark: str, reason: str | None
):
    running.inbox.put(Opened(NOON, "here", ()))
    running.read(recv(NOON + 10**6), *packets)
    running.inbox.put(Closed(None, NOON + 2 * 10**6, closed))
    running.inbox.put(Opened(NOON + SECOND, "here", ()))
    running.inbox.put(Closed(NOON + 2 * SECOND))
    rows = running.finish()
    assert assert_well_kept(rows) == [(NOON, NOON + 10**6), (NOON + SECOND, NOON + 2 * SECOND)]
    gone_ns = NOON + 2 * 10**6
    assert inner(rows) == [
        (mark, 1, {"reason": reason, "gone_ns": gone_ns}),
        ("returned", 1000, {"after": mark, "gone_ns": gone_ns}),
    ]


def test_answers_of_the_daemon_become_marks_where_they_stand(running: Running):
    status = b'CMSG status\0{"pid":7,"uptime":1.0,"counters":{"dropped":%d}}'
    page = b'CMSG clients\0{"clients":[{"name":"a/b/1","dropped":5,"seconds":9}],"next":null}'
    running.inbox.put(Opened(NOON, "here", ()))
    running.read(recv(NOON + 10**6), status % 0, recv(NOON + 2 * 10**6), status % 5)
    wait_until(lambda: running.asked, "a question")
    running.read(recv(NOON + 3 * 10**6), page, recv(NOON + 4 * 10**6))
    running.inbox.put(Closed(NOON + SECOND))
    rows = running.finish()
    assert running.asked == [("clients", "")]
    assert [verdict for verdict, _, _ in shown(rows)] == [
        "opened", "ok", "daemon", "ok", "ok", "counters", "ok", "closed"
    ]  # fmt: skip
    (about, counted) = (payload for _, _, payload in inner(rows))
    assert about["pid"] == 7
    assert (counted["from_ns"], counted["dropped"]) == (NOON + 10**6, 5)
    assert [(row["name"], row["dropped"]) for row in counted["clients"]] == [("a/b/1", 5)]


def test_each_connection_begins_with_who_the_daemon_is(running: Running):
    """Also one that ends at once, and also if the daemon has lost messages before."""
    for number in range(3):
        status = json.dumps({"pid": number, "counters": {"dropped": number}})
        running.inbox.put(Opened(NOON + number * SECOND, "here", (), status))
        running.inbox.put(Closed(None, NOON + number * SECOND + 10**6))
    marks = inner(running.finish())
    assert [(at, about["pid"]) for verdict, at, about in marks if verdict == "daemon"] == [
        (0, 0),
        (1000, 1),
        (2000, 2),
    ]


def test_what_is_lost_counts_from_the_greeting(running: Running):
    status = '{"pid":7,"uptime":1.0,"counters":{"dropped":%d}}'
    running.inbox.put(Opened(NOON, "here", (), status % 3))
    running.read(recv(NOON + 10**6), b"CMSG status\0" + (status % 5).encode())
    running.inbox.put(Closed(NOON + SECOND))
    (_, counted) = (about for _, _, about in inner(running.finish()))
    assert (counted["from_ns"], counted["dropped"]) == (NOON, 2)


def test_what_another_daemon_was_is_forgotten(running: Running):
    for start in (NOON, NOON + SECOND):
        running.inbox.put(Opened(start, "here", ()))
        if start == NOON:
            running.read(b'CMSG status\0{"pid":7}')
        running.inbox.put(Closed(start + 1))
    assert [verdict for verdict, _, _ in inner(running.finish())] == ["daemon"]


def test_the_reason_for_an_end_is_passed_on(running: Running):
    running.inbox.put(Opened(NOON, "here", ()))
    running.read(b"CMSG revoked\0CMSG tap")
    running.inbox.put(Closed(None))
    running.finish()
    assert running.ended == ["the right to tap was revoked"]


def test_a_fault_is_passed_on(tmp_path: Path):
    (tmp_path / "file").write_text("")
    running = Running(tmp_path / "file")
    running.inbox.put(Opened(NOON, "here", ()))
    running.thread.join(PATIENCE)
    (fault,) = running.faults
    assert isinstance(fault, BccndError)
    assert fault.exit_code == 2


def test_a_slow_disk_costs_the_reader_blocks_but_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The reader counts what it has no block for, and the record is marked where it is missing."""
    slow, write = threading.Event(), sink.os.write
    written: list[int] = []

    def waiting(descriptor: int, data: bytes) -> int:
        slow.wait(PATIENCE)
        written.append(len(data))
        return write(descriptor, data)

    monkeypatch.setattr(sink.os, "write", waiting)
    running = Running(tmp_path, limit=3 * BLOCK_BYTES)
    running.inbox.put(Opened(NOON, "here", ()))
    taken = 0
    while running.read(recv(NOON + taken)):
        taken += 1
    assert taken == 3
    running.inbox.put(Lost(100))
    assert not written
    slow.set()
    wait_until(lambda: running.read(recv(NOON + 3)), "a block that is empty again")
    running.inbox.put(Closed(None))
    rows = running.finish()
    assert_well_kept(rows)
    assert [row["verdict"] for row in rows] == ["opened", "ok", "ok", "ok", "unrecorded", "ok", "closed"]
    assert [row["size"] for row in rows if row["verdict"] == "unrecorded"] == [100]


def test_what_is_said_of_links_is_marked_at_looks_and_at_the_end(running: Running):
    relayed = b"r/bccnd/7/repair:%d:!bccnd/repair|relayed\nx/y/%d"
    bodies = [relayed % (number, number) for number in (1, 2)]
    packets = [
        sbus.Recv(b"10.0.0.2:5400", NOON + 1, b"ok", b"BCCN1[%d]%b" % (len(body), body), b"eth0").serialize()
        for body in bodies
    ]
    running.inbox.put(Opened(NOON, "here", ()))
    running.read(packets[0], b'CMSG status\x00{"counters":{}}')
    running.read(b'CMSG status\x00{"counters":{}}')
    running.read(packets[1])
    running.inbox.put(Closed(NOON + SECOND))
    rows = running.finish()
    assert_well_kept(rows)
    said = [json.loads(row["payload"]) for row in rows if row["verdict"] == "relayed"]
    assert said == [{"by": "r", "sources": [{"src": f"x/y/{number}", "left_out": []}]} for number in (1, 2)]
