"""``bccnd/pipeline/ingest.py``: every file exactly once, even after kills; bad files are set aside."""

import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bccnd.errors import ConfigError, RefusedError
from bccnd.pipeline import ingest, storage, takeover
from bccnd.pipeline.layout import REJECTED_FILES, Output
from bccnd.pipeline.source import inputs
from bccnd.recorder.files import Limits
from bccnd.recorder.folders import recorded
from bccnd.recorder.layout import SCHEMA as RECORDER_SCHEMA
from bccnd.wire.pcap import Packet, header
from bccnd.wire.udp import UdpDatagram
from tests.pipeline.network import SCHEMA
from tests.plain_bccn import datagram

DEADLINE_SECONDS = 300
# The rows of a file, besides its marks.
ROWS = 1000


def table(rows: int = ROWS, *, closed: bool = True, first_seq: int = 1) -> pa.Table:
    def mark(what: str) -> dict[str, Any]:
        return {"time_ns": 1, "direction": "", "verdict": what, "size": 0}

    datagrams = [
        {
            "time_ns": at, "interface": "eth0", "direction": "in", "verdict": "ok", "mode": "none",
            "peer": "10.0.0.1:4321", "src": "a/p/1", "seq": first_seq + at, "channel": "a/b",
            "payload": os.urandom(40), "size": 90,
        }
        for at in range(rows)
    ]  # fmt: skip
    return pa.Table.from_pylist(
        [mark("opened"), *datagrams, *([mark("closed")] if closed else [])], schema=SCHEMA
    )


def folder(root: Path, host: str = "a") -> Path:
    made = root / "in" / "date=2026-01-31" / f"host={host}"
    made.mkdir(parents=True, exist_ok=True)
    return made


def taken(spark: SparkSession, root: Path) -> list[Any]:
    batches: list[ingest.Batch] = []
    ingest.ingest(spark, str(root / "in"), Output(str(root / "out")), batches.append)
    return batches


def test_hosts_stay_strings_and_numbers_keep_all_their_bits(spark: SparkSession, tmp_path: Path) -> None:
    for host in ("007", "1e5", "a%2Fb%20%25"):
        pq.write_table(table(3, first_seq=2**64 - 3), folder(tmp_path, host) / "1-00000000.parquet")
    (folder(tmp_path) / ".2-00000000.parquet").write_bytes(b"being written")
    taken(spark, tmp_path)
    rows = storage.traffic(spark, Output(str(tmp_path / "out"))).where("direction = 'in'").collect()
    assert {row.host for row in rows} == {"007", "1e5", "a/b %"}
    assert {(int(row.seq), row.word * 64 + row.bit, row.date) for row in rows} == {
        (seq, seq, "2026-01-31") for seq in range(2**64 - 3, 2**64)
    }


def damaged(data: bytes) -> bytes:
    middle = len(data) * 6 // 10
    return data[:middle] + b"\xff" * 2000 + data[middle + 2000 :]


BAD: dict[str, Callable[[bytes], bytes]] = {
    "is not a Parquet file": lambda _data: b"PAR1 nonsense" * 9,
    "Expected magic number|footer is too large": lambda data: data[: len(data) // 2],  # it ends in any bytes
    "": damaged,
}


def test_bad_files_are_set_aside_with_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    good = folder(tmp_path)
    pq.write_table(table(), good / "1-good.parquet")
    more = table().append_column("temperature", pa.array([20.5] * (ROWS + 2)))
    pq.write_table(more, good / "2-more.parquet")
    pq.write_table(table(closed=False), good / "3-open.parquet")
    pq.write_table(pa.table({"direction": [""], "verdict": [1]}), good / "4-types.parquet")
    for number, spoil in enumerate(BAD.values()):
        path = good / f"5-bad{number}.parquet"
        pq.write_table(table(20000), path, row_group_size=5000)
        path.write_bytes(spoil(path.read_bytes()))
    (batch,) = taken(spark, tmp_path)
    assert (batch.files, batch.rows) == (2, 2 * (ROWS + 2))
    output = Output(str(tmp_path / "out"))
    assert storage.traffic(spark, output).count() == batch.rows
    rejected = spark.read.schema(REJECTED_FILES).parquet(output.rejected_files).collect()
    reasons = {Path(row.path).name: row.reason for row in rejected}
    assert sorted(reasons) == [
        "3-open.parquet", "4-types.parquet", "5-bad0.parquet", "5-bad1.parquet", "5-bad2.parquet",
    ]  # fmt: skip
    assert reasons["3-open.parquet"] == ingest.NOT_CLOSED
    assert "verdict" in reasons["4-types.parquet"]
    for number, reason in enumerate(BAD):
        assert re.search(reason, reasons[f"5-bad{number}.parquet"])
    assert all(reason and "\n" not in reason for reason in reasons.values())
    assert taken(spark, tmp_path) == []


def test_a_flipped_bit_is_found_and_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    """In a payload, which any bytes can be: without checksums the file would be read as if it were sound."""
    recording = recorded(tmp_path / "in", "a", Limits())
    for time_ns in (10**18, 10**18 + 9):
        recording.open(time_ns, 0.0)
        rows = [row | {"time_ns": time_ns} for row in table().to_pylist() if row["direction"]]
        recording.write(pa.RecordBatch.from_pylist(rows, RECORDER_SCHEMA), 0.0)
        recording.close(time_ns, 0.0)
    recording.end()
    sound, spoilt = sorted((tmp_path / "in").rglob("*.parquet"))
    group = pq.ParquetFile(spoilt).metadata.row_group(0)
    column = group.column(table().schema.get_field_index("payload"))
    content = bytearray(spoilt.read_bytes())
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    spoilt.write_bytes(content)
    (batch,) = taken(spark, tmp_path)
    assert (batch.files, batch.rows) == (1, pq.read_metadata(sound).num_rows)
    [(path, reason)] = batch.rejected
    assert (Path(path).name, "CRC checksum" in reason) == (spoilt.name, True), reason


def test_a_file_that_was_forgotten_is_not_ingested_twice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "BATCHES_KEPT", 1)
    first, second = (folder(tmp_path) / f"{number}-00000000.parquet" for number in (1, 2))
    pq.write_table(table(), first)
    assert [batch.rows for batch in taken(spark, tmp_path)] == [ROWS + 2]
    first.unlink()
    pq.write_table(table(), second)
    assert [batch.rows for batch in taken(spark, tmp_path)] == [ROWS + 2]
    pq.write_table(table(), first)
    (batch,) = taken(spark, tmp_path)
    assert (batch.rows, batch.files) == (0, 0)
    assert [(Path(path).name, reason) for path, reason in batch.rejected] == [
        (first.name, inputs.MAYBE_TAKEN)
    ]
    assert taken(spark, tmp_path) == [], "set aside once"
    assert storage.traffic(spark, Output(str(tmp_path / "out"))).count() == 2 * (ROWS + 2)


def test_small_files_become_few_in_one_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts, files = 2, 100
    for number in range(files):
        path = folder(tmp_path, f"h{number % hosts}") / f"{number}-00000000.parquet"
        pq.write_table(table(3, first_seq=1 + 3 * number), path)
    monkeypatch.setattr(takeover, "taken_over", lambda *_: None)  # as on a cluster
    looked = []
    exists = storage.exists
    monkeypatch.setattr(storage, "exists", lambda *of: (looked.append(of), exists(*of))[1])
    spark.sparkContext.setJobGroup("small files", "")
    try:
        (batch,) = taken(spark, tmp_path)
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("small files")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert (batch.files, batch.rows) == (files, 5 * files)
    assert len(jobs) == 1
    assert len(looked) < files
    written = list((tmp_path / "out" / "traffic").rglob("*.parquet"))
    assert len(written) <= hosts * spark.sparkContext.defaultParallelism


def test_a_file_that_may_not_be_read_ends_it_and_comes_later(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read anything, so what Spark says is replaced."""
    pq.write_table(table(), folder(tmp_path) / "1-00000000.parquet")
    with monkeypatch.context() as patched:
        said = f"FileNotFoundException: {folder(tmp_path)}/1-00000000.parquet (Permission denied)"

        def refuse(*_: object) -> DataFrame:
            raise PySparkException(said)

        patched.setattr(takeover, "taken_over", lambda *_: None)
        patched.setattr(ingest, "recorded", refuse)
        with pytest.raises(
            RefusedError, match=r"1-00000000.parquet: permission denied; nothing is set aside"
        ):
            taken(spark, tmp_path)
    assert [batch.rows for batch in taken(spark, tmp_path)] == [ROWS + 2]


def test_captures_are_ingested_as_the_record_of_a_host(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(table(), folder(tmp_path) / "1-00000000.parquet")
    packets = []
    for seq in range(5):
        data = UdpDatagram(
            "10.0.0.7", 5400, "10.0.0.255", 5400, datagram("a/p/1", seq, "a/b", b"x")
        ).serialize()
        packets.append(Packet(10**18 + seq, data, len(data)).serialize())
    whole = header("test", "eth0") + b"".join(packets)
    (tmp_path / "in" / "b.pcapng").write_bytes(whole)
    (tmp_path / "in" / "c d.pcapng.gz").write_bytes(gzip.compress(whole[:-10]))
    (batch,) = taken(spark, tmp_path)
    (rejected,) = batch.rejected
    assert (Path(rejected[0]).name, batch.files) == ("c d.pcapng.gz", 3)
    assert "cut" in rejected[1] or "ends" in rejected[1], rejected
    traffic = storage.traffic(spark, Output(str(tmp_path / "out")))
    assert traffic.count() == batch.rows
    assert {
        row.host: row["count"] for row in traffic.where("direction = 'in'").groupBy("host").count().collect()
    } == {
        "a": ROWS,
        "b": 5,
        "c d": 4,
    }
    assert taken(spark, tmp_path) == []


def test_missing_input_or_checkpoint_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such directory"):
        taken(spark, tmp_path)
    pq.write_table(table(), folder(tmp_path) / "1-00000000.parquet")
    os.utime(folder(tmp_path) / "1-00000000.parquet", (0, 0))  # its age does not matter
    assert [batch.rows for batch in taken(spark, tmp_path)] == [ROWS + 2]
    (tmp_path / "out" / "checkpoint").rename(tmp_path / "gone")
    with pytest.raises(ConfigError, match="no checkpoint"):
        taken(spark, tmp_path)


def test_a_checkpoint_older_than_the_traffic_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint, older = tmp_path / "out" / "checkpoint", tmp_path / "older"
    for number in range(3):
        pq.write_table(table(), folder(tmp_path) / f"{number + 1}-00000000.parquet")
        assert [batch.number for batch in taken(spark, tmp_path)] == [number]
        if number == 1:
            shutil.copytree(checkpoint, older)
    shutil.rmtree(checkpoint)
    older.rename(checkpoint)
    with pytest.raises(
        ConfigError, match=r"checkpoint: does not know of .*/traffic/batch=2, so it is not of this"
    ):
        taken(spark, tmp_path)
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()
    with pytest.raises(ConfigError, match="does not know of"):
        taken(spark, tmp_path)


# A process that ingests two files a batch, and at the given place waits to be killed.
CHILD = """
import pathlib, sys, time
from bccnd.pipeline import ingest, session, takeover
from bccnd.pipeline.layout import Output
takeover.BYTES = 0
root, place = pathlib.Path(sys.argv[1]), sys.argv[2]
ingest.FILES_PER_BATCH = 2
write = ingest._write

def here(name, number):
    if place == f"{name} {number}":
        (root / "here").touch()
        time.sleep(600)

def slow_write(*arguments):
    number = arguments[-1].rpartition("=")[2]
    if place == f"while writing {number}":
        (root / "here").touch()
    written = write(*arguments)
    here("after writing", number)
    return written

ingest._write = slow_write
with session.connect("local[2]", "child") as spark:
    ingest.ingest(spark, str(root / "in"), Output(str(root / "out")), lambda batch: here("reported", batch.number))
(root / "done").touch()
"""


def killed(root: Path, place: str) -> None:
    """Run the child until it reaches ``place``, and kill it and its JVM there."""
    (root / "here").unlink(missing_ok=True)
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(root), place], start_new_session=True)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (root / "here").exists():
        assert child.poll() is None, f"ended before {place}"
        assert time.monotonic() < deadline, f"never came to {place}"
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def test_kills_neither_lose_nor_double_a_file(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(6):
        pq.write_table(
            table(first_seq=1 + number * ROWS), folder(tmp_path, f"h{number}") / f"{number}-0.parquet"
        )
    for place in ("while writing 0", "after writing 0", "reported 1"):
        killed(tmp_path, place)
    assert not (tmp_path / "done").exists()
    taken(spark, tmp_path)
    found = storage.traffic(spark, Output(str(tmp_path / "out")))
    assert found.count() == 6 * (ROWS + 2)
    assert found.where("direction = 'in'").select("seq").distinct().count() == 6 * ROWS
    assert taken(spark, tmp_path) == []
