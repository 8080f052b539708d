"""Messages that were lost inside a host, by its daemon's own account (marks ``counters``, ``bccnd/recorder``).

Rules
- The kernel drops datagrams when the buffer of the daemon's socket is full; the daemon drops messages of a client
  that reads too slowly. To the program that misses them, both look like loss of the network.
- A recorder is a client as well. Messages that it missed are a hole in the record (``coverage``), and no loss.
- Marks of recorders without such counters, or with another form of them, give no rows.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.times import hour
from bccnd.recorder.layout import Direction, Mark

_SAID = "kernel_dropped bigint, clients array<struct<name: string, dropped: bigint, tap: boolean>>"


def drops(traffic: DataFrame) -> DataFrame:
    """``TRAFFIC`` -> table ``drops``: by host and hour; ``client`` is null for what the kernel dropped."""
    said = F.from_json(F.col("payload").cast("string"), _SAID)
    clients = "filter(coalesce(said.clients, array()), c -> NOT coalesce(c.tap, false))"
    lost = F.expr(
        f"""concat(
            array(named_struct('client', CAST(NULL AS string), 'messages', said.kernel_dropped)),
            transform({clients}, c -> named_struct('client', c.name, 'messages', c.dropped)))"""
    )
    return (
        traffic.where((F.col("direction") == Direction.MARK) & (F.col("verdict") == Mark.COUNTERS))
        .withColumn("said", said)
        .select("host", hour("time_ns").alias("hour"), F.explode(lost).alias("lost"))
        .where("lost.messages > 0")
        .groupBy("host", "hour", "lost.client")
        .agg(F.sum("lost.messages").alias("messages"))
    )
