"""Sources that fell silent: gaps between heartbeats (``bccnd/wire/BCCN1.md``, "Heartbeats") as an observer saw them.

Rules
- A source that beats does so every few seconds on ``heartbeat/<src>``. It does not say how often, so the interval
  expected is the median of those the observer saw. A source is silent once MISSES beats in a row are missing, as in
  the daemon.
- After ``leaving`` a source is not silent: it stopped in order.
- A silence lies within one stretch of the observer's record. It ends with the stretch at the latest.
- A single beat has no interval, so no silence follows it.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.times import SECOND_NS, moment

CHANNELS = "heartbeat/"
MISSES = 3
LEAVING = b"leaving"

_BEATER = ("observer", "src")


def beats(traffic: DataFrame) -> DataFrame:
    """``TRAFFIC`` -> (observer, src, time_ns, leaving boolean)."""
    return (
        traffic.where("direction = 'in' AND verdict = 'ok'")
        .where(F.col("channel").startswith(CHANNELS))
        .where(F.col("channel") == F.concat(F.lit(CHANNELS), "src"))
        .select(
            F.col("host").alias("observer"),
            "src",
            "time_ns",
            F.coalesce(F.col("payload") == F.lit(LEAVING), F.lit(False)).alias("leaving"),
        )
    )


def silences(beaten: DataFrame, stretches: DataFrame) -> DataFrame:
    """``beats`` and ``coverage.stretches`` -> table ``silences``."""
    order = Window.partitionBy(*_BEATER).orderBy("time_ns")
    steps = beaten.withColumn("next_ns", F.lead("time_ns").over(order))
    rhythm = (
        steps.where("next_ns IS NOT NULL AND NOT leaving")
        .groupBy(*_BEATER)
        .agg(F.percentile_approx(F.col("next_ns") - F.col("time_ns"), 0.5).alias("expected_ns"))
    )
    end = F.expr("filter(stretches, s -> s.from_ns <= time_ns AND s.until_ns >= time_ns)[0].until_ns")
    return (
        steps.where("NOT leaving")
        .join(rhythm, list(_BEATER))
        .join(F.broadcast(stretches.withColumnRenamed("host", "observer")), "observer")
        .withColumn("end_ns", end)
        .withColumn("until_ns", F.least("end_ns", "next_ns"))
        .withColumn("silent_ns", F.col("until_ns") - F.col("time_ns"))
        .where(F.col("silent_ns") > MISSES * F.col("expected_ns"))
        .select(
            *_BEATER,
            moment("time_ns").alias("from"),
            moment("until_ns").alias("until"),
            (F.col("silent_ns") / SECOND_NS).alias("seconds"),
            (F.col("expected_ns") / SECOND_NS).alias("expected_s"),
        )
    )
