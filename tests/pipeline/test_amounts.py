"""``bccnd/pipeline/amounts.py``."""

from pathlib import Path

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


def test_amount_reads_as_people_write_it() -> None:
    assert str(Amount(1, 3_480)) == "1 file, 3.5 kB"
    assert str(Amount(1200, 68_412_345)) == "1,200 files, 68.4 MB"
