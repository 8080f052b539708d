"""``bccnd/pipeline/matching.py`` and ``here.py``: the tables are those that Spark makes of the same rows."""

import random
from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bccnd.pipeline import digests, matching
from bccnd.pipeline.analyse import Keeping, Span, Table, tables, typed
from bccnd.pipeline.digests import Parts
from bccnd.pipeline.layout import TABLES
from tests.pipeline.rows import datagram, mark, recording, sent, traffic

# Those that are made of words: up to ``steps``.
MADE = [*TABLES][:10]
# Of these nothing goes through Spark, as long as there is nothing to guess.
OF_ARROW = {"sources", "senders", "copies"}
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
    # On another segment, where all is lost for a while.
    *(row for seq in range(300) for row in (
        sent("y", 10 + seq / 2, "y/p/1", seq), *heard("y/p/1", seq, 10 + seq / 2, *(["z"] if seq < 100 else [])))),
]  # fmt: skip


def counted(name: str, table: Table) -> "Counter[Any]":
    if isinstance(table, DataFrame):
        table = typed(table, name).toArrow()
    return Counter(str(row) for row in table.to_pylist())


def test_tables_made_in_memory_are_those_of_spark(spark: SparkSession) -> None:
    found, keep = digests.of(traffic(spark, ROWS)), Keeping(spark)
    there = found._replace(parts=Parts([], "", found, several=True))
    expected = tables(found, Span(), keep)
    made = tables(there, Span(), keep)
    for name, table, other in islice(zip(TABLES, made, expected, strict=True), len(MADE)):
        rows = counted(name, table)
        assert rows == counted(name, other), name
        assert rows, name
        assert isinstance(table, DataFrame) == (name not in OF_ARROW), name


def test_bits_are_found_at_both_ends_of_a_word() -> None:
    bits = np.array([1, 2**62, -(2**63), -1, 6, 0])
    assert matching.lowest(bits).tolist() == [0, 62, 63, 0, 1, 64]
    assert matching.highest(bits).tolist() == [0, 62, 63, 63, 2, -1]
    assert matching.until_bit(np.array([0, 62, 63])).tolist() == [1, 2**63 - 1, -1]


def test_names_keep_the_order_of_strings() -> None:
    names = matching.Names(["b", "a"], ["ä", "a"])
    assert names.all == ["a", "b", "ä"]
    assert names.of(pa.chunked_array([["b", None], ["nobody", "a"]])).tolist() == [1, -1, -1, 0]
    assert names.strings(np.array([2, 0])).to_pylist() == ["ä", "a"]


def test_groups_are_in_order_and_nothing_gives_none() -> None:
    columns = {"k": np.array([2, 1, 2]), "v": np.array([1, 2, 4])}
    of = matching.grouped(columns, ["k"], {"v": np.bitwise_or})
    assert {name: values.tolist() for name, values in of.items()} == {"k": [1, 2], "v": [2, 5]}
    nothing = matching.chosen(columns, np.zeros(0, np.int64))
    assert not len(matching.grouped(nothing, ["k"], {"v": np.add})["v"])
    assert matching.found({"k": np.array([2, 7])}, of, ["k"]).tolist() == [1, -1]
    assert matching.found({"k": np.array([2, 7])}, nothing, ["k"]).tolist() == [-1, -1]


def test_sums_begin_anew_in_each_group() -> None:
    assert matching.so_far(np.array([1, 1, 1, 0, 1]), np.array([0, 2])).tolist() == [1, 2, 1, 1, 2]
