"""``bccnd/pipeline/reordering.py``."""

from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from bccnd.pipeline import reordering
from tests.pipeline.rows import at as moment
from tests.pipeline.rows import datagram, table, traffic


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
