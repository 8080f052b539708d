"""Publish loss above a threshold on ``bccn/alerts/loss``: live, or from the tables.

    alerting(losses(spark.readStream.format("bccn").option("spool", DIR).load())) \
        .writeStream.format("bccn").option("checkpointLocation", DIR2).start()

A message is a JSON object: sender, receiver, src (if the loss is of one source), from, until (UTC), sent, lost, loss
(lost / sent), and id. Messages are published at least once. The id is a hash of sender, receiver, src, from and
until, so the same loss has the same id however often it is published.

Live, nobody knows what the sender sent. ``losses`` counts the numbers missing between the first and the last that
came of a source in a window, within blocks of JUMP numbers: so a source that restarts with other numbers counts as
no loss. Loss at the edges of a window stays unseen. The tables are exact; the alerts are early.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.layout import UNNUMBERED
from bccnd.pipeline.times import moment
from bccnd.pipeline.words import JUMP
from bccnd.wire.verdict import DELIVERED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

CHANNEL = "bccn/alerts/loss"
# The share of what was sent.
THRESHOLD = 0.01
# Messages lost: one of twenty is 5 percent, and no news.
LEAST = 10
WINDOW = "1 minute"
# How long a row may come after later ones: the spool keeps the order of rows, sources may not.
PATIENCE = "10 seconds"


def losses(rows: "DataFrame", window: str = WINDOW, patience: str = PATIENCE) -> "DataFrame":
    """Recorded rows -> (sender, src, receiver, from, until, sent, lost) per source and window, streaming or not.

    ``sent`` is the span from the first to the last number. A stream gives a window once later rows have ended it.
    """
    block = F.floor(F.col("seq") / JUMP)
    return (
        rows.withColumn("time", moment("time_ns"))
        .withWatermark("time", patience)
        .where((F.col("direction") == "in") & ~F.col("src").rlike(UNNUMBERED))
        .where(F.col("verdict").isin(*DELIVERED))
        .groupBy(F.window("time", window).alias("span"), F.col("host"), F.col("src"), block.alias("block"))
        .agg((F.max("seq") - F.min("seq") + 1).cast("bigint").alias("sent"), F.count("*").alias("received"))
        .select(
            F.substring_index("src", "/", 1).alias("sender"),
            "src",
            F.col("host").alias("receiver"),
            F.col("span.start").alias("from"),
            F.col("span.end").alias("until"),
            "sent",
            F.greatest(F.lit(0), F.col("sent") - F.col("received")).alias("lost"),
        )
    )


def of_minutes(minutes: "DataFrame") -> "DataFrame":
    """Table ``minutes`` -> the columns of ``losses``, without ``src``."""
    until = F.col("minute") + F.expr("interval 1 minute")
    return minutes.select(
        "sender", "receiver", F.col("minute").alias("from"), until.alias("until"), "sent", "lost"
    )


def alerting(found: "DataFrame", threshold: float = THRESHOLD, least: int = LEAST) -> "DataFrame":
    """Losses (``losses``, ``of_minutes``, table ``episodes``) -> (channel, payload), a row per alert.

    An alert is a row that lost more than ``threshold`` of what was sent, and at least ``least`` messages.
    """
    names = [name for name in ("sender", "receiver", "src") if name in found.columns]
    identity = F.sha2(F.to_json(F.struct(*names, "from", "until"), {"timeZone": "UTC"}), 256)
    alert = F.struct(
        *names,
        "from",
        "until",
        "sent",
        "lost",
        F.round(F.col("lost") / F.col("sent"), 6).alias("loss"),
        F.substring(identity, 1, 16).alias("id"),
    )
    return found.where((F.col("lost") >= least) & (F.col("lost") > threshold * F.col("sent"))).select(
        F.lit(CHANNEL).alias("channel"), F.to_json(alert, {"timeZone": "UTC"}).alias("payload")
    )


def publishing(
    found: "DataFrame",
    checkpoint: str,
    socket: str | None = None,
    threshold: float = THRESHOLD,
    least: int = LEAST,
) -> "StreamingQuery":
    """Start the query that publishes the alerts of streaming ``losses``. The session knows the format ``bccn``."""
    options = {"checkpointLocation": checkpoint, **({"socket": socket} if socket else {})}
    messages = alerting(found, threshold, least)
    return messages.writeStream.format("bccn").options(**options).outputMode("append").start()
