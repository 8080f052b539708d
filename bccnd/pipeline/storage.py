"""Files and directories on any file system that Spark knows, such as ``hdfs://``.

Python knows nothing of most of them, so the JVM of the session does the work. pyspark has no public interface to it.
Who only reads files of this machine has no session (None), and starts no JVM.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from bccnd.errors import ConfigError, UnavailableError
from bccnd.pipeline.layout import TRAFFIC, Output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# How the name of an empty file in ``traffic`` begins, which says since when traffic is kept. Readers of Parquet pass
# over names with an underscore.
KEPT_SINCE = "_since="
_KEPT_SINCE = re.compile(KEPT_SINCE + r"([0-9-]{10})")
# Of a path its scheme and host, which say what file system it is on.
_PLACE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?")
_BATCH = re.compile(r".*/batch=([0-9]+)(?:-([0-9]+))?")


def _path(spark: "SparkSession", path: str) -> tuple[Any, Any]:
    path_of, _ = _hadoop(spark)
    place = _PLACE.match(path)
    return _system(spark, place[0] if place else ""), path_of(path)


@lru_cache(maxsize=8)
def _system(spark: "SparkSession", place: str) -> Any:
    """The file system of the paths that begin with ``place``; the default one of those without."""
    path_of, settings = _hadoop(spark)
    return path_of(f"{place}/").getFileSystem(settings)


@lru_cache(maxsize=1)
def _hadoop(spark: "SparkSession") -> tuple[Any, Any]:
    """The class of paths, and the settings of file systems. Asked for once: Java looks for ``org``, ``org.apache``
    and so on in each of its jars, and copies thousands of settings, which takes longer than to look for a file.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - into the JVM
    return jvm.org.apache.hadoop.fs.Path, spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001


def exists(spark: "SparkSession | None", path: str) -> bool:
    if spark is None:
        return Path(path).exists()
    system, found = _path(spark, path)
    return bool(system.exists(found))


def children(spark: "SparkSession | None", path: str) -> list[str]:
    """The names in a directory, sorted; none if there is no such directory."""
    if spark is None:
        return sorted(each.name for each in Path(path).iterdir()) if Path(path).is_dir() else []
    system, found = _path(spark, path)
    if not system.exists(found):
        return []
    return sorted(str(status.getPath().getName()) for status in system.listStatus(found))


def delete(spark: "SparkSession", path: str) -> None:
    """Delete a file, or a directory with all that is in it; nothing happens if there is none."""
    system, found = _path(spark, path)
    system.delete(found, True)


def on_this_machine(spark: "SparkSession | None", path: str) -> Path | None:
    """The path for this machine's own file system, or None if it belongs to another."""
    if spark is None:
        return Path(path)
    system, found = _path(spark, path)
    uri = system.makeQualified(found).toUri()
    return Path(str(uri.getPath())) if str(uri.getScheme()) == "file" else None


@contextmanager
def brought_here(spark: "SparkSession | None", path: str) -> Iterator[Path]:
    """A directory, or a copy of it on this machine for a while; missing if there is none."""
    if (place := on_this_machine(spark, path)) is not None:
        yield place
        return
    assert spark is not None  # noqa: S101 - without a session all is on this machine
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        system, source = _path(spark, path)
        if system.exists(source):
            jvm: Any = spark._jvm  # noqa: SLF001 - into the JVM
            system.copyToLocalFile(False, source, jvm.org.apache.hadoop.fs.Path(copy.as_uri()), True)
        yield copy


@contextmanager
def sent_there(spark: "SparkSession | None", path: str) -> Iterator[Path]:
    """A file to write on this machine, which becomes ``path`` at the end."""
    if (place := on_this_machine(spark, path)) is not None:
        yield place
        return
    assert spark is not None  # noqa: S101 - without a session all is on this machine
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        yield copy
        write_text(spark, path, copy.read_text(encoding="utf-8"))


def write_text(spark: "SparkSession", path: str, text: str) -> None:
    """Replace a file once ``text`` is written whole; for a moment there may be no file at all."""
    system, target = _path(spark, path)
    _, aside = _path(spark, f"{path}.new")
    stream = system.create(aside, True)
    stream.write(bytearray(text, "utf-8"))
    stream.close()
    system.delete(target, False)
    system.rename(aside, target)


class Batch(NamedTuple):
    """The rows of the batches ``first`` to ``last`` of ``ingest``; ``merged`` if ``maintain`` put them together."""

    first: int
    last: int
    merged: bool
    path: str

    @classmethod
    def at(cls, path: str) -> "Batch | None":
        """The batch of this directory, or None if it is something else."""
        found = _BATCH.fullmatch(path)
        return cls(int(found[1]), int(found[2] or found[1]), bool(found[2]), path) if found else None

    def holds(self, other: "Batch") -> bool:
        """Whether everything of another batch is in this one."""
        within = self.first <= other.first and other.last <= self.last
        return self != other and self.merged and within and not (other.merged and other[:2] == self[:2])


def counting(whole: Iterable[Batch]) -> list[Batch]:
    """Those whose rows are in no other, in order."""
    every = sorted(whole)
    merged = [batch for batch in every if batch.merged]
    return [batch for batch in every if not any(other.holds(batch) for other in merged)]


def all_batches(spark: "SparkSession", output: Output) -> tuple[list[Batch], list[Batch]]:
    """The batches that are whole, and what else there is: begun, and not yet or never finished."""
    paths = (output.at("traffic", name) for name in children(spark, output.traffic))
    every = [batch for path in paths if (batch := Batch.at(path))]
    whole = {batch for batch in every if exists(spark, f"{batch.path}/_SUCCESS")}
    return sorted(whole), [batch for batch in every if batch not in whole]


def batches(spark: "SparkSession", output: Output) -> list[str]:
    """The paths of the whole batches, in order; without what is still being written, and what was merged."""
    return [batch.path for batch in counting(all_batches(spark, output)[0])]


def kept_since(spark: "SparkSession", output: Output) -> str:
    """The first date that counts, ``2026-01-31``; empty if all do. Earlier traffic is being removed."""
    names = map(_KEPT_SINCE.fullmatch, children(spark, output.traffic))
    return max((found[1] for found in names if found), default="")


def traffic(spark: "SparkSession", output: Output, of: Sequence[Batch] | None = None) -> "DataFrame":
    """The rows of these batches, or of all that count, as ``TRAFFIC``. Raises ConfigError if there is none."""
    paths = batches(spark, output) if of is None else [batch.path for batch in of]
    if not paths:
        raise ConfigError(f"{output.traffic}: nothing was ingested yet; run bccnd-pipeline ingest first")
    from pyspark.sql import functions as F  # noqa: N812

    rows = spark.read.schema(TRAFFIC).option("basePath", output.traffic).parquet(*paths)
    since = kept_since(spark, output)
    return rows.where(F.col("date") >= since) if since else rows


def size(spark: "SparkSession", path: str) -> int:
    """The bytes of a directory with all that is in it."""
    system, found = _path(spark, path)
    return int(system.getContentSummary(found).getLength())


def modified(spark: "SparkSession", path: str) -> float:
    """When a file was written, in seconds since 1970."""
    system, found = _path(spark, path)
    return float(system.getFileStatus(found).getModificationTime()) / 1000


def of_strings(spark: "SparkSession", columns: Mapping[str, Sequence[str]]) -> "DataFrame":
    """A table of what the driver holds. Made from Arrow: from a list, Spark would make it with the workers' Python,
    which nothing else in the pipeline needs.
    """
    return spark.createDataFrame(
        pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    )


def found(spark: "SparkSession", folder: str, pattern: str) -> list[str]:
    """The paths below ``folder`` that match, as Spark writes them (``file:/...``); without those of hidden names."""
    system, base = _path(spark, folder)
    begin = f"{system.makeQualified(base).toString().rstrip('/')}/"
    jvm: Any = spark._jvm  # noqa: SLF001 - into the JVM
    glob = jvm.org.apache.hadoop.fs.Path(begin + pattern)
    paths = jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(system.globStatus(glob))
    # In one answer, "{a,b}": with a call for each path a million would take a minute.
    _, *names = f",{jvm.org.apache.commons.lang3.ArrayUtils.toString(paths)[1:-1]}".split(f",{begin}")
    return [begin + name for name in names if name.rpartition("/")[2][0] not in "._"]


def read_text(spark: "SparkSession", path: str) -> str:
    system, target = _path(spark, path)
    stream = system.open(target)
    try:
        jvm: Any = spark._jvm  # noqa: SLF001 - into the JVM
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "utf-8"))
    finally:
        stream.close()


def rename(spark: "SparkSession", old: str, new: str) -> None:
    """Give a file another name, in a directory that is made if it is missing."""
    system, source = _path(spark, old)
    _, target = _path(spark, new)
    system.mkdirs(target.getParent())
    if not system.rename(source, target):
        raise UnavailableError(f"{old}: cannot be renamed to {new}")
