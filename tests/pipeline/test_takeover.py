"""``bccnd/pipeline/takeover.py``: the rows are those that Spark takes over; what is not plain is left to it."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from bccnd.pipeline import storage, takeover
from bccnd.pipeline.ingest import recorded, taken_over
from bccnd.pipeline.layout import Output
from bccnd.pipeline.storage import Batch
from bccnd.recorder.layout import SCHEMA, Mark, mark
from tests.pipeline.digested import counted

NS = 1_769_860_800 * 10**9


@pytest.fixture(autouse=True)
def _however_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "BYTES", 0)


DATAGRAM = {"time_ns": NS + 5, "direction": "in", "verdict": "ok", "size": 60}


def file(folder: Path, host: str, name: str, rows: list[dict[str, object]], *, closed: bool = True) -> Path:
    path = folder / "date=2026-01-31" / f"host={host}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    batches = [mark(Mark.OPENED, NS), pa.RecordBatch.from_pylist(rows, SCHEMA)]
    batches += [mark(Mark.CLOSED, NS + 9, payload=b"{}")] * closed
    pq.write_table(pa.Table.from_batches(batches).unify_dictionaries(), path, write_page_checksum=True)
    return path


def plain(folder: Path) -> list[Path]:
    numbers = [0, 1, 63, 64, 2**63 - 1, 2**63, 2**64 - 1, None]
    rows = [
        {**DATAGRAM, "seq": seq, "src": src, "peer": "10.0.0.1:1", "channel": "a/é", "payload": payload}
        for seq in numbers
        for src, payload in (("a/p/1", b"x"), (None, None), ("", b""), ("\0", b"x" * 999))
    ]
    return [
        file(folder, "a", "1-0.parquet", rows),
        file(folder, "a", "2-0.parquet", rows[:7]),
        file(folder, "b%3Ac%20d", "1-0.parquet", []),
    ]


def test_rows_are_those_that_spark_takes_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "ROWS", 5)
    monkeypatch.setattr(takeover, "HELD_BYTES", 100)
    files = [f"file:{path}" for path in plain(tmp_path / "in")]
    output = Output(str(tmp_path / "out"))
    assert takeover.taken_over(spark, str(tmp_path / "in"), files, output.batch(3)) == 32 + 7 + 6
    (batch,) = storage.all_batches(spark, output)[0]

    def rows(frame: DataFrame) -> dict[str, int]:
        return counted(frame.drop("batch", "file"))

    expected = rows(taken_over(recorded(spark, str(tmp_path / "in"), files)))
    assert rows(storage.traffic(spark, output, [batch])) == expected
    assert batch == Batch(3, 3, merged=False, path=output.batch(3))


def damaged(folder: Path) -> Path:
    path = file(folder, "c", "1-0.parquet", [DATAGRAM])
    path.write_bytes(path.read_bytes()[:-9])
    return path


def of_other_types(folder: Path) -> Path:
    path = file(folder, "c", "1-0.parquet", [DATAGRAM])
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["size"]), path)
    return path


@pytest.mark.parametrize(
    "other",
    [
        damaged,
        of_other_types,
        lambda folder: folder / "date=2026-01-31" / "host=c" / "gone.parquet",
        lambda folder: folder / "c.pcap",
        lambda folder: file(folder, "c", "1-0.parquet", [DATAGRAM], closed=False),
        lambda folder: file(folder, "c", "1-0.parquet", [{**DATAGRAM, "direction": "", "verdict": "broken"}]),
    ],
    ids=["damaged", "of other types", "gone", "a capture", "not closed", "a mark of captures"],
)
def test_what_is_not_plain_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, other: Callable[[Path], Path]
) -> None:
    files = [f"file:{path}" for path in [*plain(tmp_path), other(tmp_path)]]
    batch = tmp_path / "batch=0"
    assert takeover.taken_over(spark, str(tmp_path), files, str(batch)) is None
    assert not (batch / "_SUCCESS").exists()


def test_what_is_little_the_driver_takes_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, here = plain(tmp_path), list[object]()
    size = sum(path.stat().st_size for path in files)
    write = takeover._write
    monkeypatch.setattr(takeover, "_write", lambda folder: here.append(folder) or write(folder))
    for least, folders in ((size + 1, 2), (size, 2)):
        monkeypatch.setattr(takeover, "BYTES", least)
        found = takeover.taken_over(spark, str(tmp_path), [*map(str, files)], str(tmp_path / "batch=0"))
        assert (found, len(here)) == (32 + 7 + 6, folders)
