"""What sending every datagram several times saved (``copies`` in the settings).

Rules
- The daemon records what it sent once, and what arrived as often as it arrived. Rows per number seen, rounded, are
  the copies that were sent.
- p, the part of the datagrams that was lost, is 1 - rows / (copies * sent). With one copy p * sent numbers would have
  been lost; what were lost less than that, the copies saved. Losses in bursts take both copies: then little is saved.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

_PAIR_HOUR = ("sender", "receiver", "hour")


def copies(all_minutes: DataFrame) -> DataFrame:
    """``delivery.counted`` -> table ``copies``, of senders with a record."""
    sums = (
        all_minutes.where("basis = 'record'")
        .groupBy("sender", "receiver", F.date_trunc("hour", "minute").alias("hour"))
        .agg(*(F.sum(name).alias(name) for name in ("sent", "lost", "rows")))
        .where("rows > 0")
    )
    lost_part = F.greatest(F.lit(0.0), 1 - F.col("rows") / (F.col("copies") * F.col("sent")))
    return (
        sums.withColumn("copies", F.greatest(F.lit(1), F.expr("round(rows / (sent - lost))").cast("int")))
        .withColumn("lost_single", lost_part * F.col("sent"))
        .withColumn("saved", F.col("lost_single") - F.col("lost"))
        .select(*_PAIR_HOUR, "copies", "sent", "lost", "lost_single", "saved")
    )
