"""What each host sent against what each other host received, by source and number.

Rules
- The host of a source is the one whose record has it going out; without such a record the part of the name before
  the first ``/``. With a record (basis ``record``) every number is known that was sent; without one (``gaps``) only
  what is missing between numbers that were seen (``loss``).
- A slot of the sender's time counts at a receiver whose record holds it wholly (``coverage``).
- Receivers of a sender are the recorded hosts of its segment: those that heard it, or are connected to it by who
  heard whom. So a host that hears nothing is found, and a host elsewhere is not blamed.
- Numbers that a restarted source used again are matched with the epoch that is nearest in time.
- Bursts are runs of numbers of one source that a receiver lacks, by the slot in which the first of them was sent.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import words
from bccnd.pipeline.coverage import whole
from bccnd.pipeline.times import MINUTE_NS, minute

_PAIR = ("sender", "receiver")
_NUMBERED = ("src", "word", "era")
SEGMENT_ROUNDS = 4  # of who is connected to whom; one is enough where everybody hears everybody


def present(all_words: DataFrame) -> DataFrame:
    """``words.of`` -> (src, direction, host, rows): which source was recorded where; persist it."""
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


def segments(sources: DataFrame, owned: DataFrame) -> DataFrame:
    """``present`` and ``owners`` -> (host, segment): hosts connected by who heard whom have the same segment."""
    heard = (
        sources.where("direction = 'in'")
        .join(F.broadcast(owned), "src")
        .select(F.col("host").alias("a"), F.col("sender").alias("b"))
        .distinct()
    )
    edges = heard.union(heard.select("b", "a")).union(heard.select("a", "a")).union(heard.select("b", "b"))
    edges = edges.distinct().localCheckpoint()
    named = edges.select(F.col("a").alias("host"), F.col("a").alias("segment")).distinct()
    for _ in range(SEGMENT_ROUNDS):
        named = (
            edges.join(named, F.col("b") == F.col("host"))
            .groupBy("a")
            .agg(F.min("segment").alias("segment"))
            .withColumnRenamed("a", "host")
        )
    return named


def pairs(owned: DataFrame, connected: DataFrame, stretches: DataFrame) -> DataFrame:
    """-> (sender, receiver, stretches): who should have received whom; senders with a record, receivers with one."""
    senders = owned.where("recorded").select(F.col("sender").alias("host")).distinct().join(connected, "host")
    receivers = stretches.join(connected, "host").withColumnRenamed("host", "receiver")
    return (
        senders.withColumnRenamed("host", "sender")
        .join(receivers, "segment")
        .where("sender != receiver")
        .select(*_PAIR, "stretches")
    )


def sent(all_words: DataFrame, owned: DataFrame) -> DataFrame:
    """-> (sender, src, word, era, first_ns, slots array<struct<slot, bits>>): what was sent, a row per word.

    ``era`` is 0, and the epoch where a word was used in several.
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
    """-> (receiver, src, word, era, bits, rows): what was seen, a row per word; ``era`` as in ``sent``."""
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
        .agg(F.bit_or("bits").alias("bits"), F.sum("rows").alias("rows"))
    )


def matched(
    sent_words: DataFrame, received_words: DataFrame, receivers: DataFrame, slot_ns: int
) -> DataFrame:
    """-> (sender, receiver, src, word, era, slots, bits, rows): what should have been received, and what was.

    ``slots`` are those that count. Persist it: the minutes, the bursts and the copies are made of it.
    """
    return (
        sent_words.drop("first_ns")
        .join(F.broadcast(receivers), "sender")
        .withColumn("slots", whole("slots", slot_ns))
        .drop("stretches")
        .where("size(slots) > 0")
        .join(received_words, ["receiver", *_NUMBERED], "left")
        .select(
            *_PAIR,
            *_NUMBERED,
            "slots",
            F.coalesce("bits", F.lit(0).cast("bigint")).alias("bits"),
            F.coalesce("rows", F.lit(0).cast("bigint")).alias("rows"),
        )
    )


def by_minute(matched_words: DataFrame, slot_ns: int) -> DataFrame:
    """``matched`` -> (sender, receiver, minute, sent, lost, rows): ``rows`` as received, with their duplicates.

    The rows of a word count where its first number was sent.
    """
    return (
        matched_words.select(*_PAIR, "bits", "rows", F.posexplode("slots").alias("place", "at"))
        .groupBy(*_PAIR, F.expr(f"at.slot * {slot_ns} div {MINUTE_NS}").alias("minute"))
        .agg(
            F.sum(F.expr("bit_count(at.bits)")).alias("sent"),
            F.sum(F.expr("bit_count(at.bits & ~bits)")).alias("lost"),
            F.sum(F.when(F.col("place") == 0, F.col("rows")).otherwise(0)).alias("rows"),
        )
        .withColumn("minute", minute(f"minute * {MINUTE_NS}"))
    )


def bursts(matched_words: DataFrame, slot_ns: int) -> DataFrame:
    """``matched`` -> (sender, receiver, minute, length): runs of numbers that did not arrive."""
    missing = F.expr("aggregate(slots, 0L, (all, at) -> all | at.bits) & ~bits")
    begin = F.expr("filter(slots, at -> getbit(at.bits, start) = 1)[0].slot")
    found = words.runs(matched_words.withColumn("missing", missing).drop("bits", "rows"))
    found = found.withColumn("slot", begin).drop("slots")
    return words.stitched(found, *_PAIR, "src", "era").select(
        *_PAIR, minute(f"slot * {slot_ns}").alias("minute"), "length"
    )


def by_gaps(
    seen_words: DataFrame, gaps: DataFrame, loss_bursts: DataFrame, owned: DataFrame
) -> tuple[DataFrame, DataFrame]:
    """``loss.seen``, ``gaps`` and ``bursts`` -> (minutes, bursts) as above, for senders without a record.

    ``sent`` is what was seen and what is missing between.
    """
    unrecorded = F.broadcast(owned.where("NOT recorded").select("src", "sender"))
    at = minute("first_ns").alias("minute")
    rows = seen_words.groupBy("receiver", "src", "epoch", "word").agg(F.sum("rows").alias("rows"))
    counted = (
        gaps.join(unrecorded, "src")
        .join(rows, ["receiver", "src", "epoch", "word"])
        .withColumn("lost", F.expr("before + bit_count(inside)"))
        .withColumn("sent", F.expr("lost + bit_count(bits)"))
        .where("sender != receiver")
        .groupBy(*_PAIR, at)
        .agg(F.sum("sent").alias("sent"), F.sum("lost").alias("lost"), F.sum("rows").alias("rows"))
    )
    found = loss_bursts.join(unrecorded, "src").where("sender != receiver").select(*_PAIR, at, "length")
    return counted, found


def counted(recorded: DataFrame, guessed: DataFrame) -> DataFrame:
    """``by_minute`` and the minutes of ``by_gaps`` -> (sender, receiver, minute, basis, sent, lost, rows).

    The basis is ``record`` if any of it is: a recorded host may have programs that send past its daemon.
    """
    both = recorded.withColumn("basis", F.lit("record")).unionByName(
        guessed.withColumn("basis", F.lit("gaps"))
    )
    sums = [F.sum(name).alias(name) for name in ("sent", "lost", "rows")]
    return both.groupBy(*_PAIR, "minute").agg(F.max("basis").alias("basis"), *sums)


def minutes(all_minutes: DataFrame) -> DataFrame:
    """``counted`` -> table ``minutes``."""
    return all_minutes.select(*_PAIR, "minute", "sent", "lost")


def delivery(all_minutes: DataFrame, found_bursts: DataFrame, latencies: DataFrame) -> DataFrame:
    """``counted``, ``bursts`` and ``latency.latency`` -> table ``delivery``."""
    key = [*_PAIR, "hour"]
    an_hour = F.date_trunc("hour", "minute").alias("hour")
    sums = all_minutes.groupBy(*_PAIR, an_hour).agg(
        F.max("basis").alias("basis"),
        F.sum("sent").alias("sent"),
        (F.sum("sent") - F.sum("lost")).alias("received"),
        F.sum("lost").alias("lost"),
        (F.sum("lost") / F.sum("sent")).alias("loss"),
    )
    lengths = found_bursts.groupBy(*_PAIR, an_hour).agg(
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
    """``counted`` and ``bursts`` -> table ``episodes``: runs of minutes with loss, the findings.

    Up to ``quiet_minutes`` without loss do not end one; they count to it. ``until`` is the end of its last minute.
    """
    order = Window.partitionBy(*_PAIR).orderBy("minute")
    until_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    apart = F.unix_timestamp("minute") - F.unix_timestamp(F.lag("minute").over(order)) > 60 * (
        quiet_minutes + 1
    )
    lossy = (
        all_minutes.where("lost > 0")
        .select(*_PAIR, "minute")
        .withColumn("begins", F.when(F.coalesce(apart, F.lit(True)), 1).otherwise(0))
        .withColumn("episode", F.sum("begins").over(until_here))
    )
    spans = lossy.groupBy(*_PAIR, "episode").agg(
        F.min("minute").alias("from"), F.expr("max(minute) + INTERVAL 1 MINUTE").alias("until")
    )
    within = (F.col("minute") >= F.col("from")) & (F.col("minute") < F.col("until"))
    sums = (
        all_minutes.select(*_PAIR, "minute", "sent", "lost")
        .join(spans, list(_PAIR))
        .where(within)
        .groupBy(*_PAIR, "episode", "from", "until")
        .agg(F.sum("sent").alias("sent"), F.sum("lost").alias("lost"))
    )
    lengths = (
        found_bursts.join(lossy, [*_PAIR, "minute"])
        .groupBy(*_PAIR, "episode")
        .agg(F.percentile_approx("length", 0.5).alias("burst_p50"))
    )
    return sums.join(lengths, [*_PAIR, "episode"], "left").select(
        *_PAIR, "from", "until", "sent", "lost", (F.col("lost") / F.col("sent")).alias("loss"), "burst_p50"
    )
