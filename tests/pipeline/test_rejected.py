"""``bccnd/pipeline/rejected.py``."""

from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from bccnd.pipeline import rejected
from tests.pipeline.rows import at, datagram, frame, mark, sent, table, traffic


def test_rejected_datagrams_are_grouped_by_address(spark: SparkSession) -> None:
    rows = [
        mark("c", 0, "opened"),
        datagram("c", 10, "a/p/1", 7, verdict="hmac", peer="10.0.0.9:1111", channel="plant/stop"),
        datagram("c", 12, "a/p/1", 8, verdict="hmac", peer="10.0.0.9:2222", channel="plant/go"),
        datagram("c", 3700, None, None, verdict="magic", peer="[fe80::9]:1", channel=None),
        datagram("c", 13, "a/p/1", 9, verdict="late"),
        datagram("c", 14, "a/p/1", 9, verdict="duplicate"),
        sent("c", 15, "c/p/1", 1),
        datagram("c", 16, "c/p/1", 1, direction="echo", verdict="own"),
    ]
    expected = [
        ("c", at(0), "hmac", "10.0.0.9", None, 2, at(10), at(12), "plant/stop"),
        ("c", at(3600), "magic", "[fe80::9]", "x", 1, at(3700), at(3700), None),
    ]
    known = frame(spark, [("[fe80::9]", "x")], "address string, known string")
    found = rejected.rejected(rejected.digest(traffic(spark, rows)), known)
    assertDataFrameEqual(found, table(spark, "rejected", expected), ignoreNullable=True)
