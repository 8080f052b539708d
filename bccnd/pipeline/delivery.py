"""What each host sent, matched with what each other host received, by source and number.

    words of the sender    bits 1111 1111    a pair is a sender and a receiver;
    words of the receiver  bits 1101 0011    lost = sent & ~received: 3 numbers, in bursts of 1 and 2

Rules
- The host of a source is the one whose record shows it sending. Without such a record it is the part of the name
  before the first ``/``, or, for a relayed source, the host that relays it (``relays``). With a record (basis
  ``record``) every number sent is known. Without one, or while it has a hole (``gaps``), only missing numbers
  between received ones are known (``loss``).
- A slot of the sender's time counts at a receiver if the receiver's record is whole then (``coverage``), by the
  sender's clock: the offset of the two (``latency``) is taken off.
- The receivers of a sender are the recorded hosts of its segments (``segments``). So a host that hears nothing shows
  up, and a host elsewhere is not blamed.
- Numbers that a source used again after a restart are matched with the epoch nearest in time.
- A burst is a run of numbers of one source that a receiver lacks. It belongs to the slot in which its first was sent.
  Bursts of several sources that overlap in time are one outage.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import words
from bccnd.pipeline.coverage import whole
from bccnd.pipeline.layout import PAIR, VIA
from bccnd.pipeline.times import MINUTE_NS, SECOND_NS, hour, minute, moment

_NUMBERED = ("src", "word", "era")
_COUNTS = ("sent", "lost", "late", "repaired")
# All bits of ``slots``.
ALL_SENT = "aggregate(slots, 0L, (all, at) -> all | at.bits)"
# Of the rows of a word, those that nobody had asked for: a number that was sent again made one more.
_UNASKED = """rows - bit_count(repaired_bits)
    - least(greatest(rows - bit_count(bits | late_bits), 0), bit_count(coalesce(resent, 0L)))"""
# The first outages of an episode whose times are kept.
STARTS = 3


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
            F.coalesce("most.host", _named_host()).alias("sender"),
            F.col("most").isNotNull().alias("recorded"),
        )
    )


def _named_host() -> Column:
    """The host in the name of ``src``."""
    relayed = F.col("src").contains(VIA)
    return F.when(relayed, F.substring_index("src", VIA, -1)).otherwise(F.substring_index("src", "/", 1))


def pairs(owned: DataFrame, connected: DataFrame, stretches: DataFrame, offsets: DataFrame) -> DataFrame:
    """-> (sender, receiver, stretches): the pairs to compare. Both hosts have a record.

    ``connected`` is (host, segment), from ``segments``; ``offsets`` those of the clocks, from ``latency``. The
    stretches are the receiver's, by the clock of the sender.
    """
    by_sender = F.expr(
        """transform(stretches, s -> struct(
            s.from_ns - coalesce(least_ns, 0) AS from_ns, s.until_ns - coalesce(most_ns, 0) AS until_ns))"""
    )
    senders = owned.where("recorded").select(F.col("sender").alias("host")).distinct().join(connected, "host")
    return (
        senders.withColumnRenamed("host", "sender")
        .join(connected.withColumnRenamed("host", "receiver"), "segment")
        .where("sender != receiver")
        .select(*PAIR)
        .distinct()
        .join(F.broadcast(stretches.withColumnRenamed("host", "receiver")), "receiver")
        .join(F.broadcast(offsets), list(PAIR), "left")
        .select(*PAIR, by_sender.alias("stretches"))
    )


def sent(all_words: DataFrame, owned: DataFrame) -> DataFrame:
    """-> (sender, src, word, era, first_ns, slots array<struct<slot, bits, first_ns, last_ns>>): what was sent, a row
    per word.

    ``era`` is the epoch if the word was used in several, else 0.
    """
    out = (
        words.with_epochs(all_words.where("direction = 'out'"))
        .join(F.broadcast(owned), "src")
        .where("host = sender")
        .groupBy("sender", "src", "word", "epoch")
        .agg(
            F.array_sort(F.collect_list(F.struct("slot", "bits", "first_ns", "last_ns"))).alias("slots"),
            F.min("first_ns").alias("first_ns"),
        )
    )
    eras = F.count("*").over(Window.partitionBy("src", "word"))
    return out.withColumn("era", F.when(eras > 1, F.col("epoch")).otherwise(0)).drop("epoch")


def received(all_words: DataFrame, sent_words: DataFrame) -> DataFrame:
    """-> (receiver, src, word, era, bits, late_bits, repaired_bits, rows): what was received, a row per word.

    ``era`` is as in ``sent``; ``rows`` are those that came without being asked for.
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
        .agg(*(F.bit_or(name).alias(name) for name in words.BITS), F.sum("rows").alias("rows"))
        .join(F.broadcast(words.resent(all_words)), ["src", "word"], "left")
        .withColumn("rows", F.expr(_UNASKED))
        .drop("resent")
    )


def matched(
    sent_words: DataFrame, received_words: DataFrame, receivers: DataFrame, slot_ns: int
) -> DataFrame:
    """-> (sender, receiver, src, word, era, slots, bits, late_bits, repaired_bits, rows): what was sent, and what
    came.

    ``slots`` are those that count. Persist it: minutes, bursts and copies are made of it.
    """
    return (
        sent_words.drop("first_ns")
        .withColumn("slots", F.expr("transform(slots, at -> struct(at.slot AS slot, at.bits AS bits))"))
        .join(F.broadcast(receivers), "sender")
        .withColumn("slots", whole("slots", slot_ns))
        .drop("stretches")
        .where("size(slots) > 0")
        .join(received_words, ["receiver", *_NUMBERED], "left")
        .select(
            *PAIR,
            *_NUMBERED,
            "slots",
            *(F.coalesce(name, F.lit(0).cast("bigint")).alias(name) for name in (*words.BITS, "rows")),
        )
    )


def by_minute(matched_words: DataFrame, slot_ns: int) -> DataFrame:
    """``matched`` -> (sender, receiver, minute, sent, lost, late, repaired, rows): ``rows`` as received, duplicates
    included, but for what repair brought.

    ``late`` are those of ``lost`` that came after later ones, so that the receiver's daemon dropped them.
    ``repaired`` were lost on the way as well, and came when they were sent again.
    All rows of a word count in the minute in which its first number was sent.
    """
    return (
        matched_words.select(*PAIR, *words.BITS, "rows", F.posexplode("slots").alias("place", "at"))
        .groupBy(*PAIR, F.expr(f"at.slot * {slot_ns} div {MINUTE_NS}").alias("minute"))
        .agg(
            F.sum(F.expr("bit_count(at.bits)")).alias("sent"),
            F.sum(F.expr("bit_count(at.bits & ~bits)")).alias("lost"),
            F.sum(F.expr("bit_count(at.bits & ~bits & late_bits)")).alias("late"),
            F.sum(F.expr("bit_count(at.bits & repaired_bits)")).alias("repaired"),
            F.sum(F.when(F.col("place") == 0, F.col("rows")).otherwise(0)).alias("rows"),
        )
        .withColumn("minute", minute(f"minute * {MINUTE_NS}"))
    )


def sums(matched_words: DataFrame, slot_ns: int) -> DataFrame:
    """``matched`` -> (sender, receiver, src, hour, sent, lost, repaired), of each word."""
    return matched_words.select(
        *PAIR,
        "src",
        hour(f"slots[0].slot * {slot_ns}").alias("hour"),
        F.bit_count(F.expr(ALL_SENT)).alias("sent"),
        F.bit_count(F.expr(f"{ALL_SENT} & ~bits")).alias("lost"),
        F.bit_count(F.expr(f"{ALL_SENT} & repaired_bits")).alias("repaired"),
    )


def by_source(recorded: DataFrame, guessed: DataFrame) -> DataFrame:
    """``sums`` and ``guesses.by_gaps`` -> table ``losses``."""
    counts = ("sent", "lost", "repaired")
    counted = recorded.union(guessed.select(*PAIR, "src", F.date_trunc("hour", "minute"), *counts))
    return counted.groupBy(*PAIR, "src", "hour").agg(*(F.sum(name).alias(name) for name in counts))


def senders(matched_words: DataFrame, slot_ns: int) -> DataFrame:
    """``matched`` -> table ``senders``: the same numbers missing at all receivers point to the sender.

    Receivers that got nothing of a sender at all say nothing about it. ``missed`` were lost on the way: the ``lost``,
    and those that came by repair.
    """
    hears = matched_words.groupBy(*PAIR).agg(F.max(F.col("bits") != 0).alias("hears")).where("hears")
    return (
        matched_words.join(F.broadcast(hears.select(*PAIR)), list(PAIR), "left_semi")
        .withColumn("missing", F.expr(f"{ALL_SENT} & ~bits"))
        .withColumn("missed", F.expr(f"{ALL_SENT} & (~bits | repaired_bits)"))
        .groupBy("sender", *_NUMBERED)
        .agg(
            F.count("*").alias("receivers"),
            F.bit_and("missing").alias("everywhere"),
            F.sum(F.bit_count("missing")).alias("lost"),
            F.bit_and("missed").alias("missed_by_all"),
            F.sum(F.bit_count("missed")).alias("missed"),
            F.min(F.expr("slots[0].slot")).alias("slot"),
        )
        .where("receivers > 1")
        .groupBy("sender", hour(f"slot * {slot_ns}").alias("hour"))
        .agg(
            F.sum("lost").alias("lost"),
            F.sum(F.bit_count("everywhere") * F.col("receivers")).alias("lost_everywhere"),
            F.sum("missed").alias("missed"),
            F.sum(F.bit_count("missed_by_all") * F.col("receivers")).alias("missed_everywhere"),
        )
    )


def bursts(matched_words: DataFrame, sent_words: DataFrame, slot_ns: int) -> DataFrame:
    """``matched`` and ``sent`` -> (sender, receiver, src, minute, from_ns, until_ns, length): numbers that did not
    arrive.

    The times are those of the first and the last, by the sender's clock, as if it sent evenly within a slot.
    """
    missing = F.expr(f"{ALL_SENT} & ~bits")
    found = words.runs(matched_words.select(*PAIR, *_NUMBERED, missing.alias("missing")))
    found = (
        words.stitched(found, *PAIR, "src", "era")
        .withColumn("last_word", F.expr("word + (start + length - 1) div 64"))
        .withColumn("last", F.expr("CAST((start + length - 1) % 64 AS int)"))
    )
    times = sent_words.select(*_NUMBERED, "slots")
    ends = times.withColumnsRenamed({"word": "last_word", "slots": "last_slots"})
    return (
        found.join(times, list(_NUMBERED))
        .join(ends, ["src", "last_word", "era"])
        .select(
            *PAIR,
            "src",
            _sent_ns("slots", "start").alias("from_ns"),
            _sent_ns("last_slots", "last").alias("until_ns"),
            "length",
        )
        .withColumn("minute", minute(f"from_ns div {slot_ns} * {slot_ns}"))
        .select(*PAIR, "src", "minute", "from_ns", "until_ns", "length")
    )


def _sent_ns(slots: str, bit: str) -> Column:
    """When the number of that bit was sent."""
    return F.expr(
        f"""transform(filter({slots}, at -> getbit(at.bits, {bit}) = 1), at -> at.first_ns
            + (at.last_ns - at.first_ns) * bit_count(at.bits & ~shiftleft(-1L, {bit}))
            div greatest(1, bit_count(at.bits) - 1))[0]"""
    )


def counted(recorded: DataFrame, guessed: DataFrame | None) -> DataFrame:
    """``by_minute`` and ``guesses.by_gaps`` -> (sender, receiver, minute, basis, sent, lost, late, repaired).

    Without ``guesses.by_gaps`` there is nothing to add up. The basis is ``both`` where a sender's record has a hole,
    or where its host runs programs that send without its daemon.
    """
    rows = recorded.select(*PAIR, "minute", F.lit("record").alias("basis"), *_COUNTS)
    if guessed is None:
        return rows
    rows = rows.union(guessed.select(*PAIR, "minute", F.lit("gaps"), *_COUNTS))
    sums = [F.sum(name).alias(name) for name in _COUNTS]
    return rows.groupBy(*PAIR, "minute").agg(_one_basis(), *sums)


def _one_basis() -> Column:
    least, most = F.min("basis"), F.max("basis")
    return F.when(least == most, least).otherwise("both").alias("basis")


def minutes(all_minutes: DataFrame) -> DataFrame:
    """``counted`` -> table ``minutes``."""
    return all_minutes.select(*PAIR, "minute", "sent", "lost")


def delivery(all_minutes: DataFrame, found_bursts: DataFrame, latencies: DataFrame) -> DataFrame:
    """``counted``, ``bursts`` and ``latency.latency`` -> table ``delivery``."""
    key = [*PAIR, "hour"]
    an_hour = F.date_trunc("hour", "minute").alias("hour")
    sums = all_minutes.groupBy(*PAIR, an_hour).agg(
        _one_basis(),
        F.sum("sent").alias("sent"),
        (F.sum("sent") - F.sum("lost")).alias("received"),
        F.sum("lost").alias("lost"),
        F.sum("late").alias("late"),
        (F.sum("lost") / F.sum("sent")).alias("loss"),
        F.sum("repaired").alias("repaired"),
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


def outages(found_bursts: DataFrame) -> DataFrame:
    """``bursts`` -> (sender, receiver, minute, from_ns, until_ns, lost): those that overlap in time are one."""
    order = Window.partitionBy(*PAIR).orderBy("from_ns", "until_ns")
    before = F.max("until_ns").over(order.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.coalesce(F.col("from_ns") > before, F.lit(True)).cast("int")
    return (
        found_bursts.withColumn("begins", begins)
        .withColumn("outage", words.so_far(F.col("begins"), order))
        .groupBy(*PAIR, "outage")
        .agg(
            F.min_by("minute", "from_ns").alias("minute"),
            F.min("from_ns").alias("from_ns"),
            F.max("until_ns").alias("until_ns"),
            F.sum("length").alias("lost"),
        )
        .drop("outage")
    )


def episodes(all_minutes: DataFrame, found_outages: DataFrame, quiet_minutes: int = 2) -> DataFrame:
    """``counted`` and ``outages`` -> table ``episodes``: runs of minutes with loss.

    Up to ``quiet_minutes`` without loss belong to the episode. ``until`` is the end of its last minute. ``burst_p50``
    and ``outage_s`` are of the outage that the middle one of all lost messages was in; ``outages`` counts those half
    as large or larger, and ``starts`` are the times of the first of them.
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
    key = [*PAIR, "episode"]
    spans = lossy.groupBy(*key).agg(
        F.min("minute").alias("from"), F.expr("max(minute) + INTERVAL 1 MINUTE").alias("until")
    )
    within = (F.col("minute") >= F.col("from")) & (F.col("minute") < F.col("until"))
    sums = (
        all_minutes.select(*PAIR, "minute", "sent", "lost")
        .join(spans, list(PAIR))
        .where(within)
        .groupBy(*key, "from", "until")
        .agg(F.sum("sent").alias("sent"), F.sum("lost").alias("lost"))
    )
    inside = found_outages.join(lossy, [*PAIR, "minute"])
    typical = inside.groupBy(*key).agg(
        F.expr("percentile(lost, 0.5, lost)").cast("bigint").alias("burst_p50"),
        (F.expr("percentile(until_ns - from_ns, 0.5, lost)") / SECOND_NS).alias("outage_s"),
    )
    place = F.row_number().over(Window.partitionBy(*key).orderBy("from_ns"))
    large = (
        inside.join(typical, key)
        .where("lost > 1 AND 2 * lost >= burst_p50")
        .withColumn("start", F.when(place <= STARTS, moment("from_ns")))
        .groupBy(*key)
        .agg(F.count("*").alias("outages"), F.array_sort(F.collect_list("start")).alias("starts"))
    )
    return (
        sums.join(typical, key, "left")
        .join(large, key, "left")
        .withColumn("loss", F.col("lost") / F.col("sent"))
        .select(
            *(*PAIR, "from", "until", "sent", "lost", "loss", "burst_p50"),
            F.coalesce("outages", F.lit(0)).alias("outages"),
            "outage_s",
            "starts",
        )
    )
