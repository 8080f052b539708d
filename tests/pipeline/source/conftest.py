"""One Spark session for all tests of the sources."""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline.source import register

ROOT = Path(__file__).parents[3]


def session(name: str) -> SparkSession:
    """Small and quick to start; Python on the executors finds the project."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = f"{ROOT}:{ROOT / 'clients' / 'python'}"
    return (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .getOrCreate()
    )


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    running = session("sources")
    running.sparkContext.setLogLevel("ERROR")
    register(running)
    yield running
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        running.stop()
