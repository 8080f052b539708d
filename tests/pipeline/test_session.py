"""``bccnd/pipeline/session.py``; what the command prints is tested in test_cli."""

import io
import sys

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bccnd.errors import UnavailableError
from bccnd.pipeline import session


def test_settings_that_results_depend_on_are_set(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in session.SETTINGS} == session.SETTINGS


def test_a_fault_in_a_query_is_said_by_its_exception_alone(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    for broken in (
        lambda: spark.sql("SELECT 1 / (id - id) FROM range(1)").collect(),
        lambda: spark.range(1).select(F.col("id") / (F.col("id") - F.col("id"))).collect(),
    ):
        with pytest.raises(ArithmeticException):
            broken()
    assert capfd.readouterr() == ("", "")


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
    silent = trace.replace(b"ConnectException: Connection refused", b"ConnectException")
    assert session._reason(RuntimeError("gone"), io.BytesIO(silent)) == "ConnectException"


def test_heap_of_a_local_master_can_be_set() -> None:
    assert session.local({})["spark.driver.memory"] == session.LOCAL_MEMORY
    assert session.local({"SPARK_DRIVER_MEMORY": "16g"})["spark.driver.memory"] == "16g"


def test_jvm_suits_how_much_there_is_to_read() -> None:
    options = "spark.driver.extraJavaOptions"
    small, middle, large = (
        session.sized(size, {}) for size in (session.SMALL - 1, session.SMALL, session.MIDDLE)
    )
    few = session.SMALL_SETTINGS
    assert small == {options: session.SMALL_JVM, "spark.driver.memory": "1g", **few}
    assert middle == {options: session.MIDDLE_JVM}
    assert large == {options: session.LARGE_JVM}
    assert large[options].startswith("-XX:+UseParallelGC -XX:Tier4")
    assert session.sized(None, {}) == {}
    assert session.sized(session.SMALL, {}, keeps=False) == {options: session.PASSING_JVM}
    assert session.sized(1, {}, keeps=False) == small
    # With two ways to collect garbage a JVM does not start.
    theirs = session.sized(1, {"JDK_JAVA_OPTIONS": "-XX:+UseZGC", "SPARK_DRIVER_MEMORY": "2g"})
    assert theirs == few
