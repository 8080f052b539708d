"""One Spark session for all tests of the pipeline, and one network that it has analysed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline import session
from bccnd.pipeline.source import register
from tests.pipeline.analysed import Analysed
from tests.pipeline.plans import ADAPTIVE

ROOT = Path(__file__).parents[2]
# For the Python processes that Spark starts.
os.environ["PYTHONPATH"] = f"{ROOT}:{ROOT / 'clients' / 'python'}"
FAST = {
    # Of a few rows nothing is learnt while they are read, and to plan each part of a query again costs a seventh.
    ADAPTIVE: "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session.connect("local[2]", "tests", FAST) as running:
        register(running)
        yield running


@pytest.fixture(scope="session")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    return Analysed(spark, tmp_path_factory.mktemp("network"))
