"""Take over what was recorded, every whole file exactly once.

Rules
- Structured Streaming lists the files and remembers them in the checkpoint; a batch is a set of files that is noted
  there before it is read, and its directory is written as a whole. So a batch that was killed anywhere is written
  again from the same files, over what there was of it.
- The age of a file does not matter: Spark's default would skip silently what is older than a week.
- A file is whole if it can be read to its end and its last mark, ``closed``, is there. One that is not (no Parquet,
  cut off, damaged, of other types) is set aside: the batch is written again without it, and ``rejected-files`` says
  why. It is not tried again; an empty file is passed over. (Spark's ``ignoreCorruptFiles`` would keep what is above
  the damage, and does not catch all of it.)
- The recorder deletes its oldest files when its disk is full. One that goes between listing and reading is set aside
  like a damaged one; its marks are missing with its rows, so nobody is blamed for them.
- Columns that a file has besides are left out.
- Captures of tcpdump that lie in the directory itself are taken over as what the host of their name saw
  (``source.captures``); of one that is cut, what can be read.
- Marks aside, rows are not looked at: judging is the analysis'.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bccnd.errors import ConfigError
from bccnd.pipeline import storage
from bccnd.pipeline.layout import MARK, RECORDED, TRAFFIC, Output

# Whole ones: what tcpdump still writes is to lie elsewhere.
CAPTURES = "*.pcap,*.pcapng,*.pcap.gz,*.pcapng.gz"
FILES_PER_BATCH = 500  # what one kill can cost: the batch is read again; more make fewer, larger files
MAX_FILE_AGE = "36500d"
CONTINUOUS_SECONDS = 10  # between looks for new files
REASON_LIMIT = 500  # characters of what Spark said
GONE = "is gone: deleted between listing and reading"
NOT_CLOSED = "does not end with the mark 'closed'"

_FAILURES = (PySparkException, Py4JError)


class Batch(NamedTuple):
    """What became of one batch: its number, rows and whole files, and files that were set aside, with the reason."""

    number: int
    rows: int
    files: int
    rejected: list[tuple[str, str]]


def listed(spark: SparkSession, source: str) -> DataFrame:
    """The stream of the files below ``source``: (path, ...), without their content."""
    return (
        spark.readStream.format("binaryFile")
        .schema("path string, modificationTime timestamp, length bigint, content binary")
        .option("maxFileAge", MAX_FILE_AGE)
        .option("maxFilesPerTrigger", FILES_PER_BATCH)
        .load(f"{source.rstrip('/')}/{{date=*/host=*/*.parquet,{CAPTURES}}}")
        .select("path")
    )


def recorded(spark: SparkSession, source: str, files: list[str]) -> DataFrame:
    """``RECORDED`` rows of ``files`` below ``source``, with (file); ``broken`` captures have a mark that says why."""
    whole = [file for file in files if file.endswith(".parquet")]
    rows = (
        spark.read.schema(RECORDED)
        .option("basePath", source)
        .parquet(*whole)
        .withColumn("file", F.col("_metadata.file_path"))
        if whole
        else spark.createDataFrame([], f"{RECORDED}, file string")
    )
    if captured := [file for file in files if not file.endswith(".parquet")]:
        from bccnd.pipeline.source.captures import captures  # only now: its executors need bccnd

        return rows.unionByName(captures(spark, captured))
    return rows


def taken_over(rows: DataFrame) -> DataFrame:
    """``RECORDED`` -> ``TRAFFIC`` without ``batch``: the number split into ``word`` and ``bit``."""
    word = F.expr("CAST(floor(seq / 64) AS bigint)")
    split = rows.withColumns({"word": word, "bit": F.expr("CAST(seq % 64 AS int)")})
    fields = [column.split()[0] for column in TRAFFIC.replace("(20,0)", "").split(", ")]
    return split.select(
        *(name for name in fields if name != "batch"), *(["file"] if "file" in rows.columns else [])
    )


def ingest(
    spark: SparkSession,
    source: str,
    output: Output,
    told: Callable[[Batch], None],
    *,
    continuous: bool = False,
) -> None:
    """Take over what is below ``source``: all there is, or with ``continuous`` all that comes, until interrupted.

    ``told`` hears of every batch once it is written. Raises ConfigError for a ``source`` that is no directory, and
    for an ``output`` whose checkpoint is gone: everything would be taken over again, over what is there.
    """
    if not storage.exists(spark, source):
        raise ConfigError(f"{source}: no such directory; it should be what bccnd-record writes to")
    if storage.batches(spark, output) and not storage.exists(spark, output.checkpoint):
        raise ConfigError(
            f"{output.root}: there is traffic but no checkpoint, which says what was taken over; "
            "move both away, or give another --output"
        )

    failures: list[BaseException] = []  # Spark would tell of one in a page of Java

    def write(files: DataFrame, number: int) -> None:
        try:
            told(_written(spark, source, sorted(row.path for row in files.collect()), number, output))
        except BaseException as error:
            failures.append(error)
            raise

    writer = listed(spark, source).writeStream.option("checkpointLocation", output.checkpoint)
    every = {"processingTime": f"{CONTINUOUS_SECONDS} seconds"} if continuous else {"availableNow": True}
    query = writer.queryName("ingest").foreachBatch(write).trigger(**every).start()
    try:
        query.awaitTermination()
    except _FAILURES as error:
        raise (failures or [error])[0] from None
    finally:
        query.stop()


def _written(spark: SparkSession, source: str, files: list[str], number: int, output: Output) -> Batch:
    """Write one batch of ``files``. What is wrong with a file is looked for only once something is."""
    rejected = {file: GONE for file in files if not storage.exists(spark, file)}
    path = output.batch(number)
    good = [file for file in files if file not in rejected]
    try:
        rows, whole, broken = _write(recorded(spark, source, good), path)
    except _FAILURES:
        unreadable = dict(_unreadable(spark, source, good))
        if not unreadable:
            raise  # it was not the files' fault
        rejected |= unreadable
        good = [file for file in good if file not in rejected]
        rows, whole, broken = _write(recorded(spark, source, good), path)
    rejected |= {file: NOT_CLOSED for file in good if file not in whole} | broken
    if len(whole) < len(good):
        rows, whole, broken = _write(recorded(spark, source, sorted(whole)), path)
    if rejected:
        paths, reasons = zip(*sorted(rejected.items()), strict=True)
        table = storage.of_strings(spark, {"path": paths, "reason": reasons}).coalesce(1)
        table.write.mode("overwrite").parquet(f"{output.rejected_files}/batch={number}")
    return Batch(number, rows, len(whole), sorted(rejected.items()))


def _write(rows: DataFrame, path: str) -> tuple[int, set[str], dict[str, str]]:
    """Replace the directory by ``rows``: how many there were, the files whose last mark was among them, and the
    captures that are broken, with the reason."""
    seen = Observation()
    is_closed, is_broken = (
        (F.col("direction") == MARK) & (F.col("verdict") == told) for told in ("closed", "broken")
    )
    told = F.struct("file", F.col("payload").cast("string").alias("reason"))
    observed = taken_over(rows).observe(
        seen,
        F.count_if(~is_broken).alias("rows"),
        F.collect_set(F.when(is_closed, F.col("file"))).alias("whole"),
        F.collect_set(F.when(is_broken, told)).alias("broken"),
    )
    observed.where(~is_broken).drop("file").write.mode("overwrite").partitionBy("date", "host").parquet(path)
    found = seen.get
    broken = {_as_listed(each["file"]): each["reason"] for each in found["broken"]}
    return int(found["rows"]), {_as_listed(file) for file in found["whole"]} | broken.keys(), broken


def _as_listed(file: str) -> str:
    """The path of a file as it is listed, of the URL that its rows carry, or the path if it is a capture."""
    return (
        re.sub("^(file:)?/+", "file:/", unquote(file))
        if file[:1] == "/" or file.startswith("file:")
        else unquote(file)
    )


def _unreadable(spark: SparkSession, source: str, files: list[str]) -> Iterator[tuple[str, str]]:
    """Those of ``files`` that cannot be read to their end, and why; found by halves."""
    try:
        recorded(spark, source, files).write.format("noop").mode("overwrite").save()
    except _FAILURES as error:
        if len(files) == 1:
            yield files[0], _reason(error) if storage.exists(spark, files[0]) else GONE
            return
        middle = len(files) // 2
        yield from _unreadable(spark, source, files[:middle])
        yield from _unreadable(spark, source, files[middle:])


def _reason(error: BaseException) -> str:
    """What Spark said, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by:")]
    line = (causes or lines or [type(error).__name__])[-1 if causes else 0]
    return re.sub(r"^([\w$]+\.)+", "", line)[:REASON_LIMIT]
