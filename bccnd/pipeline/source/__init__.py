"""Spark's data sources of the bus: ``bccn`` (live, and to publish) and ``bccn-pcap`` (captures of tcpdump).

from bccnd.pipeline.source import register
register(spark)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make the formats known to this session."""
    from bccnd.pipeline.source.bus import BusSource
    from bccnd.pipeline.source.captures import CaptureSource

    for source in (BusSource, CaptureSource):
        spark.dataSource.register(source)
