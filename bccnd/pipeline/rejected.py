"""Datagrams from the segment that were rejected: malformed, forged, replayed, out of place."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.layout import ORIGIN
from bccnd.pipeline.times import MINUTE_NS, hour, moment
from bccnd.wire.verdict import HARMLESS


def digest(traffic: DataFrame) -> DataFrame:
    """``TRAFFIC`` -> (host, minute, verdict, peer, capture, date, datagrams, first, last, example_channel), with the
    address alone as the ``peer``.
    """
    address = F.regexp_replace("peer", r":\d+$", "").alias("peer")
    minute = F.expr(f"time_ns div {MINUTE_NS}").alias("minute")
    return (
        traffic.where((F.col("direction") == "in") & ~F.col("verdict").isin(*HARMLESS))
        .groupBy("host", minute, "verdict", address, *ORIGIN)
        .agg(
            F.count("*").alias("datagrams"),
            F.min("time_ns").alias("first"),
            F.max("time_ns").alias("last"),
            F.min_by("channel", "time_ns").alias("example_channel"),
        )
    )


def rejected(digests: DataFrame, known: DataFrame) -> DataFrame:
    """``digest`` and ``segments.addresses`` -> table ``rejected``: by host, hour, verdict and the peer's address,
    whatever its port. ``peer_host`` is the host that the address belongs to; null if no record says.
    """
    return (
        digests.groupBy("host", hour(f"minute * {MINUTE_NS}").alias("hour"), "verdict", "peer")
        .agg(
            F.sum("datagrams").alias("datagrams"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.min_by("example_channel", "first").alias("example_channel"),
        )
        .join(
            F.broadcast(known.withColumnsRenamed({"address": "peer", "known": "peer_host"})), "peer", "left"
        )
        .select(
            "host",
            "hour",
            "verdict",
            "peer",
            "peer_host",
            "datagrams",
            moment("first").alias("first"),
            moment("last").alias("last"),
            "example_channel",
        )
    )
