"""``bccnd/pipeline/amounts.py``."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.pipeline import amounts
from bccnd.pipeline.amounts import Amount, below


def test_recordings_and_captures_are_counted_with_their_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "date=2026-01-31" / "host=a"
    folder.mkdir(parents=True)
    (folder / "1-00000000.parquet").write_bytes(b"x" * 1000)
    (folder / ".2-00000000.parquet.partial").write_bytes(b"x" * 1000)
    (tmp_path / "b.pcap.gz").write_bytes(b"x" * 500)
    (tmp_path / "notes.txt").write_bytes(b"x" * 1000)
    assert below(tmp_path) == Amount(2, 1500)
    assert below(tmp_path / "none") == Amount()


def test_only_folders_of_the_layout_are_looked_into(tmp_path: Path) -> None:
    """Others may be links in a circle, or a whole home."""
    for folder in ("batch=0/date=1/host=a", "date=1/host=a", "other"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "1-00000000.parquet").write_bytes(b"x" * 100)
    for link in ("circle", "another", "date=2", "date=1/host=b"):
        (tmp_path / link).symlink_to(tmp_path)
    assert below(tmp_path) == Amount(2, 200)


def test_a_file_that_goes_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.pcap", "b.pcap"):
        (tmp_path / name).write_bytes(b"x" * 100)
    scandir = os.scandir

    def overtaken(path: str) -> Iterator[os.DirEntry[str]]:
        entries = list(scandir(path))
        (tmp_path / "b.pcap").unlink()
        return iter(entries)

    monkeypatch.setattr(amounts.os, "scandir", overtaken)
    assert below(tmp_path) == Amount(1, 100)


def test_amount_reads_as_people_write_it() -> None:
    assert str(Amount(1, 3_480)) == "1 file, 3.5 kB"
    assert str(Amount(1200, 68_412_345)) == "1,200 files, 68.4 MB"
