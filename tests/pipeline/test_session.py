"""``bccnd/pipeline/session.py``; what the command prints is tested in test_cli."""

import io
import sys

import pytest
from pyspark.sql import SparkSession

from bccnd.errors import UnavailableError
from bccnd.pipeline import session


def test_settings_that_results_depend_on_are_set(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in session.SETTINGS} == session.SETTINGS


def test_missing_pyspark_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(UnavailableError, match=r"pip install 'bccnd\[spark\]'"), session.connect(None, "x"):
        pass


def test_reason_is_the_last_cause_in_the_java_trace() -> None:
    trace = b"""Exception in thread "main" org.apache.spark.SparkException: no executor
\tat org.apache.spark.Some.where(Some.scala:1)
Caused by: java.net.ConnectException: Connection refused
"""
    assert session._reason(RuntimeError("gone"), io.BytesIO(trace)) == "ConnectException: Connection refused"
    assert session._reason(RuntimeError("gone"), io.BytesIO(trace[:80])) == "SparkException: no executor"
    assert session._reason(RuntimeError("gone"), io.BytesIO()) == "gone"


def test_heap_of_a_local_master_can_be_set() -> None:
    assert session.local({})["spark.driver.memory"] == session.LOCAL_MEMORY
    assert session.local({"SPARK_DRIVER_MEMORY": "16g"})["spark.driver.memory"] == "16g"
