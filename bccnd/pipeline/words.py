"""Words of 64 sequence numbers: what a host sent or received of a source, in one row instead of 64.

    number    128 129 130 131 132 ... 191        64 rows of traffic
    received    x   x       x   x       x
    bits of word 2: 1000...11011                 one row; bit 0 is on the right

Comparing every number sent with every number received would join billions of rows. Words are 64 times fewer, and a
bitwise AND compares them.

Rules
- Bit k of ``bits`` in word w stands for the number 64 w + k. Hash aggregation makes the words (``bit_or``); ``&``,
  ``~`` and ``bit_count`` compare them. A source with half of all traffic is many words, not one skewed partition.
- A word is split where its numbers fall into several slots of time. ``rows`` beyond ``bit_count(bits)`` are
  duplicates. Slots of what was sent are as short as the caller needs (SENT_NS at least). Slots of what was received,
  which is many times as much, are SEEN_NS long; otherwise a word of a slow source would hold hardly more than one
  number.
- An epoch of a source ends where its numbers fall by SANITY or more, or rise by more than JUMP, which no loss
  explains. These are the daemon's rules (``bccnd/relay/dedup.py``), to the precision of a word. Only a fall is a
  restart: a program that connects anew goes on with the numbers of a clock. A number that a source uses twice within
  a slot counts as a duplicate.
- Received is what the daemon delivered, by its own verdict. What it dropped has its bit in ``late_bits``. Where it is
  not in ``bits`` as well, the datagram came too late and no subscriber got it. (The daemon itself calls one that is
  more than a window behind a duplicate.) What was lost on the way and came by repair is in ``bits`` and
  ``repaired_bits``.
- Bits are compared as bit patterns, never as numbers: bit 63 is the sign of a bigint, and ANSI arithmetic refuses to
  negate the smallest.
"""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from bccnd.pipeline.layout import ORIGIN, UNNUMBERED
from bccnd.pipeline.times import MINUTE_NS, SECOND_NS
from bccnd.wire.verdict import DELIVERED, HARMLESS, Verdict

# The default of dedup.sanity.
SANITY = 1000
JUMP = 2**20
SEEN_NS = MINUTE_NS
SENT_NS = SECOND_NS
SANITY_WORDS = -(-SANITY // 64)
JUMP_WORDS = JUMP // 64
BITS = ("bits", "late_bits", "repaired_bits")


def numbered(traffic: DataFrame) -> DataFrame:
    """The rows of ``TRAFFIC`` whose sequence numbers count: sent, or received as the network brought them."""
    return traffic.where(
        F.col("direction").isin("in", "out")
        & F.col("verdict").isin(*HARMLESS)
        & F.col("word").isNotNull()
        & ~F.col("src").rlike(UNNUMBERED)
    )


def digest(traffic: DataFrame) -> DataFrame:
    """``TRAFFIC`` -> (host, direction, src, word, slot, capture, date, bits, late_bits, repaired_bits, rows, late,
    first_ns, last_ns).

    ``direction`` is ``in`` or ``out``. ``slot`` counts slots since 1970 by the host's own clock: SEEN_NS long for
    ``in``, SENT_NS for ``out``.
    """
    slot = F.expr(f"time_ns div IF(direction = 'in', {SEEN_NS}L, {SENT_NS}L)").alias("slot")
    one, none = F.expr("shiftleft(1L, bit)"), F.lit(0).cast("bigint")
    counts = (F.col("direction") == "out") | F.col("verdict").isin(*DELIVERED)
    late, repaired = (F.col("verdict") == verdict for verdict in (Verdict.LATE, Verdict.REPAIRED))
    return (
        numbered(traffic)
        .groupBy("host", "direction", "src", "word", slot, *ORIGIN)
        .agg(
            F.bit_or(F.when(counts, one).otherwise(none)).alias("bits"),
            F.bit_or(F.when(counts, none).otherwise(one)).alias("late_bits"),
            F.bit_or(F.when(repaired, one).otherwise(none)).alias("repaired_bits"),
            F.count("*").alias("rows"),
            F.count_if(late).alias("late"),
            F.min("time_ns").alias("first_ns"),
            F.max("time_ns").alias("last_ns"),
        )
    )


def of(digests: DataFrame, slot_ns: int) -> DataFrame:
    """``digest``, of any number of batches -> the same without (capture, date): a row for each word and slot.

    The slots of ``out`` are ``slot_ns`` long, a multiple of SENT_NS. What a host has of a source is in one partition,
    as almost everything that is made of words needs it there.
    """
    slot = F.expr(f"IF(direction = 'in', slot, slot div {slot_ns // SENT_NS})").alias("slot")
    placed = digests.repartition("host", "src")
    return placed.groupBy("host", "direction", "src", "word", slot).agg(
        *(F.bit_or(name).alias(name) for name in BITS),
        *(F.sum(name).alias(name) for name in ("rows", "late")),
        F.min("first_ns").alias("first_ns"),
        F.max("last_ns").alias("last_ns"),
    )


def resent(all_words: DataFrame) -> DataFrame:
    """``of`` -> (src, word, resent): as bits, the numbers that came by repair to any receiver.

    They were sent again to all, so whoever had them has a duplicate of each.
    """
    repaired = all_words.where("direction = 'in' AND repaired_bits != 0")
    return repaired.groupBy("src", "word").agg(F.bit_or("repaired_bits").alias("resent"))


def rows(found: DataFrame) -> int:
    """How many rows of traffic words stand for."""
    row = found.agg(F.sum("rows")).first()
    return int(row[0] or 0) if row else 0


def so_far(column: Column, order: WindowSpec) -> Column:
    """The sum of ``column`` up to each row. Summed over the rows that begin something, it numbers the islands."""
    return F.sum(column).over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))


def with_epochs(words: DataFrame) -> DataFrame:
    """``of`` -> and (restart boolean, epoch int): within (host, direction, src), in the order of ``first_ns``."""
    source = Window.partitionBy("host", "direction", "src").orderBy("first_ns", "word")
    step = F.col("word") - F.lag("word").over(source)
    falls, leaps = (
        F.coalesce(step < -SANITY_WORDS, F.lit(False)),
        F.coalesce(step > JUMP_WORDS, F.lit(False)),
    )
    return (
        words.withColumn("restart", falls)
        .withColumn("breaks", (falls | leaps).cast("int"))
        .withColumn("epoch", so_far(F.col("breaks"), source).cast("int"))
        .drop("breaks")
    )


def lowest(bits: str) -> Column:
    """The position of the lowest bit that is set, 0 to 63; undefined for 0."""
    least = "(-9223372036854775807L - 1L)"
    return F.expr(f"CASE WHEN {bits} = {least} THEN 63 ELSE bit_count(({bits} & -{bits}) - 1L) END")


def highest(bits: str) -> Column:
    """The position of the highest bit that is set, 0 to 63; undefined for 0."""
    return F.expr(f"length(bin({bits})) - 1")


def runs(words: DataFrame) -> DataFrame:
    """Runs of set bits: (word, missing, ...) -> (word, ..., start int, end int), a row per run, from 0 to 63.

    Words without a bit give no row; columns besides ``missing`` are kept. A run ends with its word; ``stitched``
    joins runs that touch. The cost grows with the runs, not with the numbers.
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
    """``runs`` -> (*key, word, start, length, ...): by ``key``, runs that go on in the next word are joined.

    An ``end`` beyond 63 is in a later word. The other columns have their values from the word in which the run
    begins.
    """
    order = Window.partitionBy(*key).orderBy("word", "start")
    goes_on = (
        (F.col("start") == 0)
        & (F.lag("end").over(order) % 64 == 63)
        & (F.lag(F.expr("word + end div 64 + 1")).over(order) == F.col("word"))
    )
    others = [name for name in found.columns if name not in {*key, "end"}]
    return (
        found.withColumn("begins", F.when(F.coalesce(goes_on, F.lit(False)), 0).otherwise(1))
        .withColumn("island", so_far(F.col("begins"), order))
        .groupBy(*key, "island")
        .agg(
            F.sum(F.col("end") - F.col("start") + 1).alias("length"),
            *(F.min_by(name, F.struct("word", "start")).alias(name) for name in others),
        )
        .drop("island")
    )
