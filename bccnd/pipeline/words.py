"""Words of 64 sequence numbers: what a host sent or saw of a source, in one row instead of 64.

Rules
- Bit k of ``bits`` in word w stands for the number 64 w + k. Plain hash aggregation makes the words (``bit_or``),
  ``&``, ``~`` and ``bit_count`` compare them; a source with half of all traffic is many words, no skewed partition.
- A word is cut where its numbers fall into several slots of time. ``rows`` above ``bit_count(bits)`` are duplicates.
  What was sent has slots as short as the caller needs; what was seen, many times as much, has slots of SEEN, or the
  words of slow sources (a message a second) would hold hardly more than a number each.
- An epoch of a source ends where it was started anew: its numbers fall by SANITY or more, or leap by more than
  JUMP, which no loss explains; the daemon's own rules (``bccnd/relay/dedup.py``), to the precision of a word.
  Numbers that a source uses twice within a slot are not told apart.
- Bits are compared as bit patterns, never as numbers: bit 63 is the sign of a bigint, and ANSI arithmetic refuses to
  negate the smallest.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody does

from bccnd.pipeline.layout import DELIVERED, NAMELESS
from bccnd.pipeline.times import MINUTE_NS

SANITY = 1000  # the default of dedup.sanity
JUMP = 2**20
SEEN_NS = MINUTE_NS
_SANITY_WORDS = -(-SANITY // 64)
_JUMP_WORDS = JUMP // 64


def of(traffic: DataFrame, slot_ns: int) -> DataFrame:
    """``TRAFFIC`` -> (host, direction, src, word, slot, bits, rows, late, first_ns, last_ns).

    ``direction`` is ``in`` or ``out``; ``slot`` counts slots since 1970, by the host's own clock: of SEEN_NS, of
    ``slot_ns``.
    """
    numbered = (
        F.col("direction").isin("in", "out")
        & F.col("verdict").isin(*DELIVERED)
        & F.col("word").isNotNull()
        & (F.col("src") != NAMELESS)
    )
    slot = F.expr(f"IF(direction = 'in', time_ns div {SEEN_NS}, time_ns div {slot_ns})").alias("slot")
    return (
        traffic.where(numbered)
        .groupBy("host", "direction", "src", "word", slot)
        .agg(
            F.expr("bit_or(shiftleft(1L, bit))").alias("bits"),
            F.count("*").alias("rows"),
            F.count_if(F.col("verdict") == "late").alias("late"),
            F.min("time_ns").alias("first_ns"),
            F.max("time_ns").alias("last_ns"),
        )
    )


def with_epochs(words: DataFrame) -> DataFrame:
    """``of`` -> and (restart boolean, epoch int): within (host, direction, src), in the order of ``first_ns``."""
    source = Window.partitionBy("host", "direction", "src").orderBy("first_ns", "word")
    step = F.col("word") - F.lag("word").over(source)
    restart = F.coalesce((step < -_SANITY_WORDS) | (step > _JUMP_WORDS), F.lit(False))
    until_here = source.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return words.withColumn("restart", restart).withColumn(
        "epoch", F.sum(F.col("restart").cast("int")).over(until_here).cast("int")
    )


def lowest(bits: str) -> Column:
    """Position of the lowest bit that is set, 0 to 63; of 0 undefined."""
    least = "(-9223372036854775807L - 1L)"
    return F.expr(f"CASE WHEN {bits} = {least} THEN 63 ELSE bit_count(({bits} & -{bits}) - 1L) END")


def highest(bits: str) -> Column:
    """Position of the highest bit that is set, 0 to 63; of 0 undefined."""
    return F.expr(f"length(bin({bits})) - 1")


def runs(words: DataFrame) -> DataFrame:
    """Runs of set bits: (word, missing, ...) -> (word, ..., start int, end int), a row per run, from 0 to 63.

    Rows without a bit vanish; columns besides ``missing`` are kept. A run does not go beyond its word; ``stitched``
    joins those that touch. The cost is that of the runs, not of the numbers.
    """
    starts = "missing & ~shiftleft(missing, 1)"
    ends = "missing & ~shiftrightunsigned(missing, 1)"
    positions = "filter(sequence(0, 63), i -> getbit({edges}, i) = 1)"
    several = f"arrays_zip({positions.format(edges='starts')}, {positions.format(edges='ends')})"
    several = f"transform({several}, run -> struct(run['0'] AS start, run['1'] AS end))"
    return (
        words.where("missing != 0")
        .withColumn("starts", F.expr(starts))
        .withColumn("ends", F.expr(ends))
        .withColumn(
            "run",
            F.explode(
                F.when(
                    F.expr("bit_count(starts) = 1"),
                    F.array(F.struct(lowest("starts").alias("start"), lowest("ends").alias("end"))),
                ).otherwise(F.expr(several))
            ),
        )
        .select("*", "run.start", "run.end")
        .drop("run", "starts", "ends", "missing")
    )


def stitched(found: DataFrame, *key: str) -> DataFrame:
    """``runs`` -> (*key, word, start, length, ...): those that go on in the next word joined, by ``key``.

    Gaps and islands over the runs alone. The other columns are those of where the run begins.
    """
    order = Window.partitionBy(*key).orderBy("word", "start")
    goes_on = (
        (F.col("start") == 0)
        & (F.lag("end").over(order) == 63)
        & (F.lag("word").over(order) == F.col("word") - 1)
    )
    others = [name for name in found.columns if name not in {*key, "end"}]
    until_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        found.withColumn("begins", F.when(F.coalesce(goes_on, F.lit(False)), 0).otherwise(1))
        .withColumn("island", F.sum("begins").over(until_here))
        .groupBy(*key, "island")
        .agg(
            F.sum(F.col("end") - F.col("start") + 1).alias("length"),
            *(F.min_by(name, F.struct("word", "start")).alias(name) for name in others),
        )
        .drop("island")
    )
