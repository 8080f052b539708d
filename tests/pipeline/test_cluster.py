"""The command on a standalone cluster and below spark-submit gives what it gives on one machine.

One master and two workers on the loopback, each a process. The workers are given nothing of ours: no Python that
exists, no module. The analysis runs in their JVMs alone, so a cluster needs Spark and nothing else.
"""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline import cli, session
from bccnd.pipeline.analyse import Span, analyse
from bccnd.pipeline.ingest import ingest
from bccnd.pipeline.layout import TABLES, Output
from bccnd.pipeline.progress import Progress
from tests.daemon_process import die_with_parent
from tests.packet_client import wait_until
from tests.pipeline import network

SPARK = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
COMMAND = [sys.executable, "-m", "bccnd.pipeline.cli"]
ENVIRONMENT = {  # no Python for the workers
    "SPARK_LOCAL_IP": LOOPBACK,
    "PYSPARK_PYTHON": "/nonexistent/python",
    "PYSPARK_DRIVER_PYTHON": sys.executable,
}
WORKERS = 2
START_SECONDS = 60
RUN_SECONDS = 600
PLAN = network.Plan(
    hosts=3, messages=600, seconds=120, burst=0.01, duplicate=0.01, reorder=0.01, deaf={(0, 1): (60, 80)}, forged=3,
    local=2, file_rows=1000,
)  # fmt: skip
Rows = dict[str, list[str]]


class Cluster:
    """A master and WORKERS workers of a core and 600 MB each; ended with the ``ExitStack`` they are started on."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._folder, self._running = folder, running
        self._start("master", "org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", "0")
        self.url = self._told("master", r"Starting Spark master at (spark://\S+)")
        self._told("master", "New state: (ALIVE)")
        for number in range(WORKERS):
            place = ["--host", LOOPBACK, "--work-dir", str(folder / f"work-{number}")]
            share = ["--cores", "1", "--memory", "600M"]
            worker = "org.apache.spark.deploy.worker.Worker"
            self._start(f"worker-{number}", worker, *place, *share, self.url)
        for number in range(WORKERS):
            self._told(f"worker-{number}", "(Successfully registered) with master")

    def _start(self, name: str, main_class: str, *arguments: str) -> None:
        java = session.java()
        assert java, session.NO_JAVA
        scala = next((SPARK / "jars").glob("spark-core_*")).name.split("_")[1].partition("-")[0]
        given = {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_HOME": str(SPARK), "SPARK_SCALA_VERSION": scala}
        with self._log(name).open("wb") as log:
            process = self._running.enter_context(
                subprocess.Popen(
                    [java, "-Xmx256m", "-cp", f"{SPARK}/jars/*", main_class, "--webui-port", "0", *arguments],
                    stdout=log, stderr=log, cwd=self._folder, env=given, preexec_fn=die_with_parent,
                )
            )  # fmt: skip
        self._running.callback(process.terminate)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _told(self, name: str, pattern: str) -> str:
        """What the group of ``pattern`` is in the log of ``name``, once it is there."""
        wait_until(
            lambda: re.search(pattern, self._log(name).read_text()), f"{name}: {pattern}", START_SECONDS
        )
        found = re.search(pattern, self._log(name).read_text())
        assert found
        return found[1]

    def executors(self) -> int:
        """Of all applications so far; each has a folder of its own at its worker."""
        return sum(1 for _ in self._folder.glob("work-*/app-*/*/stderr"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as running:
        yield Cluster(tmp_path, running)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    network.write(PLAN, folder)
    some = next(folder.glob("*/*/*.parquet"))
    some.with_name("damaged.parquet").write_bytes(some.read_bytes()[:-100])
    return folder


@pytest.fixture(scope="module")
def expected(spark: SparkSession, recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Of ``local[2]``."""
    output = Output(str(tmp_path_factory.mktemp("local")))
    ingest(spark, str(recorded), output, [].append)
    analyse(spark, output, Span(), Progress(None, io.StringIO()))
    return tables(output)


def run(program: list[str], action: str, recorded: Path, output: Output) -> str:
    """What it said."""
    ended = subprocess.run(
        [*program, action, "--output", output.root, "--input", str(recorded)],
        capture_output=True, text=True, check=False, timeout=RUN_SECONDS,
        env={**os.environ, **ENVIRONMENT},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr  # spark-submit makes one of the two


def tables(output: Output) -> Rows:
    """Sorted: the order of Spark's rows is that of its partitions."""
    return {name: sorted(map(repr, pq.read_table(f"{output.tables}/{name}").to_pylist())) for name in TABLES}


def test_cluster_gives_the_tables_of_one_machine(
    cluster: Cluster, recorded: Path, expected: Rows, tmp_path: Path
) -> None:
    submit = str(SPARK / "bin" / "spark-submit")
    output = Output(str(tmp_path / "out"))
    said = run([*COMMAND, "--master", cluster.url], "ingest", recorded, output)
    assert "damaged.parquet" in said
    assert cluster.executors() >= WORKERS
    run([submit, "--master", cluster.url, str(cli.__file__)], "run", recorded, output)
    assert cluster.executors() >= 2 * WORKERS
    assert "</html>" in Path(output.report).read_text()
    found = tables(output)
    for name in TABLES:
        assert expected[name], name
        assert found[name] == expected[name], name
