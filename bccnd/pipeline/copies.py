"""How many messages extra copies saved (``copies`` in the settings).

Rules
- The daemon's record holds one row for a message that it sent in several copies, and a row for each copy that
  arrived. The number of copies is the rows per number seen, rounded.
- A datagram that was sent again on request is no copy. Its rows do not count, and its copies count as lost.
- p, the share of datagrams that was lost, is 1 - rows / (copies * sent). With one copy, p * sent messages would have
  been lost; the copies saved the difference from the real loss. A burst takes all copies, so copies save little
  against bursts. They never make loss worse.
- Where no number arrived in time, nothing is known about copies.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.layout import PAIR


def copies(recorded_minutes: DataFrame) -> DataFrame:
    """``delivery.by_minute`` -> table ``copies``: of senders with a record."""
    gone = (F.sum("lost") + F.sum("repaired")).alias("lost")
    sums = (
        recorded_minutes.groupBy(*PAIR, F.date_trunc("hour", "minute").alias("hour"))
        .agg(F.sum("sent").alias("sent"), gone, F.sum("rows").alias("rows"))
        .where("rows > 0 AND lost < sent")
    )
    lost_share = F.greatest(F.lit(0.0), 1 - F.col("rows") / (F.col("copies") * F.col("sent")))
    return (
        sums.withColumn("copies", F.greatest(F.lit(1), F.expr("round(rows / (sent - lost))").cast("int")))
        .withColumn("lost_single", lost_share * F.col("sent"))
        .withColumn("saved", F.greatest(F.lit(0.0), F.col("lost_single") - F.col("lost")))
        .select(*PAIR, "hour", "copies", "sent", "lost", "lost_single", "saved")
    )
