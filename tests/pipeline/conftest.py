"""One Spark for all tests of the pipeline: starting one takes longer than most of them."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline import session

FAST = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session.connect("local[2]", "tests", FAST) as running:
        yield running
