"""Messages, bytes and payload sizes by channel and hour.

Rules
- A message counts once: at the host that sent it, or, if that host has no record, at the receiver with most messages
  of the source. Messages on local channels count at their host.
- A recorder may leave payloads out (``bccnd-record --payloads none``). Then their sizes are unknown.
- Bytes are those of the datagrams. Percentiles are exact: they are taken of the sizes, weighted by how often each
  occurs, and there are at most as many sizes as a datagram has bytes.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.layout import ORIGIN
from bccnd.pipeline.times import HOUR_NS, SECOND_NS, hour
from bccnd.wire.verdict import DELIVERED

_SECONDS_AN_HOUR = HOUR_NS // SECOND_NS


def digest(traffic: DataFrame) -> DataFrame:
    """``TRAFFIC`` -> (src, host, channel, second, length, capture, date, messages, bytes): of own messages."""
    return _sizes(traffic.where("direction IN ('out', 'local')"), *ORIGIN)


def _sizes(rows: DataFrame, *more: str) -> DataFrame:
    return (
        rows.where(F.col("verdict").isin(*DELIVERED) & F.col("channel").isNotNull())
        .groupBy(
            "src",
            "host",
            "channel",
            F.expr(f"time_ns div {SECOND_NS}").alias("second"),
            F.octet_length("payload").alias("length"),
            *more,
        )
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
    )


def witnesses(heard: DataFrame) -> DataFrame:
    """``segments.digest`` -> (src, witness, own boolean): the host at which the messages of a source count."""
    own = F.col("direction") != "in"
    return (
        heard.where("said > 0 AND direction IN ('in', 'out', 'local')")
        .groupBy("src", "host", own.alias("own"))
        .agg(F.sum("said").alias("rows"))
        .groupBy("src")
        .agg(F.max(F.struct("own", "rows", "host")).alias("best"))
        .select(F.col("src"), F.col("best.host").alias("witness"), "best.own")
    )


def sizes(best: DataFrame, own: DataFrame, rows: DataFrame) -> DataFrame:
    """``witnesses``, ``digest`` and ``TRAFFIC`` -> (channel, second, length, messages, bytes): one of each message.

    ``rows`` are read only if a source has no record of its own, and then only of the hosts that are witnesses.
    """
    receivers = [row.witness for row in best.where("NOT own").select("witness").distinct().collect()]
    counted = _by_witness(own, best.where("own"))
    if receivers:
        received = rows.where((F.col("direction") == "in") & F.col("host").isin(receivers))
        counted = counted.unionByName(_by_witness(_sizes(received), best.where("NOT own")))
    key = ("channel", "second", "length")
    return counted.groupBy(*key).agg(*(F.sum(name).alias(name) for name in ("messages", "bytes")))


def _by_witness(found: DataFrame, best: DataFrame) -> DataFrame:
    named = F.broadcast(best.select(F.col("src").alias("witnessed_src"), "witness"))
    same = F.col("src").eqNullSafe(F.col("witnessed_src")) & (F.col("host") == F.col("witness"))
    names = ("channel", "second", "length", "messages", "bytes")
    return found.join(named, same, "left_semi").select(*names)


def channels(sized: DataFrame, keep: Callable[[DataFrame], DataFrame] = lambda frame: frame) -> DataFrame:
    """``sizes`` -> table ``channels``. ``keep`` is given a frame that is used twice."""
    hourly = keep(sized.withColumn("hour", F.expr(f"second div {_SECONDS_AN_HOUR}")))
    key = ["channel", "hour"]
    busiest = (
        hourly.groupBy(*key, "second")
        .agg(F.sum("messages").alias("rate"))
        .groupBy(*key)
        .agg(F.max("rate").alias("rate_peak"))
    )
    lengths = (
        hourly.groupBy(*key, "length")
        .agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
        .groupBy(*key)
        .agg(
            F.sum("messages").alias("messages"),
            F.sum("bytes").alias("bytes"),
            F.expr("percentile(length, array(0.5, 0.95), messages)").alias("at"),
            F.max("length").alias("payload_max"),
        )
    )
    return lengths.join(busiest, key).select(
        "channel",
        hour(f"hour * {HOUR_NS}").alias("hour"),
        "messages",
        "bytes",
        "rate_peak",
        F.round(F.col("at")[0]).cast("bigint").alias("payload_p50"),
        F.round(F.col("at")[1]).cast("bigint").alias("payload_p95"),
        F.col("payload_max").cast("bigint").alias("payload_max"),
    )
