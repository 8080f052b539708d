"""``bccnd/pipeline/channels.py``."""

from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from bccnd.pipeline import channels, segments
from tests.pipeline.rows import at, datagram, sent, table, traffic


def test_message_counts_once(spark: SparkSession) -> None:
    rows = [
        *(
            sent("a", 10 + place / 10, "a/p/1", place, payload=b"x" * size, size=60 + size)
            for place, size in enumerate([10, 10, 10, 200])
        ),
        sent("a", 3700, "a/p/1", 9, payload=b"", size=60),
        *(datagram("c", 10, "a/p/1", place) for place in range(4)),  # a's own record counts
        *(
            datagram("c", 10 + place, "b/p/1", place, channel="only/seen", payload=b"12")
            for place in range(3)
        ),
        *(datagram("d", 10, "b/p/1", place, channel="only/seen") for place in range(2)),  # c saw more
        datagram("c", 11, "b/p/1", 2, channel="only/seen", verdict="duplicate"),
        datagram("c", 12, "b/p/1", 4, channel="forged", verdict="hmac"),
        datagram("c", 12, "c/p/1", 1, channel="local/work", direction="local", payload=b"123", size=70),
        *(datagram("c", 12, "e/p/1", place, channel="numbers", payload=None) for place in range(2)),
    ]
    expected = [
        ("a/b", at(0), 4, 470, 4, 10, 171, 200),
        ("a/b", at(3600), 1, 60, 1, 0, 0, 0),
        ("only/seen", at(0), 3, 180, 1, 2, 2, 2),
        ("local/work", at(0), 1, 70, 1, 3, 3, 3),
        ("numbers", at(0), 2, 120, 2, None, None, None),
    ]
    every = traffic(spark, rows)
    best = channels.witnesses(segments.digest(every))
    found = channels.channels(channels.sizes(best, channels.digest(every), every))
    assertDataFrameEqual(found, table(spark, "channels", expected), ignoreNullable=True)
