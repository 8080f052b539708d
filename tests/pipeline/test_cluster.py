"""The command gives the same tables on a standalone cluster, with and without spark-submit, as on one machine.

A master and two workers run on loopback, each a process. The workers have neither Python nor bccnd. The analysis runs
in their JVMs alone, so a cluster needs only Spark.
"""

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

from bccnd.pipeline import cli, java
from bccnd.pipeline.layout import TABLES, Output
from tests.daemon_process import die_with_parent
from tests.packet_client import wait_until
from tests.pipeline import network
from tests.pipeline.analysed import PLAN
from tests.spark import archive, joined

SPARK = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
COMMAND = [sys.executable, "-m", "bccnd.pipeline.cli"]
# The workers have no Python.
ENVIRONMENT = {
    "SPARK_LOCAL_IP": LOOPBACK,
    "PYSPARK_PYTHON": "/nonexistent/python",
    "PYSPARK_DRIVER_PYTHON": sys.executable,
}
WORKERS = 2
START_SECONDS = 300
RUN_SECONDS = 600
JVM = (
    *archive.options(), "-Xmx256m", "-XX:NewSize=64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote",
)  # fmt: skip
Rows = dict[str, list[str]]


class Cluster:
    """A master, and WORKERS workers with one core and 600 MB each; they end with the ``ExitStack``."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._folder, self._running = folder, running
        self._start("master", "org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", "0")
        self.url = self._logged("master", r"Starting Spark master at (spark://\S+)")
        self._logged("master", "New state: (ALIVE)")
        for number in range(WORKERS):
            place = ["--host", LOOPBACK, "--work-dir", str(folder / f"work-{number}")]
            share = ["--cores", "1", "--memory", "600M"]
            worker = "org.apache.spark.deploy.worker.Worker"
            self._start(f"worker-{number}", worker, *place, *share, self.url)
        for number in range(WORKERS):
            self._logged(f"worker-{number}", "(Successfully registered) with master")

    def _start(self, name: str, main_class: str, *arguments: str) -> None:
        program = java.path()
        assert program, java.NEEDED
        scala = next((SPARK / "jars").glob("spark-core_*")).name.split("_")[1].partition("-")[0]
        given = {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_HOME": str(SPARK), "SPARK_SCALA_VERSION": scala}
        with self._log(name).open("wb") as log:
            process = self._running.enter_context(
                subprocess.Popen(
                    [program, *JVM, "-cp", f"{SPARK}/jars/*", main_class, "--webui-port", "0", *arguments],
                    stdout=log, stderr=log, cwd=self._folder, env=given, preexec_fn=die_with_parent,
                )
            )  # fmt: skip
        self._running.callback(process.terminate)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _logged(self, name: str, pattern: str) -> str:
        """Waits until the log of ``name`` has ``pattern``; returns its group."""
        wait_until(
            lambda: re.search(pattern, self._log(name).read_text()), f"{name}: {pattern}", START_SECONDS
        )
        found = re.search(pattern, self._log(name).read_text())
        assert found
        return found[1]

    def executors(self) -> int:
        """How many there were in all applications so far; each has a directory of its own at its worker."""
        return sum(1 for _ in self._folder.glob("work-*/app-*/*/stderr"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as running:
        yield Cluster(tmp_path, running)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    network.write(PLAN, tmp_path / "recorded")
    return tmp_path / "recorded"


def of_one_machine(recorded: Path, output: Output) -> Rows:
    where = ["--input", str(recorded), "--output", output.root]
    ended = joined.run([*COMMAND, "--master", "local[2]", "run", *where], RUN_SECONDS)
    assert ended.returncode == 0, ended.stderr
    return tables(output)


def damage(folder: Path) -> None:
    """Have ``damaged.parquet`` beside the others."""
    some = next(folder.glob("*/*/*.parquet"))
    some.with_name("damaged.parquet").write_bytes(some.read_bytes()[:-100])


def run(program: list[str], action: str, recorded: Path, output: Output) -> str:
    """The output of the command, which must succeed."""
    ended = subprocess.run(
        [*program, action, "--output", output.root, "--input", str(recorded)],
        capture_output=True, text=True, check=False, timeout=RUN_SECONDS,
        env={**os.environ, **ENVIRONMENT},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # spark-submit joins the two.
    return ended.stdout + ended.stderr


def tables(output: Output) -> Rows:
    """The rows of each table, sorted, because the order of Spark's rows depends on partitions."""
    return {name: sorted(map(repr, pq.read_table(f"{output.tables}/{name}").to_pylist())) for name in TABLES}


def test_cluster_gives_the_tables_of_one_machine(recorded: Path, cluster: Cluster, tmp_path: Path) -> None:
    expected = of_one_machine(recorded, Output(str(tmp_path / "one-machine")))
    damage(recorded)
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
        # No recorder of the network gives accounts, and it has no links.
        assert expected[name] or name in ("drops", "links"), name
        assert found[name] == expected[name], name
