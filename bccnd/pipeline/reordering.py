"""Messages that arrived after a higher number of the same source.

Rules
- The distance is how many numbers late a message came: the highest number seen before it, less its own. A distance
  of SANITY or more, or one too large for a bigint, is a restart of the source and not reordering.
- The highest number is taken over the slot of the receiver's time and the slot before. So the window of a source is
  bounded in time, whatever the source sends; what arrives later than that counts as no reordering.
- Duplicates do not count, only what the daemon judged ``ok`` or ``late``.
- To find overtaken messages, all numbers of a source must be sorted. A daemon that does not wait (``dedup.reorder``
  = 0) judges all such messages as late. So where the record shows such a daemon, only the sources with late messages
  are sorted (``suspects``).
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.layout import UNNUMBERED
from bccnd.pipeline.times import hour
from bccnd.pipeline.words import SANITY
from bccnd.recorder.layout import Direction, Mark

_SOURCE = ("receiver", "src")
# The middle of all words: counted from there, numbers of 64 bits fit a bigint and keep their order.
_MIDDLE = 2**57
# The time of the row that carries the highest number of the slot before into a slot.
_BEFORE = -1


def suspects(traffic: DataFrame, marks: DataFrame, all_words: DataFrame) -> DataFrame:
    """``TRAFFIC``, and the marks and ``words.of`` of it -> the ``TRAFFIC`` of sources whose messages may have been
    overtaken. Only the files of hosts that received such are read.
    """
    said, plain = (
        F.col("verdict") == Mark.DAEMON,
        F.get_json_object(F.col("payload").cast("string"), "$.reorder") == "0",
    )
    counts = {
        "files": F.count_if(F.col("verdict") == Mark.OPENED),
        "said": F.count_if(said),
        "plain": F.count_if(said & plain),
    }
    # The recorder notes in each file what the daemon is.
    told = (
        marks.where((F.col("direction") == Direction.MARK) & F.col("verdict").isin(Mark.OPENED, Mark.DAEMON))
        .groupBy("host")
        .agg(*(count.alias(name) for name, count in counts.items()))
        .where("plain = said AND said >= files")
        .select("host", F.lit(True).alias("told"))
    )
    received = all_words.where("direction = 'in'")
    hosts = (
        received.groupBy("host")
        .agg((F.max("late") > 0).alias("late"))
        .join(F.broadcast(told), "host", "left")
        .where("told IS NULL OR late")
        .collect()
    )
    late = received.where("late > 0").select("host", "src", F.lit(True).alias("late")).distinct()
    return (
        traffic.where(F.col("host").isin([row.host for row in hosts]))
        .join(F.broadcast(told), "host", "left")
        .join(F.broadcast(late), ["host", "src"], "left")
        .where("told IS NULL OR late")
        .drop("told", "late")
    )


def reordering(traffic: DataFrame, slot_ns: int) -> DataFrame:
    """``TRAFFIC`` -> table ``reordering``."""
    rows = (
        traffic.where("direction = 'in' AND verdict IN ('ok', 'late') AND word IS NOT NULL")
        .where(~F.col("src").rlike(UNNUMBERED))
        .select(
            F.col("host").alias("receiver"),
            "src",
            F.expr(f"time_ns div {slot_ns}").alias("slot"),
            "time_ns",
            F.expr(f"(word - {_MIDDLE}) * 64 + bit").alias("number"),
        )
        # Used twice, and read once: Spark makes the same exchange only once.
        .repartition(*_SOURCE)
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
