"""One Spark for all tests of the pipeline: starting one takes longer than most of them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline import session

ROOT = Path(__file__).parents[2]
os.environ["PYTHONPATH"] = f"{ROOT}:{ROOT / 'clients' / 'python'}"  # for the Python that Spark starts
FAST = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "CODEGEN_ONLY",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session.connect("local[2]", "tests", FAST) as running:
        yield running
