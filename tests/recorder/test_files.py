"""Recorded files: whole or not there, rotated, and safe on disks that fail."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bccnd.recorder import sink
from bccnd.recorder.files import Limits
from bccnd.recorder.folders import recorded
from bccnd.recorder.layout import DAY_NS, HOST_KEY, SCHEMA, Mark
from tests.pipeline import network
from tests.recorder_process import assert_well_kept, rows_of

NOON = 20_000 * DAY_NS + DAY_NS // 2


def batch(*times: int, payload: bytes = b"x") -> pa.RecordBatch:
    columns = {
        "time_ns": list(times),
        "direction": ["in"] * len(times),
        "verdict": ["ok"] * len(times),
        "size": [1] * len(times),
        "payload": [payload] * len(times),
    }
    arrays = [pa.array(columns.get(field.name, [None] * len(times)), field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def whole(output: Path) -> list[Path]:
    return sorted(output.glob("date=*/host=here/*.parquet"), key=lambda path: path.name)


def unfinished(output: Path) -> list[Path]:
    return list(output.rglob("*.partial"))


def test_a_file_appears_when_it_is_whole(tmp_path: Path):
    recording = recorded(tmp_path, "here", Limits())
    recording.open(NOON, 0.0)
    recording.write(batch(NOON + 1, NOON + 2), 0.0)
    recording.mark(Mark.UNRECORDED, NOON + 3, 0.0, size=7)
    assert not whole(tmp_path)
    recording.close(NOON + 9, 1.0)
    (path,) = whole(tmp_path)
    assert path.parent == tmp_path / "date=2024-10-04" / "host=here"
    rows = rows_of(path)
    assert_well_kept(rows)
    assert [(row["verdict"], row["time_ns"] - NOON, row["size"]) for row in rows] == [
        ("opened", 0, 0), ("ok", 1, 1), ("ok", 2, 1), ("unrecorded", 3, 7), ("closed", 9, 0)
    ]  # fmt: skip
    assert not unfinished(tmp_path)
    counts = recording.counts
    assert (counts.rows, counts.files, counts.size) == (2, 1, path.stat().st_size)
    recording.end()


def test_numbers_without_payloads_are_a_tenth(tmp_path: Path):
    """Of a generated network, with payloads that do not compress, of 204 bytes on average."""
    plan = network.Plan(hosts=10, sources=3, messages=1000, seconds=300)
    network.write(plan, tmp_path / "generated")
    (path,) = (tmp_path / "generated").glob("date=*/host=host-000/*.parquet")
    generated = pq.read_table(path).cast(SCHEMA)
    rows = generated.filter(pc.not_equal(generated["direction"], ""))
    at = rows.schema.get_field_index("payload")
    beats = pc.starts_with(rows["channel"].cast(pa.string()), "heartbeat/").to_pylist()
    lengths = pc.binary_length(rows["payload"]).to_pylist()
    sizes = {}
    for which, payloads in (
        ("all", [os.urandom(length) for length in lengths]),
        ("none", [b"" if beat else None for beat in beats]),
    ):
        recording = recorded(tmp_path / which, "here", Limits())
        recording.open(rows["time_ns"][0].as_py(), 0.0)
        for part in (
            rows.set_column(at, "payload", pa.array(payloads, pa.binary())).combine_chunks().to_batches()
        ):
            recording.write(part, 0.0)
        recording.close(rows["time_ns"][-1].as_py(), 0.0)
        sizes[which] = recording.counts.size / len(rows)
        recording.end()
    assert sizes["all"] > 200
    assert sizes["none"] <= sizes["all"] / 10
    assert sizes["none"] < 12, "bytes a row, as the README says about the cost"


def test_each_file_says_what_the_daemon_was(tmp_path: Path):
    recording = recorded(tmp_path, "here", Limits())
    recording.open(NOON, 0.0)
    recording.describe(b"{}")
    recording.mark(Mark.DAEMON, NOON + 1, 0.0, payload=b"{}")
    recording.rotate_if_due(NOON + 2, 30.0)
    recording.close(NOON + 3, 31.0)
    recording.describe(None)
    recording.open(NOON + 4, 31.0)
    recording.close(NOON + 5, 31.0)
    recording.end()
    shown = [
        [(row["verdict"], row["time_ns"] - NOON, row["payload"]) for row in rows_of(path)]
        for path in whole(tmp_path)
    ]
    assert shown == [
        [("opened", 0, None), ("daemon", 1, b"{}"), ("closed", 2, None)],
        [("opened", 2, None), ("daemon", 2, b"{}"), ("closed", 3, None)],
        [("opened", 4, None), ("closed", 5, None)],
    ]


def test_a_mark_of_a_new_day_begins_its_file(tmp_path: Path):
    midnight = 20_001 * DAY_NS
    recording = recorded(tmp_path, "here", Limits())
    recording.open(midnight - 10, 0.0)
    recording.mark(Mark.UNRECORDED, midnight + 5, 0.0, size=1)
    recording.close(midnight + 7, 0.0)
    recording.end()
    found = [[row["time_ns"] - midnight for row in rows_of(path)] for path in whole(tmp_path)]
    assert found == [[-10, 0], [0, 5, 7]]


def test_files_rotate_by_time_and_by_size(tmp_path: Path):
    limits = Limits(rotate_seconds=30, rotate_bytes=1 << 20)
    recording = recorded(tmp_path, "here", limits)
    recording.open(NOON, 0.0)
    recording.rotate_if_due(NOON + 1, 29.9)
    assert not whole(tmp_path)
    recording.rotate_if_due(NOON + 2, 30.0)
    assert len(whole(tmp_path)) == 1
    recording.write(batch(NOON + 3, payload=os.urandom(1 << 20)), 31.0)
    recording.rotate_if_due(NOON + 3, 31.0)
    recording.close(NOON + 4, 32.0)
    spans = [
        (rows[0]["time_ns"] - NOON, rows[-1]["time_ns"] - NOON) for rows in map(rows_of, whole(tmp_path))
    ]
    assert spans == [(0, 2), (2, 3), (3, 4)]
    recording.end()


def test_no_file_spans_midnight(tmp_path: Path):
    midnight = 20_001 * DAY_NS
    recording = recorded(tmp_path, "here", Limits())
    recording.open(midnight - 10, 0.0)
    recording.write(batch(midnight - 5, midnight - 1, midnight, midnight + 5), 0.0)
    recording.rotate_if_due(midnight + DAY_NS + 3, 0.0)
    recording.close(midnight + DAY_NS + 7, 0.0)
    found = [
        (path.parts[-3], [row["time_ns"] - midnight for row in rows_of(path)]) for path in whole(tmp_path)
    ]
    assert found == [
        ("date=2024-10-04", [-10, -5, -1, 0]),
        ("date=2024-10-05", [0, 0, 5, DAY_NS]),
        ("date=2024-10-06", [DAY_NS, DAY_NS + 7]),
    ]
    recording.end()


def test_a_clock_set_back_a_day_begins_another_file(tmp_path: Path):
    recording = recorded(tmp_path, "here", Limits())
    recording.open(NOON, 0.0)
    recording.write(batch(NOON + 5, NOON - DAY_NS, NOON - DAY_NS + 1), 0.0)
    recording.close(NOON - DAY_NS + 2, 0.0)
    found = [[row["time_ns"] - NOON for row in rows_of(path)] for path in whole(tmp_path)]
    assert found == [[-DAY_NS, -DAY_NS, -DAY_NS + 1, -DAY_NS + 2], [0, 5, 5]]
    recording.end()


class Disk:
    """Stands in for the disk: takes ``room`` bytes, then fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 1 << 40
        self.error = errno.ENOSPC
        self._write = os.write
        monkeypatch.setattr(sink.os, "write", self.write)

    def write(self, descriptor: int, data: bytes) -> int:
        if not self.room:
            raise OSError(self.error, os.strerror(self.error))
        taken = min(self.room, len(data))
        self.room -= taken
        return self._write(descriptor, data[:taken])


@pytest.mark.parametrize("room", [0, 1, 4, 100, 2000])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_disk_full_for_a_while_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, error: int
):
    disk = Disk(monkeypatch)
    disk.room, disk.error = room, error
    recording = recorded(tmp_path, "here", Limits(group_bytes=1))
    recording.open(NOON, 0.0)
    for number in range(20):
        recording.write(batch(NOON + number, payload=os.urandom(100)), 0.0)
    recording.close(NOON + 20, 0.0)
    recording.open(NOON + 20, 0.0)
    recording.write(batch(NOON + 21), 0.0)
    assert recording.backlog > 0
    assert recording.unfinished
    assert recording.disk_error is not None
    assert not whole(tmp_path)
    disk.room = 1 << 40
    recording.tick(0.5 + sink.RETRY_SECONDS)
    recording.close(NOON + 22, 9.0)
    assert (recording.backlog, recording.unfinished, recording.disk_error) == (0, False, None)
    assert [len(rows_of(path)) for path in whole(tmp_path)] == [22, 3]
    assert recording.counts.disk_errors > 0
    recording.end()
    assert recording.counts.lost == 0


def test_a_full_disk_is_tried_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    disk = Disk(monkeypatch)
    disk.room = 0
    recording = recorded(tmp_path, "here", Limits(group_bytes=1))
    recording.open(NOON, 0.0)
    for tenth in range(50):
        recording.write(batch(NOON), 0.0)
        recording.tick(1.0 + tenth / 10)
    recording.end()
    assert recording.counts.disk_errors <= 1 + 6


def test_a_file_that_cannot_be_synced_counts_as_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    recording = recorded(tmp_path, "here", Limits())
    recording.open(NOON, 0.0)
    recording.write(batch(NOON, NOON), 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(sink.os, "fsync", failing)
        recording.close(NOON, 0.0)
    assert (recording.counts.lost, whole(tmp_path), unfinished(tmp_path)) == (2, [], [])
    recording.end()


def test_a_disk_full_at_the_end_loses_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    disk = Disk(monkeypatch)
    recording = recorded(tmp_path, "here", Limits(group_bytes=1))
    recording.open(NOON, 0.0)
    disk.room = 0
    recording.write(batch(NOON, NOON, NOON), 0.0)
    recording.close(NOON, 0.0)
    recording.end()
    assert (recording.counts.lost, whole(tmp_path), unfinished(tmp_path)) == (3, [], [])


def test_groups_with_different_words_make_one_file(tmp_path: Path):
    recording = recorded(tmp_path, "here", Limits(group_bytes=1000))
    recording.open(NOON, 0.0)
    for number in range(100):
        words = batch(NOON + number).to_pylist()
        words[0] |= {"src": f"there/{number % 7}", "channel": f"c/{number}", "seq": 2**64 - 1 - number}
        recording.write(pa.RecordBatch.from_pylist(words, SCHEMA), 0.0)
    recording.close(NOON + 100, 0.0)
    rows = rows_of(whole(tmp_path)[0])[1:-1]
    assert [row["channel"] for row in rows] == [f"c/{number}" for number in range(100)]
    assert [row["seq"] for row in rows] == [2**64 - 1 - number for number in range(100)]
    recording.end()


def test_a_damaged_page_is_found(tmp_path: Path):
    recording = recorded(tmp_path, "here", Limits())
    recording.open(NOON, 0.0)
    recording.write(batch(NOON, NOON, payload=os.urandom(10_000)), 0.0)
    recording.close(NOON, 0.0)
    recording.end()
    (path,) = whole(tmp_path)
    content = bytearray(path.read_bytes())
    columns = [pq.ParquetFile(path).metadata.row_group(0).column(at) for at in range(len(SCHEMA))]
    payload = next(column for column in columns if column.path_in_schema == "payload")
    content[payload.data_page_offset + payload.total_compressed_size // 2] ^= 1
    path.write_bytes(content)
    assert pq.ParquetFile(path).read().num_rows == 4, "whoever does not look gets other payloads"
    with pytest.raises(OSError, match="CRC checksum verification failed"):
        rows_of(path)


def test_a_file_names_its_host(tmp_path: Path):
    recording = recorded(tmp_path, "here", Limits())
    recording.open(NOON, 0.0)
    recording.close(NOON, 0.0)
    recording.end()
    assert pq.read_metadata(whole(tmp_path)[0]).metadata[HOST_KEY.encode()] == b"here"


@pytest.mark.parametrize(("kind", "files"), [(Mark.DAEMON, 0), (Mark.COUNTERS, 1), (Mark.STOPPED, 1)])
def test_a_file_that_says_nothing_can_be_left_out(tmp_path: Path, kind: Mark, files: int):
    recording = recorded(tmp_path, "here", Limits(empty_files=False))
    recording.open(NOON, 0.0)
    recording.mark(kind, NOON + 1, 0.0, payload=b"{}")
    recording.rotate_if_due(NOON + 2, 1000.0)
    assert len(whole(tmp_path)) == files
    recording.close(NOON + 3, 1000.0)
    recording.end()
    assert (len(whole(tmp_path)), unfinished(tmp_path)) == (files, [])
