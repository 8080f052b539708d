"""How Spark runs the queries of the session that tests share."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

ADAPTIVE = "spark.sql.adaptive.enabled"


@contextmanager
def adapting(spark: SparkSession) -> Iterator[None]:
    """As commands run them: each part of a query is planned when what it reads is there."""
    before = str(spark.conf.get(ADAPTIVE))
    spark.conf.set(ADAPTIVE, "true")
    try:
        yield
    finally:
        spark.conf.set(ADAPTIVE, before)
