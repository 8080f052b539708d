"""Received, duplicate, late and lost by sequence numbers alone: everything that a receiver's record shows of a
source.

Rules
- Lost is what is missing between the first and the last number that one receiver has of an epoch of a source. Loss
  before the first or after the last shows only in the sender's own record (``delivery``).
- What the daemon dropped as late is missing, too: no subscriber got it.
- A gap across a hole in the receiver's record counts for nobody.
- A repaired message was lost on the way and came when it was sent again. Receivers that had it then have a
  duplicate. In each word, as many duplicates count as ``resent`` as there are numbers that came to any receiver by
  repair.
- A gap belongs to the time of the word that ends it; it is exact to 64 numbers.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import words
from bccnd.pipeline.coverage import stretch_at
from bccnd.pipeline.times import hour

_SOURCE = ("receiver", "src")
_EPOCH = (*_SOURCE, "epoch")


def seen(all_words: DataFrame) -> DataFrame:
    """``words.of`` -> what was received, with epochs and (receiver). Persist it: everything here uses it."""
    return words.with_epochs(all_words.where("direction = 'in'")).withColumnRenamed("host", "receiver")


def gaps(seen_words: DataFrame, stretches: DataFrame) -> DataFrame:
    """``seen`` -> (receiver, src, epoch, word, bits, late_bits, repaired_bits, first_ns, last_ns, low, previous,
    previous_high, since_ns, before, inside): per word, what is missing.

    ``before`` (bigint) counts the numbers missing between the word's first, bit ``low``, and the last one before it,
    bit ``previous_high`` of word ``previous``, which came at ``since_ns``. ``inside`` (bigint) holds, as bits, those
    missing between the word's first and its last.
    """
    merged = (
        seen_words.groupBy(*_EPOCH, "word")
        .agg(
            *(F.bit_or(name).alias(name) for name in words.BITS),
            F.min("first_ns").alias("first_ns"),
            F.max("last_ns").alias("last_ns"),
        )
        .where("bits != 0")
    )
    order = Window.partitionBy(*_EPOCH).orderBy("word")
    between = (F.col("word") - F.col("previous") - 1) * 64 + 63 - F.col("previous_high") + F.col("low")
    return (
        merged.join(F.broadcast(stretches.withColumnRenamed("host", "receiver")), "receiver", "left")
        .withColumn("from_stretch", F.coalesce(stretch_at("first_ns"), F.lit(0)))
        .withColumn("until_stretch", F.coalesce(stretch_at("last_ns"), F.lit(0)))
        .drop("stretches")
        .withColumn("low", words.lowest("bits"))
        .withColumn("high", words.highest("bits"))
        .withColumn("previous", F.lag("word").over(order))
        .withColumn("previous_high", F.lag("high").over(order))
        .withColumn("since_ns", F.lag("last_ns").over(order))
        .withColumn("previous_stretch", F.lag("until_stretch").over(order))
        .withColumn(
            "before",
            F.when(F.expr("previous_stretch = from_stretch AND from_stretch % 2 = 1"), between)
            .otherwise(0)
            .cast("bigint"),
        )
        .withColumn(
            "inside",
            F.expr(
                """IF(from_stretch = until_stretch AND from_stretch % 2 = 1,
                ~bits & shiftleft(-1L, low) & shiftrightunsigned(-1L, 63 - high), 0L)"""
            ),
        )
        .select(
            *(*_EPOCH, "word", *words.BITS, "first_ns", "last_ns", "low"),
            *("previous", "previous_high", "since_ns", "before", "inside"),
        )
    )


def sources(seen_words: DataFrame, missing: DataFrame, resent: DataFrame) -> DataFrame:
    """``seen``, ``gaps`` and ``words.resent`` -> table ``sources``."""
    earlier = Window.partitionBy(*_EPOCH, "word").orderBy("slot").rowsBetween(Window.unboundedPreceding, -1)
    known = F.coalesce(F.bit_or("bits").over(earlier), F.lit(0).cast("bigint"))
    fresh = F.bit_count(F.col("bits").bitwiseAND(F.bitwise_not(known)))
    none = F.lit(0).cast("bigint")
    again = F.greatest(F.lit(0), F.col("rows") - fresh - F.col("late"))
    counted = seen_words.join(F.broadcast(resent), ["src", "word"], "left").select(
        *_SOURCE,
        hour("first_ns").alias("hour"),
        fresh.cast("bigint").alias("received"),
        none.alias("lost"),
        "rows",
        "late",
        F.col("restart").cast("bigint").alias("restarts"),
        F.bit_count("repaired_bits").cast("bigint").alias("repaired"),
        F.least(again, F.coalesce(F.bit_count("resent"), F.lit(0))).alias("resent"),
    )
    lost = missing.where("before > 0 OR inside != 0").select(
        *_SOURCE,
        hour("first_ns").alias("hour"),
        none.alias("received"),
        F.expr("before + bit_count(inside)").alias("lost"),
        none.alias("rows"),
        none.alias("late"),
        none.alias("restarts"),
        none.alias("repaired"),
        none.alias("resent"),
    )
    return (
        counted.union(lost)
        .groupBy(*_SOURCE, "hour")
        .agg(
            F.sum("received").alias("received"),
            F.sum("lost").alias("lost"),
            (F.sum("rows") - F.sum("received") - F.sum("late") - F.sum("resent")).alias("duplicates"),
            *(F.sum(name).alias(name) for name in ("late", "restarts", "repaired", "resent")),
        )
    )
