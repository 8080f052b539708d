"""Files and directories on any file system that Spark knows, such as ``hdfs://``.

Python knows nothing of most of them, so the JVM of the session does the work. pyspark has no public interface to it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bccnd.errors import ConfigError, UnavailableError
from bccnd.pipeline.layout import TRAFFIC, Output


def _path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm  # noqa: SLF001 - into the JVM
    found = jvm.org.apache.hadoop.fs.Path(path)
    return found.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), found  # noqa: SLF001


def exists(spark: SparkSession, path: str) -> bool:
    system, found = _path(spark, path)
    return bool(system.exists(found))


def children(spark: SparkSession, path: str) -> list[str]:
    """The names in a directory, sorted; none if there is no such directory."""
    system, found = _path(spark, path)
    if not system.exists(found):
        return []
    return sorted(str(status.getPath().getName()) for status in system.listStatus(found))


def delete(spark: SparkSession, path: str) -> None:
    """Delete a file, or a directory with all that is in it; nothing happens if there is none."""
    system, found = _path(spark, path)
    system.delete(found, True)


def on_this_machine(spark: SparkSession, path: str) -> Path | None:
    """The path for this machine's own file system, or None if it belongs to another."""
    system, found = _path(spark, path)
    uri = system.makeQualified(found).toUri()
    return Path(str(uri.getPath())) if str(uri.getScheme()) == "file" else None


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """Replace a file once ``text`` is written whole; for a moment there may be no file at all."""
    system, target = _path(spark, path)
    _, aside = _path(spark, f"{path}.new")
    stream = system.create(aside, True)
    stream.write(bytearray(text, "utf-8"))
    stream.close()
    system.delete(target, False)
    system.rename(aside, target)


def batches(spark: SparkSession, output: Output) -> list[str]:
    """The paths of the whole batches, in order; one that is still being written is left out."""
    found = [name for name in children(spark, output.traffic) if name.startswith("batch=")]
    paths = [
        output.at("traffic", name) for name in sorted(found, key=lambda name: int(name.partition("=")[2]))
    ]
    return [path for path in paths if exists(spark, f"{path}/_SUCCESS")]


def traffic(spark: SparkSession, output: Output) -> DataFrame:
    """All whole batches, as ``TRAFFIC``. Raises ConfigError if there is none."""
    paths = batches(spark, output)
    if not paths:
        raise ConfigError(f"{output.traffic}: nothing was ingested yet; run bccnd-pipeline ingest first")
    return spark.read.schema(TRAFFIC).option("basePath", output.traffic).parquet(*paths)


def of_strings(spark: SparkSession, columns: Mapping[str, Sequence[str]]) -> DataFrame:
    """A table of what the driver holds. Made from Arrow: from a list, Spark would make it with the workers' Python,
    which nothing else in the pipeline needs.
    """
    return spark.createDataFrame(
        pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    )


def empty(spark: SparkSession, schema: str) -> DataFrame:
    """A table of ``schema`` (DDL) without rows, also made without the workers' Python."""
    fields = spark.createDataFrame([], schema).schema.fields
    return spark.range(0).select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in fields))


def found(spark: SparkSession, folder: str, pattern: str) -> list[str]:
    """The paths below ``folder`` that match, as Spark writes them (``file:/...``); without those of hidden names."""
    system, base = _path(spark, folder)
    begin = f"{system.makeQualified(base).toString().rstrip('/')}/"
    jvm: Any = spark._jvm  # noqa: SLF001 - into the JVM
    glob = jvm.org.apache.hadoop.fs.Path(begin + pattern)
    paths = jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(system.globStatus(glob))
    # In one answer, "{a,b}": with a call for each path a million would take a minute.
    _, *names = f",{jvm.org.apache.commons.lang3.ArrayUtils.toString(paths)[1:-1]}".split(f",{begin}")
    return [begin + name for name in names if name.rpartition("/")[2][0] not in "._"]


def read_text(spark: SparkSession, path: str) -> str:
    system, target = _path(spark, path)
    stream = system.open(target)
    try:
        jvm: Any = spark._jvm  # noqa: SLF001 - into the JVM
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "utf-8"))
    finally:
        stream.close()


def rename(spark: SparkSession, old: str, new: str) -> None:
    """Give a file another name, in a directory that is made if it is missing."""
    system, source = _path(spark, old)
    _, target = _path(spark, new)
    system.mkdirs(target.getParent())
    if not system.rename(source, target):
        raise UnavailableError(f"{old}: cannot be renamed to {new}")
