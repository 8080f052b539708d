"""The bound of sequence numbers on the disk."""

import os
from pathlib import Path

import pytest

from bccnd.backbone.state_file import StateFile
from bccnd.errors import BccndError, ConfigError, UnavailableError
from bccnd.wire.fyrehose import SEQ_LIMIT


def test_numbers_begin_at_one_and_go_on_from_the_file(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "seq")
    assert file.read() == 1
    file.write(1048577)
    assert (tmp_path / "seq").read_bytes() == b"1048577\n"
    assert file.read() == 1048577
    file.close()
    again = StateFile(tmp_path / "seq")
    assert again.read() == 1048577
    again.close()


def test_each_write_is_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the file, then its name, then the folder."""
    steps: list[str] = []
    synced, renamed = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        steps.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        synced(descriptor)

    def replace(path: Path, target: Path) -> Path:
        steps.append("renamed")
        return renamed(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    file = StateFile(tmp_path / "seq")
    file.write(9)
    file.close()
    assert steps == ["seq.new", "renamed", tmp_path.name]


@pytest.mark.parametrize(
    "content", [b"", b"7", b"seven\n", b"-7\n", b"7\n7\n", b"0\n", b"\0" * 8, b"9" * 16 + b"\n"]
)
def test_a_damaged_file_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "seq").write_bytes(content)
    file = StateFile(tmp_path / "seq")
    with pytest.raises(ConfigError, match=r"is damaged, it holds b.* write a number into it") as caught:
        file.read()
    assert "\n" not in str(caught.value)
    file.close()


def test_used_up_numbers_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "seq").write_text(f"{SEQ_LIMIT}\n")
    file = StateFile(tmp_path / "seq")
    with pytest.raises(ConfigError, match="all sequence numbers are used up; remove it"):
        file.read()
    file.close()


def test_two_backbones_never_share_a_file(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "seq")
    with pytest.raises(UnavailableError, match="another backbone uses it"):
        StateFile(tmp_path / "seq")
    successor = StateFile(tmp_path / "seq", os.dup(file.lock))
    file.close()
    with pytest.raises(UnavailableError, match="another backbone uses it"):
        StateFile(tmp_path / "seq")
    successor.close()
    StateFile(tmp_path / "seq").close()


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BccndError, match=r"seq\.lock: No such file or directory; make its folder first"):
        StateFile(tmp_path / "none" / "seq")
    (tmp_path / "folder").mkdir()
    file = StateFile(tmp_path / "folder")
    with pytest.raises(BccndError, match="Is a directory"):
        file.read()
    with pytest.raises(BccndError, match="Is a directory"):
        file.write(1)
    file.close()


def test_without_a_path_nothing_is_kept() -> None:
    file = StateFile(None)
    file.write(7)
    assert file.read() == 1
    file.close()
