"""``bccnd/pipeline/reordering.py``."""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from bccnd.pipeline import coverage, reordering, words
from tests.pipeline.rows import at as moment
from tests.pipeline.rows import datagram, mark, recording, table, traffic


def test_reordering_is_seen_within_two_slots(spark: SparkSession) -> None:
    numbers = [1, 2, 5, 3, 4, 6, 100, 7, 101]  # 3, 4 and 7 were overtaken: by 2, 1 and 93
    # From 100 on they are in another slot.
    rows = [datagram("c", 10 + place, "a/p/1", seq) for place, seq in enumerate(numbers)]
    rows += [
        datagram("c", 19.5, "a/p/1", 101, verdict="duplicate"),
        datagram("c", 50, "a/p/1", 8, verdict="late"),  # much later: outside the window
        datagram("c", 11, "b/p/1", 5000),
        datagram("c", 12, "b/p/1", 1),  # restarted
        datagram("c", 12, "?", 1),
        datagram("c", 12, "b/bccnd/7/repair", 9),
        datagram("c", 13, "b/bccnd/7/repair", 8),
    ]
    found = reordering.reordering(traffic(spark, rows), 5 * 10**9)
    expected = [("c", "a/p/1", moment(0), 3, 2, 93)]
    assertDataFrameEqual(found, table(spark, "reordering", expected), ignoreNullable=True)


def test_numbers_of_64_bits_keep_their_order(spark: SparkSession) -> None:
    # From end to end of 64 bits is a restart, neither reordering nor a fault.
    numbers = [2, 1, 2**64 - 1, 2**64 - 3, 2**63, 2**63 - 2, 5, 4]
    rows = [datagram("c", 10 + place / 10, "a/p/1", seq) for place, seq in enumerate(numbers)]
    found = reordering.reordering(traffic(spark, rows), 5 * 10**9)
    expected = [("c", "a/p/1", moment(0), 2, 1, 2)]
    assertDataFrameEqual(found, table(spark, "reordering", expected), ignoreNullable=True)


def daemon(host: str, reorder: int) -> list[tuple[Any, ...]]:
    """A whole file in which the daemon said what it is."""
    said = list(mark(host, 2, "daemon"))
    said[9] = b'{"reorder": %d, "version": "1"}' % reorder
    return [*recording(host, 1, 90), tuple(said)]


def test_only_sources_with_late_messages_are_suspected(spark: SparkSession) -> None:
    overtaken = [(1, "ok"), (3, "ok"), (2, "ok"), (4, "ok")]
    rows = [
        datagram(host, 10 + place, src, seq, verdict=verdict)
        for host, src, numbers in (
            ("plain", "a/p/1", [(1, "ok"), (2, "ok"), (3, "duplicate")]),
            ("plain", "b/p/1", [(1, "ok"), (3, "ok"), (2, "late")]),
            ("waits", "a/p/1", overtaken),
            ("silent", "a/p/1", overtaken),
            ("half", "a/p/1", overtaken),
        )
        for place, (seq, verdict) in enumerate(numbers)
    ]  # fmt: skip
    rows += [*daemon("plain", 0), *daemon("waits", 8), *recording("silent", 1, 90)]
    rows += [*daemon("half", 0), *recording("half", 90, 99)]  # by an older recorder, which noted nothing
    every = traffic(spark, rows)
    left = reordering.suspects(every, coverage.digest(every), words.of(words.digest(every), 10**9))
    assert {(row.host, row.src) for row in left.where("src IS NOT NULL").collect()} == {
        ("plain", "b/p/1"), ("waits", "a/p/1"), ("silent", "a/p/1"), ("half", "a/p/1"),
    }  # fmt: skip
    assertDataFrameEqual(reordering.reordering(left, 10**9), reordering.reordering(every, 10**9))
