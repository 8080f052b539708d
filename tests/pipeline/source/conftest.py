"""The session of the pipeline's tests, which knows the sources."""

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline.source import register


@pytest.fixture(scope="session")
def spark(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark
