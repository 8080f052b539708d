"""A file for pyarrow, on a disk that takes everything, a part, or nothing."""

from pathlib import Path

import pytest

from bccnd.recorder import sink
from bccnd.recorder.sink import RETRY_SECONDS, Sink


def test_what_the_disk_does_not_take_is_tried_again_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = Sink(tmp_path / "folder" / ".part")
    made.write(b"one")
    with monkeypatch.context() as patched:
        patched.setattr(sink.os, "write", _failing)
        made.write(b"two")
        made.write(b"three")
        assert (made.backlog, made.tell(), made.errors) == (8, 11, 1)
        assert not made.retry(5.0)
        assert not made.retry(5.0 + RETRY_SECONDS / 2)
        assert made.errors == 2
    assert made.retry(5.0 + RETRY_SECONDS)
    made.finish(tmp_path / "folder" / "whole")
    assert (tmp_path / "folder" / "whole").read_bytes() == b"onetwothree"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["whole"]


def test_a_discarded_file_does_not_come_back(tmp_path: Path):
    """pyarrow writes the end of a file when it notices that nobody holds the writer any longer."""
    made = Sink(tmp_path / ".part")
    made.write(b"one")
    made.discard()
    assert made.write(b"two") == 3
    assert (made.backlog, [*tmp_path.iterdir()]) == (0, [])


def test_a_folder_that_is_gone_is_made_where_that_is_wanted(tmp_path: Path):
    made = Sink(tmp_path / "gone" / ".part", make_folder=False)
    made.write(b"one")
    assert isinstance(made.error, FileNotFoundError)
    assert not (tmp_path / "gone").exists()
    Sink(tmp_path / "gone" / ".part").write(b"one")
    assert (tmp_path / "gone" / ".part").read_bytes() == b"one"


def _failing(*_: object) -> int:
    raise OSError(28, "No space left on device")
