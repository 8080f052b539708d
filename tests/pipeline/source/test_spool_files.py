"""Spool files: whole or not there, never changed, their numbers never used twice; what goes unread is counted."""

import errno
import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest

from bccnd.errors import ConfigError
from bccnd.pipeline.source import spool_files
from bccnd.pipeline.source.spool_files import Spool
from bccnd.recorder import sink
from bccnd.recorder.files import Limits, Recording
from bccnd.recorder.layout import SCHEMA, Mark
from tests.recorder_process import rows_of


def spool(folder: Path, limit: int = 1 << 30) -> Recording:
    return Recording(Spool(str(folder), "here", limit), Limits(group_bytes=1, empty_files=False))


def write(recording: Recording, time_ns: int, messages: int, payload: bytes = b"x") -> None:
    """A file with so many messages."""
    row = {"time_ns": time_ns, "direction": "in", "verdict": "ok", "payload": payload, "size": 1}
    recording.open(time_ns, 0.0)
    recording.write(pa.RecordBatch.from_pylist([row] * messages, SCHEMA), 0.0)
    recording.close(time_ns, 0.0)


def listed(folder: Path) -> list[tuple[int, int]]:
    return [(each.number, each.messages) for each in spool_files.listed(str(folder))]


def test_a_file_appears_whole_with_a_number_and_a_count(tmp_path: Path) -> None:
    recording = spool(tmp_path)
    write(recording, 5, 3)
    write(recording, 4, 7)
    [first, second] = spool_files.listed(str(tmp_path))
    assert (first.messages, second.messages, second.number) == (3, 7, first.number + 1)
    assert first.size == Path(first.path).stat().st_size
    assert spool_files.messages_of(second.path) == 7
    assert len(rows_of(Path(second.path))) == 1 + 7 + 1
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_numbers_only_go_up(tmp_path: Path) -> None:
    first = spool_files.next_number(str(tmp_path))
    assert abs(first - time.time_ns() // 1000) < 10**7
    write(spool(tmp_path), 5, 1)
    [(number, _)] = listed(tmp_path)
    assert number >= first
    assert spool_files.next_number(str(tmp_path)) == number + 1
    spool_files.remove_through(str(tmp_path), number)
    assert spool_files.next_number(str(tmp_path)) == number + 1, "the newest stays"


def test_a_query_removes_what_it_has_but_not_the_newest(tmp_path: Path) -> None:
    recording = spool(tmp_path)
    for number in range(4):
        write(recording, number, 1)
    numbers = [number for number, _ in listed(tmp_path)]
    spool_files.remove_through(str(tmp_path), numbers[1])
    assert [number for number, _ in listed(tmp_path)] == numbers[2:]
    spool_files.remove_through(str(tmp_path), numbers[3])
    assert [number for number, _ in listed(tmp_path)] == numbers[3:]


def test_other_files_are_ignored_and_leftovers_removed(tmp_path: Path) -> None:
    left = tmp_path / ".00000000000000001.parquet.partial"
    for name in (left.name, "1-1.parquet", "log", "00000000000000001-1.parquet.gz"):
        (tmp_path / name).write_bytes(b"x")
    assert listed(tmp_path) == []
    spool(tmp_path)
    assert not left.exists()
    assert (tmp_path / "log").exists()


def test_a_removed_file_is_counted_in_a_later_one(tmp_path: Path) -> None:
    """With what it had counted itself, and before it goes."""
    recording = spool(tmp_path, limit=30_000)
    counts = []
    for number in range(1, 11):
        write(recording, number, number, os.urandom(10_000))
        there = spool_files.listed(str(tmp_path))
        assert sum(each.size for each in there) <= 30_000 + 5_000, "what a footer takes"
        rows = [row for each in there for row in rows_of(Path(each.path))]
        unrecorded = sum(row["size"] for row in rows if row["verdict"] == Mark.UNRECORDED)
        counts.append(unrecorded + sum(each.messages for each in there))
    assert counts == [sum(range(1, number + 1)) for number in range(1, 11)]
    assert len(listed(tmp_path)) < 10


def test_what_was_to_go_stays_if_its_count_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    recording = spool(tmp_path, limit=1)
    write(recording, 1, 3)
    write(recording, 2, 4)
    before = listed(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(sink.os, "fsync", failing)
        write(recording, 3, 5)
    assert listed(tmp_path) == before
    write(recording, 4, 6)
    [*_, last] = spool_files.listed(str(tmp_path))
    marks = [row for row in rows_of(Path(last.path)) if row["verdict"] == Mark.UNRECORDED]
    assert [row["size"] for row in marks] == [3]


def test_a_damaged_file_goes_without_what_it_counted(tmp_path: Path) -> None:
    recording = spool(tmp_path, limit=1)
    for number in range(3):
        write(recording, number, 5)
        Path(spool_files.listed(str(tmp_path))[0].path).write_bytes(b"damaged")
    rows = rows_of(Path(spool_files.listed(str(tmp_path))[-1].path))
    assert [row["size"] for row in rows if row["verdict"] == Mark.UNRECORDED] == [5]


def test_a_spool_that_is_gone_ends_the_spooler(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    recording = spool(tmp_path / "spool")
    recording.open(1, 0.0)
    recording.mark(Mark.COUNTERS, 2, 0.0, payload=b"{}")
    shutil.rmtree(tmp_path / "spool")
    with pytest.raises(ConfigError, match="the directory is gone"):
        recording.close(3, 0.0)
    assert not (tmp_path / "spool").exists()
