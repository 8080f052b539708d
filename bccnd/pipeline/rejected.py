"""What came from the segment and was refused: broken, forged, replayed, out of place."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.layout import DELIVERED
from bccnd.pipeline.times import HOUR_NS, hour, moment


def rejected(traffic: DataFrame) -> DataFrame:
    """``TRAFFIC`` -> table ``rejected``, by host, hour, reason and peer; a peer is an address, whatever its port."""
    address = F.regexp_replace("peer", r":\d+$", "")
    return (
        traffic.where((F.col("direction") == "in") & ~F.col("verdict").isin(*DELIVERED))
        .groupBy("host", F.expr(f"time_ns div {HOUR_NS}").alias("hour"), "verdict", address.alias("peer"))
        .agg(
            F.count("*").alias("datagrams"),
            F.min("time_ns").alias("first"),
            F.max("time_ns").alias("last"),
            F.min_by("channel", "time_ns").alias("example_channel"),
        )
        .select(
            "host",
            hour(f"hour * {HOUR_NS}").alias("hour"),
            "verdict",
            "peer",
            "datagrams",
            moment("first").alias("first"),
            moment("last").alias("last"),
            "example_channel",
        )
    )
