"""What overtook what: messages that arrived after a later number of the same source.

Rules
- The distance is how many numbers it came late: the highest seen before it, less its own. A distance of SANITY or
  more is a source started anew, no reordering.
- The highest is taken over the slot of the receiver's time and the slot before it: what arrives after more than that
  is no neighbour's overtaking. So the window of one source is bounded in time, whatever the source sends.
- A second copy overtakes nobody: only what the daemon took as new, or as late, counts.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.layout import NAMELESS
from bccnd.pipeline.times import hour
from bccnd.pipeline.words import SANITY

_SOURCE = ("receiver", "src")


def reordering(traffic: DataFrame, slot_ns: int) -> DataFrame:
    """``TRAFFIC`` -> table ``reordering``."""
    rows = (
        traffic.where("direction = 'in' AND verdict IN ('ok', 'late') AND word IS NOT NULL")
        .where(F.col("src") != NAMELESS)
        .select(
            F.col("host").alias("receiver"),
            "src",
            F.expr(f"time_ns div {slot_ns}").alias("slot"),
            "time_ns",
            F.struct("word", "bit").alias("number"),
        )
    )
    by_slot = rows.groupBy(*_SOURCE, "slot").agg(F.max("number").alias("highest"))
    before = by_slot.select(
        *_SOURCE, (F.col("slot") + 1).alias("slot"), F.col("highest").alias("slot_before")
    )
    within = (
        Window.partitionBy(*_SOURCE, "slot").orderBy("time_ns").rowsBetween(Window.unboundedPreceding, -1)
    )
    top = F.greatest(F.max("number").over(within), F.col("slot_before"))
    distance = (F.col("top.word") - F.col("number.word")) * 64 + F.col("top.bit") - F.col("number.bit")
    return (
        rows.join(before, [*_SOURCE, "slot"], "left")
        .withColumn("top", top)
        .where(F.col("top.word") - F.col("number.word") <= SANITY // 64 + 1)
        .withColumn("distance", distance)
        .where(f"distance > 0 AND distance < {SANITY}")
        .groupBy(*_SOURCE, hour("time_ns").alias("hour"))
        .agg(
            F.count("*").alias("reordered"),
            F.percentile_approx("distance", 0.5).alias("distance_p50"),
            F.max("distance").alias("distance_max"),
        )
    )
