"""``bccnd/pipeline/session.py``; what people are told is in test_cli."""

import io
import sys

import pytest
from pyspark.sql import SparkSession

from bccnd.errors import UnavailableError
from bccnd.pipeline import session


def test_what_right_answers_hang_on_is_set(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in session.SETTINGS} == session.SETTINGS


def test_without_pyspark_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(UnavailableError, match=r"pip install 'bccnd\[spark\]'"), session.connect(None, "x"):
        pass


def test_the_line_that_tells_most_is_taken_from_what_java_said() -> None:
    trace = b"""Exception in thread "main" org.apache.spark.SparkException: no executor
\tat org.apache.spark.Some.where(Some.scala:1)
Caused by: java.net.ConnectException: Connection refused
"""
    assert session._reason(RuntimeError("gone"), io.BytesIO(trace)) == "ConnectException: Connection refused"
    assert session._reason(RuntimeError("gone"), io.BytesIO(trace[:80])) == "SparkException: no executor"
    assert session._reason(RuntimeError("gone"), io.BytesIO()) == "gone"


def test_a_local_master_has_a_heap_of_its_own_or_the_one_asked_for() -> None:
    assert session.local({})["spark.driver.memory"] == session.LOCAL_MEMORY
    assert session.local({"SPARK_DRIVER_MEMORY": "16g"})["spark.driver.memory"] == "16g"
