"""``bccnd/pipeline/in_memory.py``: the tables are those that Spark makes of the same rows."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from bccnd.pipeline import analyse, columnar, digests, ordered
from bccnd.pipeline.analyse import Keeping, Span, Table, tables, typed
from bccnd.pipeline.digests import KINDS, Digests, Parts
from bccnd.pipeline.in_memory import MOST
from bccnd.pipeline.layout import TABLES
from bccnd.pipeline.times import HOUR_NS
from tests.pipeline.plans import adapting
from tests.pipeline.rows import datagram, mark, recording, sent, traffic

# Those that are made of words: up to ``steps``.
MADE = [*TABLES][:10]
# Of these nothing goes through Spark, as long as there is nothing to guess.
OF_ARROW = {"coverage", "sources", "senders", "copies"}
RANDOM = random.Random(5)


def heard(src: str, seq: int, second: float, *receivers: str) -> list[tuple[Any, ...]]:
    """A message as each of these has it: lost, late, twice, repaired, or as it should be."""
    rows = []
    for receiver in receivers:
        verdicts = RANDOM.choices(
            [[], ["ok"], ["late"], ["ok", "duplicate"], ["repaired"], ["repaired", "duplicate"]],
            [10, 70, 3, 5, 7, 2],
        )[0]
        rows += [
            datagram(receiver, second + 0.001 + 0.01 * place, src, seq, verdict=verdict)
            for place, verdict in enumerate(verdicts)
        ]
    return rows


ROWS = [
    *recording("a", 0, 70), *recording("a", 72, 200), *recording("b", 0, 200), *recording("c", 3, 200),
    *recording("y", 0, 200), *recording("z", 0, 200),
    mark("c", 50, "unrecorded", 9),
    *(row for seq in range(600) for row in (
        *([] if 250 <= seq < 260 else [sent("a", 10 + seq / 4, "a/p/1", seq)]),
        *heard("a/p/1", seq, 10 + seq / 4, "b", "c"))),
    # Numbers beyond a bigint; a source that starts anew, with the same numbers; and one that leaps.
    *(row for seq in range(200) for row in (
        sent("b", 10 + seq, "b/p/1", 2**63 + seq % 130), *heard("b/p/1", 2**63 + seq % 130, 10 + seq, "a", "c"))),
    *(row for seq in range(100) for row in (
        sent("b", 10 + seq, "b/q/1", seq + (seq > 50) * 2**30),
        *heard("b/q/1", seq + (seq > 50) * 2**30, 10 + seq, "a"))),
    # Without a record: what these heard tells.
    *(row for seq in range(300) for row in heard("x/p/1", seq, 20 + seq / 2, "a", "b", "c")),
    # Which rejects what it hears, so that no number is known of it.
    *recording("q", 0, 200), datagram("q", 20, None, None, verdict="hmac"),
    # On another segment, where all is lost for a while.
    *(row for seq in range(300) for row in (
        sent("y", 10 + seq / 2, "y/p/1", seq), *heard("y/p/1", seq, 10 + seq / 2, *(["z"] if seq < 100 else [])))),
]  # fmt: skip


def counted(name: str, table: Table) -> "Counter[Any]":
    if isinstance(table, DataFrame):
        table = typed(table, name).toArrow()
    return Counter(str(row) for row in table.to_pylist())


def written(found: Digests, folder: Path) -> Parts:
    """The digests as files."""
    for name in KINDS:
        (folder / name).mkdir()
        pq.write_table(
            getattr(found, name).toArrow().cast(columnar.schema(name)), folder / name / "0.parquet"
        )
    return Parts([folder], "")


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    with adapting(spark):
        yield spark


@pytest.fixture
def parted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read and matched at a time is so little that there is much of it."""
    monkeypatch.setattr(columnar, "ROWS", 100)
    monkeypatch.setattr(ordered, "PART", 7)


@pytest.mark.usefixtures("parted")
def test_tables_made_in_memory_are_those_of_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the last row that fits into memory; with one row more, Spark makes them."""
    found, keep = digests.of(traffic(spark, ROWS)), Keeping(spark)
    parts = written(found, tmp_path)
    there = found._replace(parts=parts)
    counts = {name: parts.count(name) for name in MOST}
    for name, count in counts.items():
        monkeypatch.setitem(MOST, name, count)
    hosts = len({row[-1] for row in ROWS})
    monkeypatch.setattr(analyse, "PAIR_MINUTES", hosts**2 * 4)
    expected = tables(found, Span(), keep)
    made = tables(there, Span(), keep)
    for name, table, other in islice(zip(TABLES, made, expected, strict=True), len(MADE)):
        rows = counted(name, table)
        assert rows == counted(name, other), name
        assert rows, name
        assert isinstance(table, DataFrame) == (name not in OF_ARROW), name
    whole = analyse._record(there, parts, Span(), keep)
    assert isinstance(whole.stretches, dict)
    for name in set(MOST) - {"marks"}:
        monkeypatch.setitem(MOST, name, counts[name] - 1)
        assert analyse._held(parts, whole, there, Span(), Span()) is None, name
        monkeypatch.setitem(MOST, name, counts[name])
    monkeypatch.setitem(MOST, "marks", counts["marks"] - 1)
    by_spark = analyse._record(there, parts, Span(), keep)
    assert isinstance(by_spark.stretches, DataFrame)
    assert analyse._held(parts, by_spark, there, Span(), Span()) is None


def test_pairs_without_number_do_not_fit_into_memory() -> None:
    """Where nobody hears anybody, each pair has a row for each minute."""
    parts: Any = SimpleNamespace(count=dict.fromkeys(MOST, 1).__getitem__)
    during: Any = None
    for hours, hosts in ((24 * 365, 6), (1, 600)):
        whole: Any = SimpleNamespace(stretches={}, hosts=["h"] * hosts, span_ns=hours * HOUR_NS)
        assert analyse._held(parts, whole, during, Span(), Span()) is None
