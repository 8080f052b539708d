"""Data sources for Spark: ``bccn`` reads the bus and publishes on it, ``bccn-pcap`` reads captures of tcpdump.

from bccnd.pipeline.source import register
register(spark)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Register the formats with this session."""
    from bccnd.pipeline.source.bus import BusSource
    from bccnd.pipeline.source.captures import CaptureSource

    for source in (BusSource, CaptureSource):
        spark.dataSource.register(source)
