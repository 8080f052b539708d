"""Loss above a threshold becomes a message on ``bccn/alerts/loss``: live, or out of the tables.

    alerting(losses(spark.readStream.format("bccn").option("spool", DIR).load())) \
        .writeStream.format("bccn").option("checkpointLocation", DIR2).start()

A message is a JSON object: sender, receiver, src (where the loss is one source's), from, until (UTC), sent, lost,
loss (lost / sent), and id. Messages are published at least once: the id is a hash of whom and when it is about, so
the same loss has the same id however often it is told.

Live, nobody knows what the sender sent: ``losses`` counts the numbers that are missing between the first and the
last that came of a source in a window, within blocks of 2^20 numbers, so that a source that starts again with other
numbers is no loss. What is missing at the edges of windows is not seen: the tables are exact, this is early.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.times import moment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

CHANNEL = "bccn/alerts/loss"
THRESHOLD = 0.01  # of what was sent
LEAST = 10  # messages lost: one of twenty is 5 percent, and no news
WINDOW = "1 minute"
PATIENCE = "10 seconds"  # that rows may come after later ones: the spool keeps their order, sources do not
BLOCK = 2**20  # numbers; a jump beyond is a restart


def losses(rows: "DataFrame", window: str = WINDOW, patience: str = PATIENCE) -> "DataFrame":
    """(sender, src, receiver, from, until, sent, lost) per source and window, out of recorded rows, streaming or not.

    ``sent``: how many numbers its first and last have between them. On a stream a window comes out once later
    rows say that it is over.
    """
    block = F.floor(F.col("seq") / BLOCK)
    return (
        rows.withColumn("time", moment("time_ns"))
        .withWatermark("time", patience)
        .where("direction = 'in' and verdict in ('ok', 'late') and src is not null and src <> '?'")
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
    """The table ``minutes`` as losses."""
    until = F.col("minute") + F.expr("interval 1 minute")
    return minutes.select(
        "sender", "receiver", F.col("minute").alias("from"), until.alias("until"), "sent", "lost"
    )


def alerting(found: "DataFrame", threshold: float = THRESHOLD, least: int = LEAST) -> "DataFrame":
    """(channel, payload) for each row of losses (``losses``, ``of_minutes``, the table ``episodes``) where more than
    ``threshold`` of what was sent was lost, and not less than ``least`` messages."""
    whom = [name for name in ("sender", "receiver", "src") if name in found.columns]
    identity = F.sha2(F.to_json(F.struct(*whom, "from", "until"), {"timeZone": "UTC"}), 256)
    told = F.struct(
        *whom,
        "from",
        "until",
        "sent",
        "lost",
        F.round(F.col("lost") / F.col("sent"), 6).alias("loss"),
        F.substring(identity, 1, 16).alias("id"),
    )
    return found.where((F.col("lost") >= least) & (F.col("lost") > threshold * F.col("sent"))).select(
        F.lit(CHANNEL).alias("channel"), F.to_json(told, {"timeZone": "UTC"}).alias("payload")
    )


def publishing(
    found: "DataFrame",
    checkpoint: str,
    socket: str | None = None,
    threshold: float = THRESHOLD,
    least: int = LEAST,
) -> "StreamingQuery":
    """Start the query that publishes the alerts of streaming ``losses``; the session knows the format ``bccn``."""
    options = {"checkpointLocation": checkpoint, **({"socket": socket} if socket else {})}
    messages = alerting(found, threshold, least)
    return messages.writeStream.format("bccn").options(**options).outputMode("append").start()
