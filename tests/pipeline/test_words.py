"""``bccnd/pipeline/words.py``."""

import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from bccnd.pipeline import words
from tests.pipeline.rows import datagram, frame, mark, ns, sent, traffic

SLOT_NS = 10 * 10**9
LEAST = -(2**63)


def test_numbers_become_words_by_slot_and_direction(spark: SparkSession) -> None:
    rows = [
        mark("c", 0, "opened"),
        datagram("c", 1, "a/p/1", 0),
        datagram("c", 2, "a/p/1", 63, verdict="late"),
        datagram("c", 3, "a/p/1", 64),
        datagram("c", 4, "a/p/1", 64, verdict="duplicate"),
        datagram("c", 61, "a/p/1", 65),
        datagram("c", 62, "a/p/1", 66, verdict="repaired"),
        sent("c", 5, "c/p/1", 2**64 - 1),
        datagram("c", 6, "?", 7),
        datagram("c", 6, "a/bccnd/7/repair", 7),
        datagram("c", 6, None, None, verdict="magic"),
        datagram("c", 6, "a/p/1", 9, verdict="hmac"),
        datagram("c", 6, "c/p/1", 9, direction="local"),
        datagram("c", 6, "c/p/1", 9, direction="echo", verdict="own"),
    ]
    minute = ns(0) // words.SEEN_NS
    expected = [
        ("c", "in", "a/p/1", 0, minute, 1, LEAST, 0, 2, 1, ns(1), ns(2)),
        ("c", "in", "a/p/1", 1, minute, 1, 1, 0, 2, 0, ns(3), ns(4)),
        ("c", "in", "a/p/1", 1, minute + 1, 6, 0, 4, 2, 0, ns(61), ns(62)),
        ("c", "out", "c/p/1", 2**58 - 1, ns(0) // SLOT_NS, LEAST, 0, 0, 1, 0, ns(5), ns(5)),
    ]
    found = words.of(words.digest(traffic(spark, rows)), SLOT_NS)
    assertDataFrameEqual(found, frame(spark, expected, found.schema))


def test_epoch_ends_where_numbers_fall_or_leap(spark: SparkSession) -> None:
    numbers = [5000, 5064, 5020, 5128, 1, 70, 2**21, 2**21 + 64]
    rows = [datagram("c", 60 * at, "a/p/1", seq) for at, seq in enumerate(numbers)]
    found = words.with_epochs(words.of(words.digest(traffic(spark, rows)), SLOT_NS)).orderBy("first_ns")
    assert [(row.restart, row.epoch) for row in found.collect()] == [
        (False, 0), (False, 0), (False, 0), (False, 0), (True, 1), (False, 1), (False, 2), (False, 2),
    ]  # fmt: skip


BITS = (1, 2, 3, 0b1010000, 2**62, LEAST, LEAST | 1, -1, -2, 2**63 - 1)


@pytest.fixture(scope="module")
def ends(spark: SparkSession) -> dict[int, tuple[int, int]]:
    """The lowest and the highest bit of each of BITS."""
    rows = frame(spark, [(bits,) for bits in BITS], "bits bigint")
    found = rows.select("bits", words.lowest("bits").alias("low"), words.highest("bits").alias("high"))
    return {row.bits: (row.low, row.high) for row in found.collect()}


@pytest.mark.parametrize("bits", BITS)
def test_lowest_and_highest_bit(ends: dict[int, tuple[int, int]], bits: int) -> None:
    pattern = bits % 2**64
    assert ends[bits] == ((pattern & -pattern).bit_length() - 1, pattern.bit_length() - 1)


def test_runs_are_stitched_across_words(spark: SparkSession) -> None:
    missing = frame(
        spark,
        [
            ("s", 0, LEAST | 0b110, 10),
            ("s", 1, -1, 11),
            ("s", 2, 1, 12),
            ("s", 4, LEAST, 14),
            ("s", 5, 0, 15),
            ("s", 6, 1, 16),
            ("t", 7, 0b101, 17),
        ],
        "src string, word bigint, missing bigint, when int",
    )
    found = words.runs(missing)
    assertDataFrameEqual(
        found,
        frame(
            spark,
            [
                ("s", 0, 10, 1, 2), ("s", 0, 10, 63, 63), ("s", 1, 11, 0, 63), ("s", 2, 12, 0, 0),
                ("s", 4, 14, 63, 63), ("s", 6, 16, 0, 0), ("t", 7, 17, 0, 0), ("t", 7, 17, 2, 2),
            ],
            "src string, word bigint, when int, start int, end int",
        ),
    )  # fmt: skip
    islands = words.stitched(found, "src").select("src", "word", "when", "start", "length")
    assertDataFrameEqual(
        islands,
        frame(
            spark,
            [
                ("s", 0, 10, 1, 2), ("s", 0, 10, 63, 66), ("s", 4, 14, 63, 1), ("s", 6, 16, 0, 1),
                ("t", 7, 17, 0, 1), ("t", 7, 17, 2, 1),
            ],
            "src string, word bigint, when int, start int, length bigint",
        ),
    )  # fmt: skip
