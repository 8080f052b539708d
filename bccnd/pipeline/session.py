"""Starts and stops the Spark session; where there can be none, the error is one clear line.

Rules
- Settings that the results depend on (UTC, microseconds, no inferred types) are set on every session. Settings that
  depend on the machine (memory, cores) are left to ``spark-submit`` and ``spark-defaults.conf``. But a local master
  that is started here has its own (``local``, ``sized``), over which only variables go: SPARK_DRIVER_MEMORY, and
  options of the JVM that choose how garbage is collected.
- pyspark is imported when a session is started, so ``--help`` and wrong usage start no JVM.
- The stderr of a JVM started here goes to an unnamed file, because faults come as exceptions. The file is read only
  if the JVM does not start. Under spark-submit the JVM runs already and keeps its stderr.
- A local master listens on loopback only.
"""

import logging
import os
import re
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from bccnd.errors import UnavailableError
from bccnd.pipeline import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Half the size of snappy for this data, and no slower.
    "spark.sql.parquet.compression.codec": "zstd",
    # The host 007 is not a number.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # A batch is replaced as a whole.
    "spark.sql.sources.partitionOverwriteMode": "static",
    # A task writes the files of so many hosts at once instead of sorting by host.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    "spark.sql.parquet.filterPushdown": "true",
    # Bytes that opening a file is taken to cost. With Spark's 4 MB a task takes 32 files of a recorder, however small
    # they are, and writes as many.
    "spark.sql.files.openCostInBytes": str(64 << 10),
    # Rows that lie together by host and source need not move to be joined by host, source and word.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # A damaged page is an error; by default Spark ignores checksums, and reads it as other values.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # The text of a plan has everything that it was made of, several times over: on a cluster, hundreds of MB.
    "spark.sql.maxPlanStringLength": "100000",
    # Where in Python a column was made is in no message that is shown. To note it takes ten calls of Java for each.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Nor where in Java, for which the stack is walked at each.
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # A guard against faults of Spark's own optimizer, after each of its rules.
    "spark.sql.lightweightPlanChangeValidation": "false",
    # Each query writes its plan down for a page that nobody sees, once for each way of planning: shortly.
    "spark.sql.ui.explainMode": "simple",
    # ``progress`` reports instead.
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
}
LOCAL = "local[*]"
# Enough for 50 million rows of 200 hosts.
LOCAL_MEMORY = "4g"
# Files of so many bytes in all: a million rows. Below, a JVM spends more on compiling well, and on threads that
# collect garbage, than that saves: without, a hundred rows take half the processor time. Above, it saves a sixth to
# collect in turns instead of beside the work.
SMALL = 16 << 20
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SMALL_MEMORY = "1g"
SMALL_SETTINGS = {
    # What a sum, a sort or a table to join begins with, however few its rows are. By its heap Spark takes 8 MB for
    # SMALL, and up to 64 MB: all are set to zero, and are garbage at once.
    "spark.buffer.pageSize": "1m",
    # What conditions and joins say of other columns: that keys are not null, so that rows without one are left out
    # early. To find that out for plans as wide as these takes a tenth of the time of literal rows.
    "spark.sql.constraintPropagation.enabled": "false",
}
# A hundred queries are as many programs that Java compiles. What runs a few times only is not worth its best
# compiler: that waits ten times as long as by default, which saves a seventh of the time for 5 million rows.
_LATE = "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
_LATE += " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
LARGE_JVM = f"-XX:+UseParallelGC {_LATE}"
# Up to so many bytes, four million rows, it is not worth it at all: without it two million take a quarter less.
MIDDLE = 48 << 20
MIDDLE_JVM = "-XX:+UseParallelGC -XX:TieredStopAtLevel=1"
# Where rows only pass through, the heap would fill with garbage: it is kept small, for a tenth of the time.
PASSING_JVM = f"-XX:+UseParallelGC -XX:MaxNewSize=200m -XX:GCTimeRatio=9 {_LATE}"
_JVM_OPTIONS = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
ANSWER_SECONDS = 5.0
NO_PYSPARK = "pyspark is not installed: pip install 'bccnd[spark]'"


@contextmanager
def connect(
    master: str | None, name: str, settings: Mapping[str, str] | None = None
) -> Iterator["SparkSession"]:
    """A session on ``master`` (None: that of spark-submit, else LOCAL), stopped at the end.

    Raises UnavailableError without pyspark or a Java that is new enough, or if the master cannot be reached.
    """
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession

        from bccnd.pipeline import lookups
    except ImportError as error:
        raise UnavailableError(NO_PYSPARK) from error
    java.require()
    if master and not _answers(master):
        raise UnavailableError(f"no Spark on {master}: nobody answers there")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # These would log a page for each fault that an exception reports as well.
    for name_of_logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name_of_logger).setLevel(logging.CRITICAL)
    # It would log every call into a JVM that has ended.
    logging.getLogger("py4j").setLevel(logging.ERROR)
    builder = SparkSession.builder.appName(name).config(map=dict(SETTINGS))
    # spark-submit sets this variable, and knows the master.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master or not submitted:
        builder = builder.master(master or LOCAL)
    defaults: dict[str, str] = {}
    if not submitted and (master or LOCAL).startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        defaults = local(os.environ)
    for key, value in {**defaults, **(settings or {})}.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile() as stderr:
        try:
            with _stderr_to(stderr):
                session = builder.getOrCreate()
        except (PySparkException, Py4JError, RuntimeError, OSError) as error:
            raise UnavailableError(f"no Spark on {master or LOCAL}: {_reason(error, stderr)}") from error
    session.sparkContext.setLogLevel("ERROR")
    lookups.remember(session._jvm)  # noqa: SLF001 - into the JVM
    try:
        yield session
    finally:
        # An interrupt within a call leaves a connection that pyspark takes for a crash. The JVM ends with us.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            session.stop()


def local(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings of a driver that does all the work. SPARK_DRIVER_MEMORY, Spark's own variable, sets its heap."""
    # Spark's default of 200 partitions took five times as long on two cores.
    partitions = max(8, 4 * (os.cpu_count() or 1))
    return {
        "spark.driver.memory": _heap(environ) or LOCAL_MEMORY,
        "spark.sql.shuffle.partitions": str(partitions),
        # Beyond 32 paths Spark would look at each in a task of its own, which on one machine takes longer.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": str(1 << 20),
    }


def sized(size: int | None, environ: Mapping[str, str], *, keeps: bool = True) -> dict[str, str]:
    """Settings for so many bytes to read; none for a size that is not known (None). ``keeps``: frames are kept, so
    the heap is needed.
    """
    if size is None:
        return {}
    settings = dict(SMALL_SETTINGS) if size < SMALL else {}
    if size < SMALL and not _heap(environ):
        settings["spark.driver.memory"] = SMALL_MEMORY
    # Where the user chose how garbage is collected: a JVM does not start with two ways of it.
    if not any("GC" in environ.get(name, "") for name in _JVM_OPTIONS):
        large = MIDDLE_JVM if size < MIDDLE else LARGE_JVM
        jvm = SMALL_JVM if size < SMALL else large if keeps else PASSING_JVM
        settings["spark.driver.extraJavaOptions"] = jvm
    return settings


def _heap(environ: Mapping[str, str]) -> str | None:
    return environ.get("SPARK_DRIVER_MEMORY")


def _answers(master: str) -> bool:
    """False if no address of a standalone master accepts a connection. Spark itself would try for a minute."""
    if not master.startswith("spark://"):
        return True
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        with (
            suppress(OSError, ValueError),
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS),
        ):
            return True
    return False


@contextmanager
def _stderr_to(file: IO[bytes]) -> Iterator[None]:
    """Redirect stderr to ``file``; a process started within keeps it there."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _reason(error: BaseException, stderr: IO[bytes]) -> str:
    """The last cause in the Java stack traces of ``error`` and ``stderr``, in one line; else the first exception."""
    stderr.seek(0)
    lines = [*str(error).splitlines(), *stderr.read().decode("utf-8", "replace").splitlines()]
    raised = [line for line in lines if re.search(r"(Exception|Error)(: \S|\s*$)", line)]
    causes = [line for line in raised if line.lstrip().startswith("Caused by:")]
    line = (causes or raised or lines or [type(error).__name__])[-1 if causes else 0]
    return re.sub(r'^\s*(Exception in thread "\S+" |Caused by: |: )?([\w.$]+\.)?', "", line)
