"""The session of the pipeline's tests, which knows the sources."""

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline.source import register


@pytest.fixture(scope="session", autouse=True)
def _sources(request: pytest.FixtureRequest) -> None:
    spark: SparkSession = request.getfixturevalue("spark")
    register(spark)
