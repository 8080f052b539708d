"""Files and directories where Spark has them, which may be a file system Python knows nothing of (``hdfs://``).

The JVM of the session knows; pyspark has no public way to ask it but this one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bccnd.errors import ConfigError
from bccnd.pipeline.layout import TRAFFIC, Output


def _path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm  # noqa: SLF001 - the way into the JVM
    found = jvm.org.apache.hadoop.fs.Path(path)
    return found.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), found  # noqa: SLF001


def exists(spark: SparkSession, path: str) -> bool:
    system, found = _path(spark, path)
    return bool(system.exists(found))


def children(spark: SparkSession, path: str) -> list[str]:
    """Names of what is in a directory, sorted; none if there is no such directory."""
    system, found = _path(spark, path)
    if not system.exists(found):
        return []
    return sorted(str(status.getPath().getName()) for status in system.listStatus(found))


def delete(spark: SparkSession, path: str) -> None:
    """With all that is in it; no matter if there is nothing."""
    system, found = _path(spark, path)
    system.delete(found, True)


def replace(spark: SparkSession, new: str, old: str) -> None:
    """``new`` takes the place of the directory ``old``. Killed in between, ``old`` is there as ``<old>.before``."""
    system, source = _path(spark, new)
    _, target = _path(spark, old)
    _, aside = _path(spark, f"{old}.before")
    system.delete(aside, True)
    if system.exists(target):
        system.rename(target, aside)
    system.rename(source, target)
    system.delete(aside, True)


def batches(spark: SparkSession, output: Output) -> list[str]:
    """Paths of the batches that are whole, in their order; one that is being written is not there yet."""
    found = [name for name in children(spark, output.traffic) if name.startswith("batch=")]
    paths = [
        output.at("traffic", name) for name in sorted(found, key=lambda name: int(name.partition("=")[2]))
    ]
    return [path for path in paths if exists(spark, f"{path}/_SUCCESS")]


def traffic(spark: SparkSession, output: Output) -> DataFrame:
    """All whole batches, as ``TRAFFIC``. Raises ConfigError if there is none."""
    paths = batches(spark, output)
    if not paths:
        raise ConfigError(f"{output.traffic}: nothing was taken over yet; run bccnd-pipeline ingest first")
    return spark.read.schema(TRAFFIC).option("basePath", output.traffic).parquet(*paths)


def of_strings(spark: SparkSession, columns: Mapping[str, Sequence[str]]) -> DataFrame:
    """What the driver holds, as a table. By Arrow: of a list Spark makes one with the help of the workers' Python,
    and nothing else in the pipeline needs one there.
    """
    return spark.createDataFrame(
        pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    )


def empty(spark: SparkSession, schema: str) -> DataFrame:
    """A table of ``schema`` (DDL) without a row, nor the workers' Python."""
    fields = spark.createDataFrame([], schema).schema.fields
    return spark.range(0).select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in fields))
