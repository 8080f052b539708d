"""A Spark session with what was measured to matter, and one line for a person when there can be none.

Rules
- What must hold for the answers to be right (UTC, microseconds, no guessed types) is set on every session; what is a
  matter of the machine (memory, cores) is left to ``spark-submit`` and ``spark-defaults.conf``. A local master has
  defaults of ours (``local``).
- pyspark is imported when a session is wanted, so that ``--help`` and wrong usage cost no JVM and no import.
- What a JVM of ours says goes to a file that has no name: all that matters comes as an exception. Only if it does not
  start is the file read, for the reason. Below spark-submit the JVM is not ours.
- On a local master nothing is offered to the network.
"""

import logging
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bccnd.errors import UnavailableError
from bccnd.pipeline.source import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",  # half the size of snappy for this data, and no slower
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # the host 007 is no number
    "spark.sql.sources.partitionOverwriteMode": "static",  # a batch is replaced as a whole
    "spark.sql.maxConcurrentOutputFileWriters": "64",  # hosts written at once by a task, instead of sorting by host
    "spark.sql.parquet.filterPushdown": "true",
    "spark.ui.showConsoleProgress": "false",  # we have our own
    "spark.ui.enabled": "false",
}
LOCAL = "local[*]"
LOCAL_MEMORY = "4g"  # 50 million rows of 200 hosts were analysed in it
ANSWER_SECONDS = 5.0
NO_JAVA = "no Java found: Spark needs Java 17 or later (apt install openjdk-17-jre-headless), on PATH or as JAVA_HOME"
NO_PYSPARK = "pyspark is not installed: pip install 'bccnd[spark]'"


def java() -> Path | None:
    """The ``java`` Spark would start: that of JAVA_HOME if it is set, else the first on PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    return Path(found) if found else None


@contextmanager
def connect(
    master: str | None, name: str, settings: Mapping[str, str] | None = None
) -> Iterator["SparkSession"]:
    """A session on ``master`` (None: what spark-submit says, else LOCAL), stopped at the end.

    Raises UnavailableError without pyspark or Java, or when the master cannot be reached.
    """
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UnavailableError(NO_PYSPARK) from error
    if not java():
        raise UnavailableError(NO_JAVA)
    if master and not _answers(master):
        raise UnavailableError(f"no Spark on {master}: nobody answers there")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    PySparkLogger.getLogger("DataFrameQueryContextLogger").setLevel(
        logging.CRITICAL
    )  # pages; we say it in a line
    logging.getLogger("py4j").setLevel(logging.ERROR)  # tells of every call into a JVM that has gone
    builder = SparkSession.builder.appName(name).config(map=dict(SETTINGS))
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # by spark-submit, which knows the master
    if master or not submitted:
        builder = builder.master(master or LOCAL)
    of_the_machine: dict[str, str] = {}
    if not submitted and (master or LOCAL).startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        of_the_machine = local(os.environ)
    for key, value in {**of_the_machine, **(settings or {})}.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile() as said:
        try:
            with _stderr_to(said):
                session = builder.getOrCreate()
        except (PySparkException, Py4JError, RuntimeError, OSError) as error:
            raise UnavailableError(f"no Spark on {master or LOCAL}: {_reason(error, said)}") from error
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    try:
        yield session
    finally:
        session.stop()


def local(environ: Mapping[str, str]) -> dict[str, str]:
    """What a driver that does all the work needs. Its heap is that of SPARK_DRIVER_MEMORY, Spark's own variable."""
    partitions = max(8, 4 * (os.cpu_count() or 1))  # Spark's 200 took five times as long on two cores
    return {
        "spark.driver.memory": environ.get("SPARK_DRIVER_MEMORY") or LOCAL_MEMORY,
        "spark.sql.shuffle.partitions": str(partitions),
    }


def _answers(master: str) -> bool:
    """False if none of the addresses of a standalone master accepts; Spark itself finds out after a minute."""
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
    """What is started within writes its stderr to ``file``, for good; this process only as long."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _reason(error: BaseException, said: IO[bytes]) -> str:
    """The one line of a Java stack trace, of what the JVM said or of the error, that tells a person most."""
    said.seek(0)
    lines = [*str(error).splitlines(), *said.read().decode("utf-8", "replace").splitlines()]
    telling = [line for line in lines if re.search(r"(Exception|Error): \S", line)]
    causes = [line for line in telling if line.lstrip().startswith("Caused by:")]
    line = (causes or telling or lines or [type(error).__name__])[-1 if causes else 0]
    return re.sub(r'^\s*(Exception in thread "\S+" |Caused by: |: )?([\w.$]+\.)?', "", line)
