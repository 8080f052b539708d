"""``bccnd/pipeline/columnar.py``: the digests are those that Spark makes of the rows."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from bccnd.pipeline import columnar, digests, latency
from bccnd.pipeline.digests import Digests
from bccnd.pipeline.layout import DIGESTS
from tests.pipeline.digested import ROWS, counted, used
from tests.pipeline.rows import captured, datagram, recording, sent, traffic

# What ROWS do not have: numbers beyond a bigint, no source, no channel, no payload, and what a hostile host sends.
MORE = [
    *(datagram("b", 30 + at, "a/q/1", 2**63 + 40 * at) for at in range(9)),
    *(datagram("b", 40, src, 5, channel=None) for src in (None, "?", "", "x" * 40)),
    *(
        datagram("b", 40, src, 5)
        for src in ("a/bccnd/7/repair", "a/bccnd/7", "a/x/bccnd/7/repair", "a/bccnd/7/repair/1")
    ),
    *(datagram("b", 41, "a/p/1", 7, channel=f"heartbeat/{src}") for src in ("", "b", "a/p/1")),
    *(datagram("b", 42, None, None, verdict="hmac", channel=channel) for channel in (None, "late", "c/0")),
    *(datagram("b", 43, "a/p/1", 9, verdict=verdict) for verdict in ("never-heard-of", "")),
    *(datagram("b", 44, "a/p/1", 9, peer=peer) for peer in (None, "", ":1", "[fe80::1]:5400", "10.0.0.1:x")),
    *(sent("a", 45 + at, "a/p/1", 5000 + at, payload=(None, b"", b"x" * 300)[at % 3]) for at in range(12)),
    *captured([datagram("b", 46, "a/p/1", 9), *recording("b", 45, 50)]),
]


def written(rows: DataFrame, folder: Path) -> list[str]:
    rows.drop("batch").repartition(3).write.partitionBy("date", "host").parquet(str(folder))
    return [str(file) for file in folder.glob("date=*/host=*/*.parquet")]


def read(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    return {name: spark.read.schema(columns).parquet(str(folder / name)) for name, columns in DIGESTS.items()}


def test_digests_are_those_of_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = traffic(spark, [*ROWS, *MORE])
    files = written(every, tmp_path / "in")
    monkeypatch.setattr(columnar, "ROWS", 100)
    monkeypatch.setattr(columnar, "HELD_BYTES", 1000)
    tasks = [columnar.Task(files, [], "", str(tmp_path / "out"), number, 2) for number in range(2)]
    numbered = sum(task.write([*DIGESTS]) for task in tasks)
    expected = digests.of(every)
    found = Digests(rows=every, **read(spark, tmp_path / "out"))
    assert used(spark, found, every) == used(spark, expected, every)
    assert numbered == len(expected.sample.collect())


def test_digests_that_are_taken_up_are_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = traffic(spark, [*ROWS, *MORE])
    files = written(every, tmp_path / "in")
    first, second = (str(tmp_path / name) for name in ("first", "second"))
    numbered = columnar.Task(files, [], "", first, 0, 1).write([*DIGESTS])
    # All of it taken twice is what it was, but for the sums.
    assert columnar.Task(files, [first], "2026-01-31", second, 0, 1).write([*DIGESTS], 2) == 2 * numbered
    once, twice = (read(spark, tmp_path / name) for name in ("first", "second"))
    monkeypatch.setattr(latency, "SAMPLED_ROWS", 1)
    for name in set(DIGESTS) - {"sample"}:
        assert counted(twice[name]) == counted(once[name].unionByName(once[name])), name
    chosen = counted(latency.sample(once["sample"], 2))
    assert 0 < len(chosen) < once["sample"].count()
    assert counted(twice["sample"]) == chosen + chosen
    # A day later it is too old.
    assert columnar.Task([], [first], "2026-02-01", str(tmp_path / "third"), 0, 1).write(["words"]) == 0
