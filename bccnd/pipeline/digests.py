"""Digests: what the tables need of the rows of each batch, made once and kept. Rows are many, and never change.

    traffic/batch=0 ... batch=8              rows, as ingested
    traffic/_digests/1/batch=0-5/<kind>      what the tables need of the rows of the batches 0 to 5
    traffic/_digests/1/batch=6-7/<kind>      the same of 6 and 7; of 8 there is too little yet

Rules
- A digest counts once its directory has ``_SUCCESS``, which is written last, until a larger digest that holds it has
  ``_SUCCESS``, too. The next ``analyse`` removes what a killed one left. Only ``analyse`` reads digests.
- The tables are the same, whatever was digested before. Digests are sums, extremes and sets of bits, which can be
  combined in any order, and rows whose choice depends on each row alone.
- New batches are digested for good once there are BYTES of them, and once they will not be written again: ``ingest``
  may write a killed batch again. For other batches, each ``analyse`` makes a digest anew.
- A new digest takes in the digests just before it that hold no more batches than itself. So there are few digests,
  with sizes that double, and their contents are written again only a few times.
- Batches that ``maintain`` merges stay digested: the rows are the same. If digests hold only a part of a merged
  batch, it is digested anew.
- On one machine a batch is digested in two passes, by columns (``columnar``), and where there is little, by the
  driver. On a cluster each kind is made of the rows by Spark, with the same result.
- A digest is exact to the minute; who heard whom is exact to the hour. The margins around the time that is analysed
  are read from the rows.
- A digest holds the date of its rows, and whether tcpdump recorded them. Rows that are too old, or were recorded
  twice, are left out when it is read.
- A change of FORM makes all digests anew.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import channels, columnar, coverage, latency, liveness, rejected, segments, storage, words
from bccnd.pipeline.layout import DIGESTS, Output
from bccnd.pipeline.source import inputs
from bccnd.pipeline.storage import Batch
from bccnd.pipeline.times import HOUR_NS, SECOND_NS

FORM = 3
# As much as a million rows without payloads.
BYTES = 16 << 20
# Of less, to start Python for Spark's tasks takes longer than it saves.
DRIVER_BYTES = 4 << 20
# What a task digests.
TASK_BYTES = 64 << 20
# The directory of the digest that is made anew.
FEW = "few"


class Digests(NamedTuple):
    """Of all that was ingested: ``rows`` (``TRAFFIC``), and what was made of them by the modules of these names."""

    rows: DataFrame
    marks: DataFrame  # coverage
    words: DataFrame
    heard: DataFrame  # segments
    sizes: DataFrame  # channels
    beats: DataFrame  # liveness
    rejected: DataFrame
    sample: DataFrame  # latency
    parts: "Parts | None" = None

    def each(self, change: Callable[[str, DataFrame], DataFrame]) -> "Digests":
        made = (change(name, getattr(self, name)) for name in ("rows", *KINDS))
        return Digests._make([*made, self.parts])

    def during(self, since_ns: int | None, until_ns: int | None, margin_ns: int) -> "Digests":
        """What belongs to that time, of whole minutes, or to so much time before and after it, which rows tell."""
        first_ns = None if since_ns is None else since_ns - margin_ns
        last_ns = None if until_ns is None else until_ns + margin_ns

        def cut(name: str, frame: DataFrame) -> DataFrame:
            if name not in _OF_MINUTES:
                began, ended = _TIMES.get(name, ("time_ns", "time_ns"))
                return _between(frame, began, ended, first_ns, last_ns)
            frame = _between(frame, *_OF_MINUTES[name], since_ns, until_ns)
            limited = since_ns is not None or until_ns is not None
            return (
                frame.unionByName(self.of_margins(name, since_ns, until_ns, margin_ns)) if limited else frame
            )

        return self.each(cut)

    def of_margins(self, name: str, since_ns: int | None, until_ns: int | None, margin_ns: int) -> DataFrame:
        """The digest of the rows before and after that time."""
        edges = F.lit(False)
        if since_ns is not None:
            edges |= F.col("time_ns").between(since_ns - margin_ns, since_ns - 1)
        if until_ns is not None:
            edges |= F.col("time_ns").between(until_ns, until_ns + margin_ns - 1)
        return KINDS[name](self.rows.where(edges))


class Parts(NamedTuple):
    """Where all digests lie, if they lie on this machine."""

    folders: Sequence[Path]
    since: str  # the first date that counts, or nothing

    def count(self, name: str) -> int:
        return sum(pq.ParquetFile(file).metadata.num_rows for file in self._files(name))

    def tables(self, name: str, *conditions: pc.Expression) -> Iterator[pa.Table]:
        """The digests in these folders, as far as they meet the conditions: some rows at a time, with strings as
        places in dictionaries.
        """
        schema, where = columnar.schema(name), list(conditions)
        if self.since:
            where.append(pc.field("date") >= self.since)
        strings = [field.name for field in schema if field.type == pa.string()]
        yield columnar.coded(schema).empty_table()
        for file in self._files(name):
            with pq.ParquetFile(file, read_dictionary=strings, page_checksum_verification=True) as parquet:
                for batch in parquet.iter_batches(columnar.ROWS, use_threads=False):
                    table = pa.Table.from_batches([batch])
                    yield table.filter(reduce(and_, where)) if where else table

    def table(self, name: str, *conditions: pc.Expression) -> pa.Table:
        """``tables`` in one."""
        schema = columnar.schema(name)
        return pa.concat_tables(table.cast(schema) for table in self.tables(name, *conditions))

    def _files(self, name: str) -> list[Path]:
        return [file for folder in self.folders for file in sorted((folder / name).glob("*.parquet"))]


# When what a row stands for began and ended.
_TIMES = {
    "heard": (f"hour * {HOUR_NS}", f"(hour + 1) * {HOUR_NS} - 1"),
    "sizes": (f"second * {SECOND_NS}", f"(second + 1) * {SECOND_NS} - 1"),
}
# Of these a row has much of its minute, so none may lie across a limit.
_OF_MINUTES = {"words": ("first_ns", "last_ns"), "rejected": ("first", "last")}


def _between(
    frame: DataFrame, began: str, ended: str, since_ns: int | None, until_ns: int | None
) -> DataFrame:
    if since_ns is not None:
        frame = frame.where(F.expr(ended) >= since_ns)
    return frame if until_ns is None else frame.where(F.expr(began) < until_ns)


KINDS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "marks": coverage.digest,
    "words": words.digest,
    "heard": segments.digest,
    "sizes": channels.digest,
    "beats": liveness.digest,
    "rejected": rejected.digest,
    "sample": latency.digest,
}


def of(traffic: DataFrame) -> Digests:
    """The digests of rows that are there, which nothing keeps."""
    return _digests(traffic, _made(traffic))


def _digests(traffic: DataFrame, made: Mapping[str, DataFrame], parts: Parts | None = None) -> Digests:
    return Digests._make([_marked(traffic), *(made[name] for name in KINDS), parts])


def kept(spark: SparkSession, output: Output) -> Digests:
    """The digests of all whole batches, after those that are missing were written. Raises ConfigError without any."""
    whole, _ = storage.all_batches(spark, output)
    # After that: what is whole and not planned is written for good.
    planned = inputs.numbers(spark, output.checkpoint, inputs.PLANNED)
    batches = storage.counting(whole)
    every = storage.traffic(spark, output, batches)
    found = _clean(spark, output)
    done, new = selected(batches, found)
    for each in set(found) - set(done):
        storage.delete(spark, each.path)
    if sum(storage.size(spark, batch.path) for batch in new) >= BYTES:
        for run in [*runs(new, done, planned)]:
            taken = taken_up(done, run, batches)
            first, last = (taken or run)[0].first, run[-1].last
            made = Batch(first, last, True, f"{_folder(output)}/batch={first}-{last}")
            _write(spark, output, made.path, taken, run)
            new = [batch for batch in new if batch not in run]
            done = sorted([*(each for each in done if each not in taken), made])
            for each in taken:
                storage.delete(spark, each.path)
    few = f"{_folder(output)}/{FEW}"
    storage.delete(spark, few)
    parts = rows = None
    if (folder := _here(spark, few)) is not None:
        if new:
            _write_here(spark, output, folder, [], new)
            done = [*done, Batch(new[0].first, new[-1].last, False, few)]
        folders = [storage.on_this_machine(spark, each.path) or Path() for each in done]
        parts = Parts(folders, storage.kept_since(spark, output))
    elif new:
        rows = storage.traffic(spark, output, new)
    return _digests(every, _together(spark, output, done, rows), parts)


def _here(spark: SparkSession, path: str) -> Path | None:
    """The path, where Python may do it: the workers of a cluster have none, nor, perhaps, the files."""
    local = str(spark.sparkContext.master).startswith("local")
    return storage.on_this_machine(spark, path) if local else None


def selected(batches: Sequence[Batch], digests: Iterable[Batch]) -> tuple[list[Batch], list[Batch]]:
    """Those of the digests that are used, and the batches of which there is none."""
    used, new = storage.counting(digests), list[Batch]()
    while True:
        known = {number for each in used for number in range(each.first, each.last + 1)}
        new = [each for each in batches if not known.issuperset(range(each.first, each.last + 1))]
        # A digest of a part of it would count these rows twice.
        partial = [each for each in used if any(_share(each, batch) for batch in new)]
        if not partial:
            break
        used = [each for each in used if each not in partial]
    return [each for each in used if any(_share(each, batch) for batch in batches)], new


def runs(new: Sequence[Batch], done: Sequence[Batch], planned: Iterable[int]) -> Iterator[list[Batch]]:
    """Those of the new batches that are digested together: neighbours, none of them ``planned``."""
    planned = set(planned)
    run: list[Batch] = []
    for batch in new:
        final = planned.isdisjoint(range(batch.first, batch.last + 1))
        between = any(run[-1].last < each.first < batch.first for each in done) if run else False
        if run and (between or not final):
            yield run
            run = []
        if final:
            run.append(batch)
    if run:
        yield run


def taken_up(done: Sequence[Batch], run: Sequence[Batch], batches: Sequence[Batch]) -> list[Batch]:
    """The digests that go into that of ``run``: the last ones before it that hold no more batches than it does."""
    first, last = run[0].first, run[-1].last
    taken: list[Batch] = []
    for each in sorted(done, reverse=True):
        if each.last >= first:
            continue
        between = any(each.last < batch.first < first for batch in batches)
        if between or each.last - each.first > last - first:
            break
        taken.insert(0, each)
        first = each.first
    return taken


def _share(one: Batch, other: Batch) -> bool:
    return one.first <= other.last and other.first <= one.last


def _folder(output: Output) -> str:
    return f"{output.digests}/{FORM}"


def _clean(spark: SparkSession, output: Output) -> list[Batch]:
    """The digests that count; what else there is, is removed."""
    for name in storage.children(spark, output.digests):
        if name != str(FORM):
            storage.delete(spark, f"{output.digests}/{name}")
    paths = (f"{_folder(output)}/{name}" for name in storage.children(spark, _folder(output)))
    every = [batch for path in paths if (batch := Batch.at(path))]
    whole = storage.counting(each for each in every if storage.exists(spark, f"{each.path}/_SUCCESS"))
    for each in every:
        if each not in whole:
            storage.delete(spark, each.path)
    return whole


def _marked(traffic: DataFrame) -> DataFrame:
    return traffic.withColumn("capture", F.coalesce("capture", F.lit(False)))


def _made(traffic: DataFrame) -> dict[str, DataFrame]:
    rows = _marked(traffic)
    return {name: made(rows) for name, made in KINDS.items()}


def _together(
    spark: SparkSession, output: Output, done: Sequence[Batch], rows: DataFrame | None
) -> dict[str, DataFrame]:
    """What was digested and is not too old, and what is made of these rows."""
    made = {} if rows is None else _made(rows)
    if not done:
        return made
    since = storage.kept_since(spark, output)
    found = {}
    for name, columns in DIGESTS.items():
        read = spark.read.schema(columns).parquet(*(f"{each.path}/{name}" for each in done))
        kept_still = read.where(F.col("date") >= since) if since else read
        found[name] = kept_still.unionByName(made[name]) if made else kept_still
    return found


def _write(
    spark: SparkSession, output: Output, path: str, taken: Sequence[Batch], run: Sequence[Batch]
) -> None:
    """Write the digest of the batches ``run``, and of what was ``taken`` up."""
    storage.delete(spark, path)
    if folder := _here(spark, path):
        _write_here(spark, output, folder, taken, run)
    else:
        for name, frame in _together(spark, output, taken, storage.traffic(spark, output, run)).items():
            if name == "sample":
                written = spark.read.schema(DIGESTS["words"]).parquet(f"{path}/words")
                frame = latency.sample(frame, words.rows(written))
            frame.write.parquet(f"{path}/{name}")
    storage.write_text(spark, f"{path}/_SUCCESS", "")


def _write_here(
    spark: SparkSession, output: Output, folder: Path, taken: Sequence[Batch], run: Sequence[Batch]
) -> None:
    here = [storage.on_this_machine(spark, batch.path) or Path() for batch in run]
    since = storage.kept_since(spark, output)
    found = [file for path in here for file in path.glob("date=*/host=*/[!._]*.parquet")]
    found = [file for file in found if file.parent.parent.name >= f"date={since}"]
    # The largest first, so that tasks have about the same to do.
    found.sort(key=lambda file: (-file.stat().st_size, file))
    bytes_in_all = sum(file.stat().st_size for file in found)
    little = bytes_in_all < DRIVER_BYTES
    of = 1 if little else max(spark.sparkContext.defaultParallelism, bytes_in_all // TASK_BYTES)
    folders = [str(storage.on_this_machine(spark, each.path)) for each in taken]
    tasks = [
        columnar.Task([str(file) for file in found], folders, since, str(folder), number, of)
        for number in range(of)
    ]

    def done(kinds: list[str], apart: int = 1) -> int:
        if little:
            return sum(task.write(kinds, apart) for task in tasks)
        jobs = spark.sparkContext.parallelize(tasks, of)
        return sum(jobs.map(lambda task: task.write(kinds, apart)).collect())

    numbered = done([kind for kind in KINDS if kind != "sample"])
    done(["sample"], latency.apart(numbered))
