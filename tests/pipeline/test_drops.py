"""``bccnd/pipeline/drops.py``."""

from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from bccnd.pipeline import drops
from tests.pipeline.rows import at, mark, recording, table, traffic


def counters(host: str, seconds: float, said: object) -> tuple[object, ...]:
    return mark(host, seconds, "counters", said=said)


def test_what_was_lost_inside_a_host_is_summed_by_hour(spark: SparkSession) -> None:
    slow = {"name": "c/ledger/9", "dropped": 7, "policy": "drop-oldest", "tap": False}
    rows = [
        *recording("c", 0, 8000),
        counters("c", 10, {"from_ns": 1, "kernel_dropped": 100, "dropped": 9, "clients": []}),
        counters("c", 20, {"kernel_dropped": 0, "clients": [slow, slow | {"name": "recorder", "tap": True}]}),
        counters("c", 30, {"kernel_dropped": 4, "clients": [slow], "rejected": {"hmac": 9}}),
        counters("c", 3700, {"kernel_dropped": 1}),
        counters("d", 10, {"kernel_dropped": 0}),
        counters("e", 10, ["of another form"]),
    ]
    expected = [
        ("c", at(0), None, 104), ("c", at(0), "c/ledger/9", 14), ("c", at(3600), None, 1),
    ]  # fmt: skip
    assertDataFrameEqual(
        drops.drops(traffic(spark, rows)), table(spark, "drops", expected), ignoreNullable=True
    )
