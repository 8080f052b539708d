"""Copies recorded files into ``traffic/``, every whole file exactly once.

    listed -> noted in the checkpoint -> read -> written to batch=N -> N committed
                                         a kill anywhere here repeats batch N from the same files

Rules
- A batch is a set of files that is noted in the checkpoint before it is read (``source.inputs``), and its directory
  is written as a whole. If ``ingest`` is killed, the batch is written again from the same files, and replaces what
  there is of it.
- The age of a file does not matter, as long as no newer one of its host was forgotten.
- A file is whole if it can be read to its end and has its last mark, ``closed``. Any other (not Parquet, truncated,
  damaged, of other types) is set aside: the batch is written without it, ``rejected-files`` says why, and it is not
  tried again. An empty file is skipped. (Spark's ``ignoreCorruptFiles`` would keep the rows before the damage, and
  does not detect all damage.)
- The recorder deletes its oldest files when its disk is full. A file that vanishes between listing and reading is set
  aside like a damaged one. Its marks are missing with its rows, so no loss is counted for its time.
- A file that this user may not read is not set aside: it ends the run, and the batch is repeated.
- Columns beyond those of ``RECORDED`` are left out.
- Captures of tcpdump in the input directory itself are ingested as the record of the host they are named after
  (``source.captures``). A capture that is cut off is ingested as far as it can be read.
- Except for the marks, rows are not judged here; that is done by ``analyse``.
- On one machine plain files are ingested by columns (``takeover``). Spark reads all others.
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bccnd.errors import ConfigError, RefusedError
from bccnd.pipeline import storage, takeover
from bccnd.pipeline.layout import RECORDED, TRAFFIC, Output
from bccnd.pipeline.source.inputs import MAYBE_TAKEN, Inputs, Plan
from bccnd.recorder.layout import Direction, Mark

# Recorded files, and finished captures; one that tcpdump still writes must lie elsewhere.
FILES = ("date=*/host=*/*.parquet", "{*.pcap,*.pcapng,*.pcap.gz,*.pcapng.gz}")
# A kill costs at most one batch of work. More files a batch make fewer and larger files: 6,000 of 200 hosts
# became 960 in half the time of batches of 500.
FILES_PER_BATCH = 2000
# Between two listings of the input directory.
CONTINUOUS_SECONDS = 10
# Characters of Spark's message.
REASON_LIMIT = 500
GONE = "is gone: deleted between listing and reading"
DENIED = "Permission denied"
NOT_CLOSED = "does not end with the mark 'closed'"

_FAILURES = (PySparkException, Py4JError)


class Batch(NamedTuple):
    """The result of one batch: its number, its rows, its whole files, and the files set aside, with the reason."""

    number: int
    rows: int
    files: int
    rejected: list[tuple[str, str]]


def recorded(spark: SparkSession, source: str, files: list[str]) -> DataFrame:
    """``RECORDED`` rows of ``files`` below ``source``, and (file, capture); a mark says why a capture is broken."""
    whole = [file for file in files if file.endswith(".parquet")]
    rows = (
        spark.read.schema(RECORDED)
        .option("basePath", source)
        .parquet(*whole)
        .withColumns({"file": F.col("_metadata.file_path"), "capture": F.lit(False)})
        if whole
        else spark.createDataFrame([], f"{RECORDED}, file string, capture boolean")
    )
    if captured := [file for file in files if not file.endswith(".parquet")]:
        # Only now: its executors need bccnd, and to register takes a second of a run without captures.
        from bccnd.pipeline.source import register
        from bccnd.pipeline.source.captures import captures

        register(spark)
        return rows.unionByName(captures(spark, captured).withColumn("capture", F.lit(True)))
    return rows


def taken_over(rows: DataFrame) -> DataFrame:
    """``RECORDED`` -> ``TRAFFIC`` without ``batch``: the sequence number split into ``word`` and ``bit``."""
    # As a bigint less 2^63, so that every number fits and its bits are shifted: to divide decimals takes longer than
    # to read all columns.
    shifted = rows.withColumn("shifted", F.expr("CAST(seq - 9223372036854775808BD AS bigint)"))
    word = F.expr("shiftrightunsigned(shifted ^ shiftleft(1L, 63), 6)")
    split = shifted.withColumns({"word": word, "bit": F.expr("CAST(shifted & 63 AS int)")})
    if "capture" not in rows.columns:
        split = split.withColumn("capture", F.lit(None).cast("boolean"))
    fields = [column.split()[0] for column in TRAFFIC.replace("(20,0)", "").split(", ")]
    return split.select(
        *(name for name in fields if name != "batch"), *(["file"] if "file" in rows.columns else [])
    )


def ingest(
    spark: SparkSession,
    source: str,
    output: Output,
    on_batch: Callable[[Batch], None],
    *,
    continuous: bool = False,
) -> None:
    """Ingest the files below ``source``: those that are there, or with ``continuous`` all to come, until interrupted.

    ``on_batch`` is called after each batch. Raises ConfigError for a ``source`` that is no directory, and for an
    ``output`` with traffic but without its checkpoint, or with another: everything would be ingested a second time.
    """
    if not storage.exists(spark, source):
        raise ConfigError(f"{source}: no such directory; give the one that bccnd-record writes to")
    if storage.batches(spark, output) and not storage.exists(spark, output.checkpoint):
        raise ConfigError(
            f"{output.root}: has traffic/ but no checkpoint/, which says what was ingested; "
            "move traffic/ away, or give another --output"
        )

    inputs = Inputs(spark, source, FILES, output.checkpoint)
    if beyond := [batch for batch in storage.all_batches(spark, output)[0] if not inputs.knows(batch.last)]:
        raise ConfigError(
            f"{output.checkpoint}: does not know of {beyond[-1].path}, so it is not of this traffic/, or older; "
            "bring the one that is, or move both away"
        )
    while True:
        while (plan := inputs.plan(FILES_PER_BATCH)) is not None:
            on_batch(_written(spark, source, plan, output))
            inputs.done(plan)
        if not continuous:
            return
        time.sleep(CONTINUOUS_SECONDS)


def _written(spark: SparkSession, source: str, plan: Plan, output: Output) -> Batch:
    """Write one batch of files. Only if that fails are the files examined one by one."""
    number, files, doubtful = plan
    rejected = dict.fromkeys(doubtful, MAYBE_TAKEN)
    path = output.batch(number)
    good = files
    try:
        rows, whole, broken = _write(spark, source, good, path)
    except _FAILURES:
        rejected |= {file: GONE for file in files if not storage.exists(spark, file)}
        good = [file for file in files if file not in rejected]
        unreadable = dict(_unreadable(spark, source, good))
        if not unreadable and len(good) == len(files):
            raise
        if denied := [file for file, reason in unreadable.items() if DENIED in reason]:
            more = f", and {len(denied) - 1:,} more" * (len(denied) > 1)
            raise RefusedError(
                f"{denied[0]}: permission denied{more}; nothing is set aside, run it again"
            ) from None
        rejected |= unreadable
        good = [file for file in good if file not in rejected]
        rows, whole, broken = _write(spark, source, good, path)
    rejected |= {file: NOT_CLOSED for file in good if file not in whole} | broken
    if len(whole) < len(good):
        rows, whole, broken = _write(spark, source, sorted(whole), path)
    if rejected:
        paths, reasons = zip(*sorted(rejected.items()), strict=True)
        table = storage.of_strings(spark, {"path": paths, "reason": reasons}).coalesce(1)
        table.write.mode("overwrite").parquet(f"{output.rejected_files}/batch={number}")
    return Batch(number, rows, len(whole), sorted(rejected.items()))


def _write(
    spark: SparkSession, source: str, files: list[str], path: str
) -> tuple[int, set[str], dict[str, str]]:
    """Replace the directory by the rows of these files. Returns how many there were, the files that are whole, and
    the captures that are broken, with the reason.
    """
    if (taken := takeover.taken_over(spark, source, files, path)) is not None:
        return taken, {*files}, {}
    seen = Observation()
    is_closed, is_broken = (
        (F.col("direction") == Direction.MARK) & (F.col("verdict") == kind)
        for kind in (Mark.CLOSED, "broken")
    )
    fault = F.struct("file", F.col("payload").cast("string").alias("reason"))
    observed = taken_over(recorded(spark, source, files)).observe(
        seen,
        F.count_if(~is_broken).alias("rows"),
        F.collect_set(F.when(is_closed, F.col("file"))).alias("whole"),
        F.collect_set(F.when(is_broken, fault)).alias("broken"),
    )
    observed.where(~is_broken).drop("file").write.mode("overwrite").partitionBy("date", "host").parquet(path)
    found = seen.get
    broken = {_as_listed(each["file"]): each["reason"] for each in found["broken"]}
    return int(found["rows"]), {_as_listed(file) for file in found["whole"]} | broken.keys(), broken


def _as_listed(file: str) -> str:
    """The path of a file as ``listed`` gives it. Rows carry a URL, those of captures a path."""
    return (
        re.sub("^(file:)?/+", "file:/", unquote(file))
        if file[:1] == "/" or file.startswith("file:")
        else unquote(file)
    )


def _unreadable(spark: SparkSession, source: str, files: list[str]) -> Iterator[tuple[str, str]]:
    """Those of ``files`` that cannot be read to their end, and why; found by bisection."""
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
    """The cause of what Spark raised, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by:")]
    line = (causes or lines or [type(error).__name__])[-1 if causes else 0]
    return re.sub(r"^([\w$]+\.)+", "", line)[:REASON_LIMIT]
