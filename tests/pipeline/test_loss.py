"""``bccnd/pipeline/loss.py``."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from bccnd.pipeline import coverage, loss, words
from tests.pipeline.rows import at, datagram, mark, recording, table, traffic


def analysed(spark: SparkSession, rows: list[tuple[Any, ...]]) -> tuple[DataFrame, DataFrame]:
    all_rows = traffic(spark, rows)
    seen = loss.seen(words.of(words.digest(all_rows), 10**10))
    return seen, loss.gaps(seen, coverage.stretches(all_rows, coverage.coverage(all_rows)))


def numbers(*seqs: int, begin: float = 10, step: float = 1, src: str = "a/p/1") -> list[tuple[Any, ...]]:
    return [datagram("c", begin + step * place, src, seq) for place, seq in enumerate(seqs)]


def test_counts_of_a_source_by_hour(spark: SparkSession) -> None:
    rows = [
        *recording("c", 0, 8000),
        *numbers(60, 61, 64, 200, 201, begin=10),  # 62 (dropped as late), 63 and 65 to 199 are missing
        datagram("c", 15, "a/p/1", 60, verdict="duplicate"),
        datagram("c", 71, "a/p/1", 200, verdict="duplicate"),  # in another slot
        datagram("c", 16, "a/p/1", 62, verdict="late"),
        *numbers(202, 205, begin=3700),
        *numbers(2**21, 2**21 + 1, begin=3800),  # connected anew
        *numbers(2**63 - 1, 2**63 + 2, src="b/p/1"),
    ]
    seen, gaps = analysed(spark, rows)
    expected = [
        ("c", "a/p/1", at(0), 5, 2 + 135, 2, 1, 0, 0, 0),
        ("c", "a/p/1", at(3600), 4, 0, 0, 0, 0, 0, 0),
        ("c", "b/p/1", at(0), 2, 2, 0, 0, 0, 0, 0),
    ]
    found = loss.sources(seen, gaps, words.resent(seen))
    # 203 and 204 fall into the word of 200, and into the time of its first.
    expected[0] = ("c", "a/p/1", at(0), 5, 2 + 135 + 2, 2, 1, 0, 0, 0)
    assertDataFrameEqual(found, table(spark, "sources", expected), ignoreNullable=True)


def test_what_was_sent_again_for_others_is_no_duplicate(spark: SparkSession) -> None:
    rows = [*recording("b", 0, 100), *recording("c", 0, 100)]
    for seq in range(1000, 1200):
        if seq % 10 == 0:
            rows.append(datagram("c", 20 + seq / 100, "a/p/1", seq, verdict="repaired"))
            rows.append(datagram("b", 20 + seq / 100 + 0.02, "a/p/1", seq, verdict="duplicate"))
        else:
            rows.append(datagram("c", 20 + seq / 100, "a/p/1", seq))
        rows.append(datagram("b", 20 + seq / 100, "a/p/1", seq))
    # Of these three one was sent again: a word does not tell which.
    rows += [datagram("b", 40, "a/p/1", seq, verdict="duplicate") for seq in (1301, 1302)]
    rows += [datagram("b", 39, "a/p/1", seq) for seq in (1300, 1301, 1302)]
    rows += [datagram("b", 40, "a/p/1", 1300, verdict="duplicate")]
    rows += [datagram("c", 39, "a/p/1", 1300, verdict="repaired")]
    seen = loss.seen(words.of(words.digest(traffic(spark, rows)), 10**10))
    gaps = loss.gaps(seen, coverage.stretches(traffic(spark, rows), coverage.coverage(traffic(spark, rows))))
    found = {row.receiver: row for row in loss.sources(seen, gaps, words.resent(seen)).collect()}
    assert (found["b"].repaired, found["b"].duplicates, found["b"].resent) == (0, 2, 21)
    assert (found["c"].repaired, found["c"].duplicates, found["c"].resent) == (21, 0, 0)


def test_numbers_missing_in_a_hole_are_not_lost(spark: SparkSession) -> None:
    rows = [
        *recording("c", 0, 20),
        *recording("c", 100, 200),  # nothing is known of the time between
        mark("c", 150, "unrecorded", 3),
        *numbers(1, 2, 4, begin=10),
        *numbers(1000, 1001, 1003, begin=110),
        *numbers(1009, 1012, 1018, 1020, begin=148.5, step=1.2),  # within the hole, and out of it
        *numbers(1022, begin=160),
    ]
    _, gaps = analysed(spark, rows)
    missing = gaps.where("before > 0 OR inside != 0").collect()
    assert [(row.word, row.before, row.inside) for row in missing] == [(0, 0, 0b1000)]
