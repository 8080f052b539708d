"""``bccnd/pipeline/times.py``."""

from pyspark.sql import SparkSession

from bccnd.pipeline import times
from tests.pipeline.rows import START_NS, at, ns


def test_nanoseconds_become_timestamps(spark: SparkSession) -> None:
    row = (
        spark.range(1)
        .select(*(make(str(ns(3723.123456))) for make in (times.moment, times.minute, times.hour)))
        .first()
    )
    assert row is not None
    assert tuple(row) == (at(3723.123456), at(3720), at(3600))
    assert times.date(START_NS - 1) == "2026-01-30"
    assert times.date(START_NS) == "2026-01-31"
