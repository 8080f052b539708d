"""How long messages took between hosts whose clocks differ.

Rules
- Time received minus time sent contains the offset of two clocks. Where messages went both ways within the hour, the
  fastest of each direction are taken to have needed the same time. Then the offset of the receiver's clock is half
  the difference of the two minima (``both-ways``; NTP assumes the same: RFC 5905, section 8). Where messages went one
  way only, the offset is unknown, and latency is what a message took longer than the fastest of the hour
  (``above-fastest``).
- A sample is enough: one of 2, 4, 8 ... words, chosen by a hash, the same on all hosts; or all words where there are
  few. So the sample of many rows is a part of that of fewer, and samples of batches can be combined.
- The first copy of a message counts. Numbers that a source used twice are left out.
- A message is received when the daemon passes it on. A message behind a missing one waited for that. Messages that
  came by repair are counted apart. All others count as direct, even those that waited.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import words
from bccnd.pipeline.layout import ORIGIN, PAIR
from bccnd.pipeline.times import SECOND_NS, hour
from bccnd.wire.verdict import Verdict

# Rows sent and received, at most about so many, and half at least; the percentiles of an hour need far fewer.
SAMPLED_ROWS = 2_000_000
# A clock that is off by so much is taken into account.
FAR_NS = SECOND_NS

_MESSAGE = ("src", "word", "bit")
_PAIR_HOUR = (*PAIR, "hour")


def digest(traffic: DataFrame) -> DataFrame:
    """``TRAFFIC`` -> (host, direction, src, word, bit, repaired, time_ns, capture, date)."""
    repaired = (F.col("verdict") == Verdict.REPAIRED).alias("repaired")
    return words.numbered(traffic).select("host", "direction", *_MESSAGE, repaired, "time_ns", *ORIGIN)


def sample(digests: DataFrame, rows: int) -> DataFrame:
    """``digest`` of so many ``rows`` in all -> about SAMPLED_ROWS of them at most."""
    words_apart = apart(rows)
    hashed = F.pmod(F.xxhash64("src", "word"), F.lit(words_apart))
    return digests.where(hashed == 0) if words_apart > 1 else digests


def apart(rows: int) -> int:
    """How many words there are for each one that is in the sample of so many rows."""
    found = 1
    while found * SAMPLED_ROWS < rows:
        found *= 2
    return found


def delays(sampled: DataFrame, owned: DataFrame) -> DataFrame:
    """``sample`` and ``delivery.owners`` -> (sender, receiver, hour, repaired, delay_ns): time received minus
    time sent.
    """
    sent = (
        sampled.where("direction = 'out'")
        .join(F.broadcast(owned.where("recorded")), "src")
        .where("host = sender")
        .groupBy("sender", *_MESSAGE)
        .agg(F.min("time_ns").alias("sent_ns"), F.count("*").alias("uses"))
        .where("uses = 1")
    )
    received = (
        sampled.where("direction = 'in'")
        .groupBy(F.col("host").alias("receiver"), *_MESSAGE)
        .agg(F.min("time_ns").alias("received_ns"), F.max("repaired").alias("repaired"))
    )
    return sent.join(received, list(_MESSAGE)).select(
        "sender",
        "receiver",
        hour("sent_ns").alias("hour"),
        "repaired",
        (F.col("received_ns") - F.col("sent_ns")).alias("delay_ns"),
    )


def fastest(delayed: DataFrame) -> DataFrame:
    """``delays`` -> (sender, receiver, hour, there, offset): the fastest message, and how far, in nanoseconds, the
    receiver's clock is ahead of the sender's; null where messages went one way only.
    """
    least = delayed.groupBy(*_PAIR_HOUR).agg(F.min("delay_ns").alias("there"))
    back = least.select(
        F.col("receiver").alias("sender"),
        F.col("sender").alias("receiver"),
        "hour",
        F.col("there").alias("back"),
    )
    return least.join(back, list(_PAIR_HOUR), "left").withColumn(
        "offset", (F.col("there") - F.col("back")) / 2
    )


def offsets(found: DataFrame) -> DataFrame:
    """``fastest`` -> (sender, receiver, least_ns, most_ns): how far the receiver's clock was ahead, over all hours.

    The margins of ``coverage`` make up for less than FAR_NS. Where messages went one way only, the fastest message
    stands for the offset: no network takes that long.
    """
    ahead = F.coalesce("offset", "there")
    ahead = F.when(F.abs(ahead) > FAR_NS, ahead).otherwise(0)
    return found.groupBy(*PAIR).agg(
        F.min(ahead).cast("bigint").alias("least_ns"), F.max(ahead).cast("bigint").alias("most_ns")
    )


def latency(delayed: DataFrame, found: DataFrame) -> DataFrame:
    """``delays`` and ``fastest`` -> the columns of table ``delivery`` from ``latency_method`` on, by pair and hour.

    ``clock_offset_us`` is how far the receiver's clock is ahead of the sender's; null if unknown.
    """
    taken = (F.col("delay_ns") - F.coalesce("offset", "there")) / 1000
    percentiles = F.percentile_approx("taken", [0.5, 0.9, 0.99])
    direct, repaired = (
        F.percentile_approx(F.when(F.col("repaired") == asked, F.col("taken")), [0.5, 0.99])
        for asked in (False, True)
    )
    return (
        delayed.join(found, list(_PAIR_HOUR))
        .withColumn("taken", taken)
        .groupBy(*_PAIR_HOUR)
        .agg(
            F.first("offset").alias("offset"),
            percentiles.alias("at"),
            F.max("taken").alias("latency_max_us"),
            direct.alias("direct"),
            repaired.alias("repaired"),
        )
        .select(
            *_PAIR_HOUR,
            F.when(F.col("offset").isNotNull(), "both-ways")
            .otherwise("above-fastest")
            .alias("latency_method"),
            (F.col("offset") / 1000).alias("clock_offset_us"),
            F.col("at")[0].alias("latency_p50_us"),
            F.col("at")[1].alias("latency_p90_us"),
            F.col("at")[2].alias("latency_p99_us"),
            "latency_max_us",
            F.col("direct")[0].alias("direct_p50_us"),
            F.col("direct")[1].alias("direct_p99_us"),
            F.col("repaired")[0].alias("repaired_p50_us"),
            F.col("repaired")[1].alias("repaired_p99_us"),
        )
    )
