"""Messages, bytes and payload sizes by channel and hour.

Rules
- A message counts once: at the host that sent it, or, if that has no record, at the receiver that has most of its
  source. Messages on local channels count at their host.
- A recorder may leave payloads out (``bccnd-record --payloads none``). Then nothing is known of their sizes.
- Bytes are those of the datagrams. Percentiles are exact: they are taken of the sizes, weighted by how often each
  occurs, and there are at most as many sizes as a datagram has bytes.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.times import HOUR_NS, SECOND_NS, hour
from bccnd.wire.verdict import DELIVERED

_SECONDS_AN_HOUR = HOUR_NS // SECOND_NS


def witnessed(traffic: DataFrame) -> DataFrame:
    """``TRAFFIC`` -> the rows that count, one for each message."""
    said = traffic.where("direction IN ('in', 'out', 'local') AND channel IS NOT NULL").where(
        F.col("verdict").isin(*DELIVERED)
    )
    own = F.col("direction") != "in"
    best = (
        said.groupBy("src", "host", own.alias("own"))
        .agg(F.count("*").alias("rows"))
        .groupBy("src")
        .agg(F.max(F.struct("own", "rows", "host")).alias("best"))
        .select(F.col("src").alias("witnessed_src"), "best.own", F.col("best.host").alias("witness"))
    )
    same = (
        F.col("src").eqNullSafe(F.col("witnessed_src"))
        & (F.col("host") == F.col("witness"))
        & (own == F.col("own"))
    )
    return said.join(F.broadcast(best), same, "left_semi")


def channels(
    witnessed_rows: DataFrame, keep: Callable[[DataFrame], DataFrame] = lambda frame: frame
) -> DataFrame:
    """``witnessed`` -> table ``channels``. ``keep`` is given a frame that is used twice."""
    sizes = keep(
        witnessed_rows.groupBy(
            "channel",
            F.expr(f"time_ns div {SECOND_NS}").alias("second"),
            F.octet_length("payload").alias("length"),
        )
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
        .withColumn("hour", F.expr(f"second div {_SECONDS_AN_HOUR}"))
    )
    key = ["channel", "hour"]
    busiest = (
        sizes.groupBy(*key, "second")
        .agg(F.sum("messages").alias("rate"))
        .groupBy(*key)
        .agg(F.max("rate").alias("rate_peak"))
    )
    lengths = (
        sizes.groupBy(*key, "length")
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
