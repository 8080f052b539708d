"""What each host sent, matched with what each other host received, by source and number.

    words of the sender    bits 1111 1111    a pair is a sender and a receiver;
    words of the receiver  bits 1101 0011    lost = sent & ~received: 3 numbers, in bursts of 1 and 2

Rules
- The host of a source is the one whose record has it going out; without such a record, the part of the name before
  the first ``/``. With a record (basis ``record``) every number sent is known; without one (``gaps``), only those
  missing between numbers that were received (``loss``).
- A slot of the sender's time counts at a receiver if the receiver's record is whole then (``coverage``).
- The receivers of a sender are the recorded hosts of its segments (``segments``). So a host that hears nothing is
  found, and a host elsewhere is not blamed.
- Numbers that a source used again after a restart are matched with the epoch nearest in time.
- A burst is a run of numbers of one source that a receiver lacks. It belongs to the slot in which its first was sent.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import words
from bccnd.pipeline.coverage import whole
from bccnd.pipeline.layout import PAIR
from bccnd.pipeline.times import MINUTE_NS, minute

_NUMBERED = ("src", "word", "era")
_COUNTS = ("sent", "lost", "late", "rows")


def present(all_words: DataFrame) -> DataFrame:
    """``words.of`` -> (src, direction, host, rows): where each source was recorded. Persist it."""
    return all_words.groupBy("src", "direction", "host").agg(F.sum("rows").alias("rows"))


def owners(sources: DataFrame) -> DataFrame:
    """``present`` -> (src, sender, recorded boolean): the host of every source."""
    out = F.when(F.col("direction") == "out", F.struct("rows", "host"))
    return (
        sources.groupBy("src")
        .agg(F.max(out).alias("most"))
        .select(
            "src",
            F.coalesce("most.host", F.substring_index("src", "/", 1)).alias("sender"),
            F.col("most").isNotNull().alias("recorded"),
        )
    )


def pairs(owned: DataFrame, connected: DataFrame, stretches: DataFrame) -> DataFrame:
    """-> (sender, receiver, stretches): the pairs to compare. Both hosts have a record.

    ``connected`` is (host, segment), from ``segments``.
    """
    senders = owned.where("recorded").select(F.col("sender").alias("host")).distinct().join(connected, "host")
    return (
        senders.withColumnRenamed("host", "sender")
        .join(connected.withColumnRenamed("host", "receiver"), "segment")
        .where("sender != receiver")
        .select(*PAIR)
        .distinct()
        .join(F.broadcast(stretches.withColumnRenamed("host", "receiver")), "receiver")
        .select(*PAIR, "stretches")
    )


def sent(all_words: DataFrame, owned: DataFrame) -> DataFrame:
    """-> (sender, src, word, era, first_ns, slots array<struct<slot, bits>>): what was sent, a row per word.

    ``era`` is the epoch if the word was used in several, else 0.
    """
    out = (
        words.with_epochs(all_words.where("direction = 'out'"))
        .join(F.broadcast(owned), "src")
        .where("host = sender")
        .groupBy("sender", "src", "word", "epoch")
        .agg(
            F.array_sort(F.collect_list(F.struct("slot", "bits"))).alias("slots"),
            F.min("first_ns").alias("first_ns"),
        )
    )
    eras = F.count("*").over(Window.partitionBy("src", "word"))
    return out.withColumn("era", F.when(eras > 1, F.col("epoch")).otherwise(0)).drop("epoch")


def received(all_words: DataFrame, sent_words: DataFrame) -> DataFrame:
    """-> (receiver, src, word, era, bits, late_bits, rows): what was received, a row per word.

    ``era`` is as in ``sent``.
    """
    eras = F.col("era") > 0
    reused = (
        sent_words.join(sent_words.where(eras).select("src", "word").distinct(), ["src", "word"], "left_semi")
        .groupBy("src", "word")
        .agg(F.collect_list(F.struct("first_ns", "era")).alias("eras"))
    )
    nearest = F.expr(
        "element_at(array_sort(transform(eras, e -> struct(abs(e.first_ns - first_ns) AS off, e.era AS era))), 1).era"
    )
    return (
        all_words.where("direction = 'in'")
        .join(F.broadcast(reused), ["src", "word"], "left")
        .withColumn("era", F.coalesce(nearest, F.lit(0)))
        .groupBy(F.col("host").alias("receiver"), *_NUMBERED)
        .agg(*(F.bit_or(name).alias(name) for name in ("bits", "late_bits")), F.sum("rows").alias("rows"))
    )


def matched(
    sent_words: DataFrame, received_words: DataFrame, receivers: DataFrame, slot_ns: int
) -> DataFrame:
    """-> (sender, receiver, src, word, era, slots, bits, late_bits, rows): what was sent, and what came.

    ``slots`` are those that count. Persist it: minutes, bursts and copies are made of it.
    """
    return (
        sent_words.drop("first_ns")
        .join(F.broadcast(receivers), "sender")
        .withColumn("slots", whole("slots", slot_ns))
        .drop("stretches")
        .where("size(slots) > 0")
        .join(received_words, ["receiver", *_NUMBERED], "left")
        .select(
            *PAIR,
            *_NUMBERED,
            "slots",
            *(
                F.coalesce(name, F.lit(0).cast("bigint")).alias(name)
                for name in ("bits", "late_bits", "rows")
            ),
        )
    )


def by_minute(matched_words: DataFrame, slot_ns: int) -> DataFrame:
    """``matched`` -> (sender, receiver, minute, sent, lost, late, rows): ``rows`` as received, duplicates included.

    ``late`` are those of ``lost`` that came after later ones, so that the receiver's daemon dropped them.
    All rows of a word count in the minute in which its first number was sent.
    """
    return (
        matched_words.select(*PAIR, "bits", "late_bits", "rows", F.posexplode("slots").alias("place", "at"))
        .groupBy(*PAIR, F.expr(f"at.slot * {slot_ns} div {MINUTE_NS}").alias("minute"))
        .agg(
            F.sum(F.expr("bit_count(at.bits)")).alias("sent"),
            F.sum(F.expr("bit_count(at.bits & ~bits)")).alias("lost"),
            F.sum(F.expr("bit_count(at.bits & ~bits & late_bits)")).alias("late"),
            F.sum(F.when(F.col("place") == 0, F.col("rows")).otherwise(0)).alias("rows"),
        )
        .withColumn("minute", minute(f"minute * {MINUTE_NS}"))
    )


def bursts(matched_words: DataFrame, slot_ns: int) -> DataFrame:
    """``matched`` -> (sender, receiver, minute, length): runs of numbers that did not arrive."""
    missing = F.expr("aggregate(slots, 0L, (all, at) -> all | at.bits) & ~bits")
    begin = F.expr("filter(slots, at -> getbit(at.bits, start) = 1)[0].slot")
    found = words.runs(matched_words.withColumn("missing", missing).drop("bits", "late_bits", "rows"))
    found = found.withColumn("slot", begin).drop("slots")
    return words.stitched(found, *PAIR, "src", "era").select(
        *PAIR, minute(f"slot * {slot_ns}").alias("minute"), "length"
    )


def by_gaps(
    seen_words: DataFrame, gaps: DataFrame, loss_bursts: DataFrame, owned: DataFrame
) -> tuple[DataFrame, DataFrame]:
    """``loss.seen``, ``gaps`` and ``bursts`` -> (minutes, bursts) as above, for senders without a record.

    ``sent`` is what was received and what is missing in between.
    """
    unrecorded = F.broadcast(owned.where("NOT recorded").select("src", "sender"))
    at = minute("first_ns").alias("minute")
    rows = seen_words.groupBy("receiver", "src", "epoch", "word").agg(F.sum("rows").alias("rows"))
    counted = (
        gaps.join(unrecorded, "src")
        .join(rows, ["receiver", "src", "epoch", "word"])
        .withColumn("lost", F.expr("before + bit_count(inside)"))
        .withColumn("late", F.expr("bit_count(inside & late_bits)"))
        .withColumn("sent", F.expr("lost + bit_count(bits)"))
        .where("sender != receiver")
        .groupBy(*PAIR, at)
        .agg(*(F.sum(name).alias(name) for name in _COUNTS))
    )
    found = loss_bursts.join(unrecorded, "src").where("sender != receiver").select(*PAIR, at, "length")
    return counted, found


def counted(recorded: DataFrame, guessed: DataFrame) -> DataFrame:
    """``by_minute`` and the minutes of ``by_gaps`` -> (sender, receiver, minute, basis, sent, lost, late, rows).

    The basis is ``record`` if that of any part is: a recorded host may run programs that send without its daemon.
    """
    both = recorded.withColumn("basis", F.lit("record")).unionByName(
        guessed.withColumn("basis", F.lit("gaps"))
    )
    sums = [F.sum(name).alias(name) for name in _COUNTS]
    return both.groupBy(*PAIR, "minute").agg(F.max("basis").alias("basis"), *sums)


def minutes(all_minutes: DataFrame) -> DataFrame:
    """``counted`` -> table ``minutes``."""
    return all_minutes.select(*PAIR, "minute", "sent", "lost")


def delivery(all_minutes: DataFrame, found_bursts: DataFrame, latencies: DataFrame) -> DataFrame:
    """``counted``, ``bursts`` and ``latency.latency`` -> table ``delivery``."""
    key = [*PAIR, "hour"]
    an_hour = F.date_trunc("hour", "minute").alias("hour")
    sums = all_minutes.groupBy(*PAIR, an_hour).agg(
        F.max("basis").alias("basis"),
        F.sum("sent").alias("sent"),
        (F.sum("sent") - F.sum("lost")).alias("received"),
        F.sum("lost").alias("lost"),
        F.sum("late").alias("late"),
        (F.sum("lost") / F.sum("sent")).alias("loss"),
    )
    lengths = found_bursts.groupBy(*PAIR, an_hour).agg(
        F.count("*").alias("bursts"),
        F.percentile_approx("length", 0.5).alias("burst_p50"),
        F.percentile_approx("length", 0.95).alias("burst_p95"),
        F.max("length").alias("burst_max"),
    )
    return (
        sums.join(lengths, key, "left")
        .join(latencies, key, "left")
        .withColumn("bursts", F.coalesce("bursts", F.lit(0).cast("bigint")))
    )


def episodes(all_minutes: DataFrame, found_bursts: DataFrame, quiet_minutes: int = 2) -> DataFrame:
    """``counted`` and ``bursts`` -> table ``episodes``: runs of minutes with loss.

    Up to ``quiet_minutes`` without loss belong to the episode. ``until`` is the end of its last minute.
    """
    order = Window.partitionBy(*PAIR).orderBy("minute")
    apart = F.unix_timestamp("minute") - F.unix_timestamp(F.lag("minute").over(order)) > 60 * (
        quiet_minutes + 1
    )
    lossy = (
        all_minutes.where("lost > 0")
        .select(*PAIR, "minute")
        .withColumn("begins", F.when(F.coalesce(apart, F.lit(True)), 1).otherwise(0))
        .withColumn("episode", words.so_far(F.col("begins"), order))
    )
    spans = lossy.groupBy(*PAIR, "episode").agg(
        F.min("minute").alias("from"), F.expr("max(minute) + INTERVAL 1 MINUTE").alias("until")
    )
    within = (F.col("minute") >= F.col("from")) & (F.col("minute") < F.col("until"))
    sums = (
        all_minutes.select(*PAIR, "minute", "sent", "lost")
        .join(spans, list(PAIR))
        .where(within)
        .groupBy(*PAIR, "episode", "from", "until")
        .agg(F.sum("sent").alias("sent"), F.sum("lost").alias("lost"))
    )
    lengths = (
        found_bursts.join(lossy, [*PAIR, "minute"])
        .groupBy(*PAIR, "episode")
        .agg(F.percentile_approx("length", 0.5).alias("burst_p50"))
    )
    return sums.join(lengths, [*PAIR, "episode"], "left").select(
        *PAIR, "from", "until", "sent", "lost", (F.col("lost") / F.col("sent")).alias("loss"), "burst_p50"
    )
