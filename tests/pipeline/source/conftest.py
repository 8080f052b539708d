"""The session of the pipeline's tests, which knows the sources."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline.source import register

ROOT = Path(__file__).parents[3]
# Spark's Python processes find the project.
os.environ["PYTHONPATH"] = f"{ROOT}:{ROOT / 'clients' / 'python'}"


@pytest.fixture(scope="session", autouse=True)
def _sources(request: pytest.FixtureRequest) -> None:
    spark: SparkSession = request.getfixturevalue("spark")
    register(spark)
