"""Spark's data sources of the bus: ``bccn`` (live, and to publish) and ``bccn-pcap`` (captures).

from bccnd.pipeline.source import register
register(spark)
"""

from typing import TYPE_CHECKING

from bccnd.pipeline.source.captures import CaptureSource, broken, captures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["broken", "captures", "register"]


def register(spark: "SparkSession") -> None:
    """Make the formats known to this session."""
    spark.dataSource.register(CaptureSource)
