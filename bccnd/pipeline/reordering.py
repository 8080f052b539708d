"""Messages that arrived after a higher number of the same source.

Rules
- The distance is how many numbers late a message came: the highest number seen before it, less its own. A distance
  of SANITY or more, or one too large for a bigint, is a restart of the source and not reordering.
- The highest number is taken over the slot of the receiver's time and the slot before. So the window of a source is
  bounded in time, whatever the source sends; what arrives later than that counts as no reordering.
- Duplicates do not count, only what the daemon judged ``ok`` or ``late``.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.layout import NAMELESS
from bccnd.pipeline.times import hour
from bccnd.pipeline.words import SANITY

_SOURCE = ("receiver", "src")
# The middle of all words: counted from there, numbers of 64 bits fit a bigint and keep their order.
_MIDDLE = 2**57
# The time of the row that carries the highest number of the slot before into a slot.
_BEFORE = -1


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
