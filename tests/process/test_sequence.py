"""The file of sequence numbers: what it promises across crashes, and what it can do without."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.process import logs
from bccnd.process.sequence import LIMIT, MARGIN, RESERVE, SequenceFile

CLOCK = 1_800_000_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.sock.seq"


@pytest.fixture
def warnings(capfd: pytest.CaptureFixture[str]) -> "list[dict[str, str]]":
    """Collects what is logged between two looks."""
    logs.configure(format="json")

    class Lines(list[dict[str, str]]):
        def look(self) -> list[dict[str, str]]:
            self.extend(map(json.loads, capfd.readouterr().err.splitlines()))
            return self

    return Lines()


def test_a_run_begins_behind_the_one_before(path: Path):
    first = SequenceFile(path)
    assert first.first == 0
    first.cover(CLOCK)
    assert SequenceFile(path).first > CLOCK
    first.close(CLOCK + 17)
    assert SequenceFile(path).first == CLOCK + 17


@given(
    st.lists(
        st.tuples(
            st.integers(-(10**12), 10**10),  # microseconds that the clock jumps before a run
            st.lists(st.integers(1, MARGIN), max_size=20),  # numbers used in each second
            st.booleans(),  # whether the run ends in order
        ),
        max_size=6,
    )
)
def test_crashes_and_clock_steps_repeat_no_number(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, list[int], bool]]
):
    path = tmp_path_factory.mktemp("run") / "seq"
    clock, last_used = CLOCK, 0
    for step, seconds, orderly in runs:
        clock += step
        file = SequenceFile(path)
        seq = max(clock, file.first)
        assert seq >= last_used
        file.cover(seq)
        for numbers in seconds:
            file.tick(seq)
            seq += numbers
            last_used = seq
        if orderly:
            file.close(seq)


def test_the_file_is_written_rarely(path: Path):
    file = SequenceFile(path)
    written = []
    for second in range(3600):
        file.tick(CLOCK + second * 10**6)
        if not written or path.stat().st_ino != written[-1]:
            written.append(path.stat().st_ino)
            keep = path.with_suffix(f".{second}")  # keeps the inode from being used again
            os.link(path, keep)
    assert len(written) <= 2 + 3600 * 10**6 // (RESERVE - MARGIN)


@pytest.mark.parametrize("content", ["", "soon", "-1", "1.5", "9" * 30, str(LIMIT), "12\n13", "\0", "१२"])
def test_a_spoilt_file_is_a_warning_and_is_replaced(path: Path, content: str, warnings):
    path.write_text(content)
    file = SequenceFile(path)
    assert file.first == 0
    (warning,) = warnings.look()
    assert warning["event"] == "sequence numbers of the last run unknown"
    assert warning["file"] == str(path)
    assert "not a sequence number" in warning["error"]
    file.cover(CLOCK)
    assert SequenceFile(path).first == CLOCK + RESERVE


def test_an_unreadable_file_is_a_warning(path: Path, warnings):
    path.mkdir()
    assert SequenceFile(path).first == 0
    assert warnings.look()[0]["error"] == "Is a directory"
    path.rmdir()
    path.symlink_to("/etc/hostname")
    assert SequenceFile(path).first == 0
    assert len(warnings.look()) == 2
    path.unlink()
    os.mkfifo(path)
    assert SequenceFile(path).first == 0  # without waiting for its writer


def test_a_full_disk_is_one_warning_and_writing_goes_on(
    path: Path, warnings, monkeypatch: pytest.MonkeyPatch
):
    file = SequenceFile(path)
    replace = Path.replace

    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    for second in range(3):
        file.cover(CLOCK + second)
        file.tick(CLOCK + second)
    assert [(line["event"], line["error"]) for line in warnings.look()] == [
        ("sequence numbers not kept", "No space left on device")
    ]
    assert list(path.parent.iterdir()) == []
    monkeypatch.setattr(Path, "replace", replace)
    file.tick(CLOCK)
    assert SequenceFile(path).first > CLOCK
    monkeypatch.setattr(Path, "replace", full)
    file.tick(CLOCK + 2 * RESERVE)
    assert len(warnings.look()) == 2


def test_without_a_path_nothing_is_kept():
    file = SequenceFile(None)
    file.cover(CLOCK)
    file.tick(CLOCK)
    file.close(CLOCK)
    assert file.first == 0


def test_a_number_beyond_any_clock_is_not_kept(path: Path):
    file = SequenceFile(path)
    file.cover(2**63)
    assert not path.exists()


def test_the_file_is_private_and_nothing_else_is_left(path: Path):
    SequenceFile(path).cover(CLOCK)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]
