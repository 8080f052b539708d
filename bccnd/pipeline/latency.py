"""How long messages took, between hosts whose clocks differ.

Rules
- Time received minus time sent has the difference of two clocks in it. Where messages went both ways within the hour,
  the fastest each way are taken to have needed the same time, so the offset of the receiver's clock is half of the
  difference of the two minima (``both-ways``; the assumption of NTP, RFC 5905, section 8). Otherwise only what a
  message took above the fastest of the hour can be told (``above-fastest``), and no offset.
- A sample will do: of words chosen by a hash, the same on all hosts; of all words where there is little.
- A message counts when it arrived first. Numbers a source used twice are left out.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.layout import DELIVERED, NAMELESS
from bccnd.pipeline.times import hour

SAMPLED_ROWS = 2_000_000  # rows of both sides looked at, about; percentiles of an hour need far fewer

_MESSAGE = ("src", "word", "bit")
_PAIR_HOUR = ("sender", "receiver", "hour")


def sample(traffic: DataFrame, rows: int) -> DataFrame:
    """Of ``TRAFFIC`` with so many ``rows`` -> (host, direction, src, word, bit, time_ns), about SAMPLED_ROWS."""
    numbered = (
        F.col("direction").isin("in", "out") & F.col("verdict").isin(*DELIVERED) & (F.col("src") != NAMELESS)
    )
    chosen = traffic.where(numbered).where(F.col("word").isNotNull())
    if rows > SAMPLED_ROWS:
        chosen = chosen.where(F.pmod(F.xxhash64("src", "word"), F.lit(-(-rows // SAMPLED_ROWS))) == 0)
    return chosen.select("host", "direction", *_MESSAGE, "time_ns")


def delays(sampled: DataFrame, owned: DataFrame) -> DataFrame:
    """``sample`` and ``delivery.owners`` -> (sender, receiver, hour, delay_ns): received minus sent, as clocked."""
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
        .agg(F.min("time_ns").alias("received_ns"))
    )
    return sent.join(received, list(_MESSAGE)).select(
        "sender",
        "receiver",
        hour("sent_ns").alias("hour"),
        (F.col("received_ns") - F.col("sent_ns")).alias("delay_ns"),
    )


def latency(delayed: DataFrame) -> DataFrame:
    """``delays`` -> the columns of table ``delivery`` from ``latency_method`` on, by (sender, receiver, hour).

    ``clock_offset_us``: how far the receiver's clock is ahead of the sender's; null if unknown.
    """
    fastest = delayed.groupBy(*_PAIR_HOUR).agg(F.min("delay_ns").alias("there"))
    back = fastest.select(
        F.col("receiver").alias("sender"),
        F.col("sender").alias("receiver"),
        "hour",
        F.col("there").alias("back"),
    )
    offsets = fastest.join(back, list(_PAIR_HOUR), "left").withColumn(
        "offset", (F.col("there") - F.col("back")) / 2
    )
    taken = (F.col("delay_ns") - F.coalesce("offset", "there")) / 1000
    percentiles = F.percentile_approx("taken", [0.5, 0.9, 0.99])
    return (
        delayed.join(offsets, list(_PAIR_HOUR))
        .withColumn("taken", taken)
        .groupBy(*_PAIR_HOUR)
        .agg(
            F.first("offset").alias("offset"), percentiles.alias("at"), F.max("taken").alias("latency_max_us")
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
        )
    )
