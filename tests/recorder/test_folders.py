"""The files of a host: one writer, and no more of them than there may be."""

import errno
import os
from pathlib import Path

import pytest

from bccnd.errors import ConfigError, RefusedError, UnavailableError
from bccnd.recorder.files import Limits
from bccnd.recorder.folders import recorded
from bccnd.recorder.layout import DAY_NS
from tests.recorder.test_files import NOON, batch, whole


def test_the_oldest_files_are_removed_beyond_the_limit(tmp_path: Path):
    recording = recorded(tmp_path, "here", Limits(keep_bytes=5 << 20))
    for number in range(8):
        recording.open(NOON + number, 0.0)
        recording.write(batch(NOON + number, payload=os.urandom(1 << 20)), 0.0)
        recording.close(NOON + number, 0.0)
    names = [int(path.name.split("-")[0]) - NOON for path in whole(tmp_path)]
    assert names == [4, 5, 6, 7]
    assert recording.kept == sum(path.stat().st_size for path in whole(tmp_path)) <= 5 << 20
    assert recording.counts.removed == 4
    recording.end()


def test_the_unfinished_file_counts_toward_the_limit(tmp_path: Path):
    recording = recorded(tmp_path, "here", Limits(keep_bytes=3 << 20, group_bytes=1))
    for number in range(2):
        recording.open(NOON + number, 0.0)
        recording.write(batch(NOON + number, payload=os.urandom(1 << 20)), 0.0)
        recording.close(NOON + number, 0.0)
    recording.open(NOON + 2, 0.0)
    recording.write(batch(NOON + 2, payload=os.urandom(1 << 20)), 0.0)
    recording.tick(0.0)
    assert len(whole(tmp_path)) == 1
    recording.close(NOON + 3, 0.0)
    recording.end()


def test_old_days_and_their_empty_folders_are_removed(tmp_path: Path):
    recording = recorded(tmp_path, "here", Limits(keep_days=3))
    other = tmp_path / "date=2024-10-04" / "host=other"
    other.mkdir(parents=True)
    (other / f"{NOON}-00000000.parquet").write_bytes(b"not ours")
    for day in range(6):
        recording.open(NOON + day * DAY_NS, 0.0)
        recording.close(NOON + day * DAY_NS, 0.0)
    assert [path.parts[-3] for path in whole(tmp_path)] == [f"date=2024-10-0{day}" for day in (6, 7, 8, 9)]
    assert sorted(path.name for path in tmp_path.glob("date=*")) == [
        f"date=2024-10-0{day}" for day in (4, 6, 7, 8, 9)
    ]
    assert list(other.iterdir())
    recording.end()


def test_a_start_removes_unfinished_files_and_counts_whole_ones(tmp_path: Path):
    first = recorded(tmp_path, "here", Limits())
    first.open(NOON, 0.0)
    first.close(NOON, 0.0)
    first.end()
    left = whole(tmp_path)[0].parent / f".{NOON}-00000000.parquet.partial"
    left.write_bytes(b"PAR1")
    second = recorded(tmp_path, "here", Limits())
    assert not left.exists()
    assert second.kept == whole(tmp_path)[0].stat().st_size
    second.end()


def test_one_writer_per_host_and_directory(tmp_path: Path):
    first = recorded(tmp_path, "here", Limits())
    with pytest.raises(UnavailableError, match="another process records host here there"):
        recorded(tmp_path, "here", Limits())
    recorded(tmp_path, "there", Limits()).end()
    first.end()
    recorded(tmp_path, "here", Limits()).end()


def test_an_unusable_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--output must be a directory"):
        recorded(tmp_path / "file", "here", Limits())

    def denied(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(RefusedError, match="must be writable"):
        recorded(tmp_path, "here", Limits())
