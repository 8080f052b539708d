"""Spark's classes as a JVM holds them, in a file: a JVM that maps it starts with a quarter less processor time.

    python -m tests.spark.archive

makes ``folder()`` of the virtual environment, where ``tests/conftest.py`` finds it: the settings of this folder, the
archive (``java -XX:SharedArchiveFile``), and the options that use it. The archive holds what one run of the pipeline
loads. Java passes over an archive of other classes, or of another Java, so tests never need it.

Java maps a class only if what is before it on the class path is as it was, and no directory. Spark puts the directory
of its settings first: the settings put Spark's own classes before that.
"""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from bccnd.pipeline import java

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RUN_SECONDS = 600
# A heap that starts with room: the first seconds load some 15,000 classes, and would collect garbage for each 20 MB.
ROOM = ("-XX:MetaspaceSize=256m", "-XX:NewSize=192m")


def folder() -> Path:
    """Where Spark's settings are: what ``make`` has made, or, if that is of something else, this folder."""
    made = _place()
    return made if _text(made / "made-of") == _sources() else HERE


def options() -> tuple[str, ...]:
    """Of Java, for a process that has Spark's classes first on its class path."""
    return ROOM if folder() == HERE else _options(_place())


def make() -> bool:
    """Whether it is there at the end; it stays if it is of the same sources."""
    if folder() != HERE:
        return True
    place = _place()
    sys.stderr.write(f"tests/spark/archive.py: loading Spark's classes once, into {place}\n")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    classes = importlib.metadata.distribution("pyspark").locate_file("pyspark/jars")
    with (place / "spark-defaults.conf").open("w") as settings:
        for line in (HERE / "spark-defaults.conf").read_text().splitlines():
            # A driver reads java-opts, which holds beside the options that the command chooses; an executor does not.
            more = _options(place) if line.startswith("spark.executor.extraJavaOptions") else ()
            settings.write(" ".join([line, *more]) + "\n")
        for process in "driver", "executor":
            settings.write(f"spark.{process}.extraClassPath {classes}/*\n")
    _archive(place)
    if not (place / "classes.jsa").exists():
        return False
    (place / "java-opts").write_text("\n".join(_options(place)) + "\n")
    (place / "made-of").write_text(_sources())
    return True


def _options(place: Path) -> tuple[str, ...]:
    # Java would write on stdout why it passes over an archive.
    return (*ROOM, f"-XX:SharedArchiveFile={place / 'classes.jsa'}", "-Xlog:cds*=off")


def _archive(place: Path) -> None:
    from tests.pipeline import network

    with tempfile.TemporaryDirectory() as work:
        network.write(network.Plan(hosts=2, sources=1, messages=200), Path(work) / "in")
        archive = f"-XX:ArchiveClassesAtExit={place / 'classes.jsa'} -Xlog:cds*=off {' '.join(ROOM)}"
        # The JVM ends after the command: it holds stdout until the archive is written.
        subprocess.run(
            [sys.executable, "-m", "bccnd.pipeline.cli", "run", "--master", "local[2]",
             "--input", f"{work}/in", "--output", f"{work}/out"],
            env={**os.environ, "SPARK_CONF_DIR": str(place), "SPARK_SUBMIT_OPTS": archive, "SPARK_LOCAL_DIRS": work},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, timeout=RUN_SECONDS, check=False,
        )  # fmt: skip


def _place() -> Path:
    return Path(sys.prefix) / "spark"


@cache
def _sources() -> str:
    program = java.path()
    version = java.version_of(program) if program else "none"
    spark = importlib.metadata.version("pyspark")
    settings = [path.read_text() for path in (HERE / "spark-defaults.conf", Path(__file__))]
    return "\n".join([f"Java {version} at {program}, Spark {spark} in {sys.prefix}", *settings])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(not make())
