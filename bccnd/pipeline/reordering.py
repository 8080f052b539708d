"""What overtook what: messages that arrived after a later number of the same source.

Rules
- The distance is how many numbers it came late: the highest seen before it, less its own. A distance of SANITY or
  more, or one that no bigint holds, is a source started anew, no reordering.
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
_MIDDLE = 2**57  # of all words: from there numbers of 64 bits fit a bigint, in their order
_BEFORE = -1  # the time of the row that opens a slot with the highest of the slot before


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
            F.expr(f"(word - {_MIDDLE}) * 64 + bit").alias("number"),
        )
    )
    highest_before = (
        rows.groupBy(*_SOURCE, (F.col("slot") + 1).alias("slot"))
        .agg(F.max("number").alias("number"))
        .withColumn("time_ns", F.lit(_BEFORE).cast("bigint"))
    )
    until_then = (
        Window.partitionBy(*_SOURCE, "slot").orderBy("time_ns").rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        rows.unionByName(highest_before)
        .withColumn("distance", F.try_subtract(F.max("number").over(until_then), F.col("number")))
        .where(f"time_ns != {_BEFORE} AND distance > 0 AND distance < {SANITY}")
        .groupBy(*_SOURCE, hour("time_ns").alias("hour"))
        .agg(
            F.count("*").alias("reordered"),
            F.percentile_approx("distance", 0.5).alias("distance_p50"),
            F.max("distance").alias("distance_max"),
        )
    )
