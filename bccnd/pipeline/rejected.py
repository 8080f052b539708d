"""Datagrams from the segment that were rejected: malformed, forged, replayed, out of place."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.times import HOUR_NS, hour, moment
from bccnd.wire.verdict import HARMLESS


def rejected(traffic: DataFrame, known: DataFrame) -> DataFrame:
    """``TRAFFIC`` and ``segments.addresses`` -> table ``rejected``: by host, hour, verdict and the peer's address,
    whatever its port. ``peer_host`` is the host that the address belongs to; null if no record says.
    """
    address = F.regexp_replace("peer", r":\d+$", "")
    return (
        traffic.where((F.col("direction") == "in") & ~F.col("verdict").isin(*HARMLESS))
        .groupBy("host", F.expr(f"time_ns div {HOUR_NS}").alias("hour"), "verdict", address.alias("peer"))
        .agg(
            F.count("*").alias("datagrams"),
            F.min("time_ns").alias("first"),
            F.max("time_ns").alias("last"),
            F.min_by("channel", "time_ns").alias("example_channel"),
        )
        .join(
            F.broadcast(known.withColumnsRenamed({"address": "peer", "known": "peer_host"})), "peer", "left"
        )
        .select(
            "host",
            hour(f"hour * {HOUR_NS}").alias("hour"),
            "verdict",
            "peer",
            "peer_host",
            "datagrams",
            moment("first").alias("first"),
            moment("last").alias("last"),
            "example_channel",
        )
    )
