"""Keeps ``traffic/`` small: merges its many small files, and removes the traffic of old days.

    batch=0 batch=1 ... batch=11     as ingested: each has a file for each host
    batch=0-11                       the same rows, merged; once it has _SUCCESS, the others no longer count
    _since=2026-01-24                what is earlier no longer counts

Rules
- A kill at any point leaves the same rows that count. What stops to count does so at once, by one name that appears,
  and is removed after that. Whatever a kill leaves, the next ``maintain`` takes up.
- What no longer counts is removed GRACE_SECONDS later, and never under ``analyse`` or ``report`` (``locks``): whoever
  listed the files before reads them to the end. Programs that read ``traffic/`` for longer than that may miss files.
- Batches are merged if that halves their files at least, so a row is not written again each time. At most MERGE_BYTES
  are merged at once: a kill costs no more work than that.
- A batch that ``ingest`` may write again, because it was killed, is left alone (``inputs.settled``), and so is one of
  an earlier bccnd-pipeline that was killed: the next ``ingest`` gives its number to other files.
- The tables follow with the next ``analyse``.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import date, timedelta
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import storage
from bccnd.pipeline.layout import TRAFFIC, Output
from bccnd.pipeline.source import inputs
from bccnd.pipeline.storage import Batch

# Whoever listed files has opened all of them after that, unless it reads for hours.
GRACE_SECONDS = 3600.0
# Of one merge, which is a shuffle on disk.
MERGE_BYTES = 4 << 30
# A file of a host and a day needs to be no larger.
FILE_BYTES = 128 << 20
_DATA = "date=*/host=*/*.parquet"


class Size(NamedTuple):
    """What a batch holds: bytes, files, and the folders of days and hosts that they are in."""

    batch: Batch
    size: int
    files: int
    folders: frozenset[str]


def maintain(
    spark: SparkSession,
    output: Output,
    keep_from: date | None,
    say: Callable[[str], None],
    *,
    alone: Callable[[], AbstractContextManager[bool]],
) -> None:
    """Merge batches, and remove traffic from before ``keep_from`` and what no longer counts.

    ``say`` is called with a line for each thing done. ``alone``: whether nobody reads, and begins to until it ends
    (``locks.removing``).
    """
    if keep_from is not None:
        _forget(spark, output, keep_from.isoformat(), say)
    _remove_leftovers(spark, output)
    for group in groups(_sizes(spark, output)):
        before = sum(each.files for each in group)
        first, last = group[0].batch.first, group[-1].batch.last
        _merge(spark, output, [each.batch for each in group])
        after = len(storage.found(spark, _merged(output, first, last), _DATA))
        say(f"maintain: merged batches {first} to {last}, {before:,} files into {after:,}")
    remover = _Remover(spark, alone)
    _remove(spark, output, remover, say)
    if remover.disturbs:
        say("maintain: somebody reads (analyse or report), so the rest goes with the next maintain")


def groups(sizes: Iterable[Size]) -> Iterator[list[Size]]:
    """Neighbours that are worth merging, in order."""
    group: list[Size] = []
    for each in sizes:
        if group and not _goes_with(group, each):
            if _is_worth_it(group):
                yield group
            group = []
        group.append(each)
    if _is_worth_it(group):
        yield group


def _goes_with(group: Sequence[Size], more: Size) -> bool:
    """Whether they share folders, so that files become fewer, and are not too large together."""
    known = frozenset[str]().union(*(each.folders for each in group))
    shared = len(known & more.folders)
    fits = sum(each.size for each in group) + more.size <= MERGE_BYTES
    return fits and 2 * shared >= min(len(known), len(more.folders))


def _is_worth_it(group: Sequence[Size]) -> bool:
    if not group or (len(group) == 1 and group[0].batch.merged):
        return False
    folders = len(frozenset[str]().union(*(each.folders for each in group)))
    least = folders + sum(each.size for each in group) // FILE_BYTES
    return sum(each.files for each in group) >= 2 * max(1, least)


def _sizes(spark: SparkSession, output: Output) -> Iterator[Size]:
    whole, _ = storage.all_batches(spark, output)
    # After that: what was written meanwhile is not among them.
    settled = inputs.settled(spark, output.checkpoint)
    since = storage.kept_since(spark, output)
    for batch in storage.counting(whole):
        if not _is_settled(batch, settled):
            continue
        found = [path.rsplit("/", 3)[1:3] for path in storage.found(spark, batch.path, _DATA)]
        kept = ["/".join(folders) for folders in found if folders[0] >= f"date={since}"]
        if kept:
            yield Size(batch, storage.size(spark, batch.path), len(kept), frozenset(kept))


def _is_settled(batch: Batch, settled: Callable[[int], bool]) -> bool:
    return all(map(settled, range(batch.first, batch.last + 1)))


def _merge(spark: SparkSession, output: Output, group: Sequence[Batch]) -> None:
    rows = (
        spark.read.schema(TRAFFIC)
        .option("basePath", output.traffic)
        .parquet(*(batch.path for batch in group))
        .drop("batch")
    )
    if since := storage.kept_since(spark, output):
        rows = rows.where(F.col("date") >= since)
    # Rebalanced, a host with much becomes several files, and tasks with little are put together.
    rows = rows.hint("rebalance", "date", "host").sortWithinPartitions("date", "host", "time_ns")
    path = _merged(output, group[0].first, group[-1].last)
    rows.write.mode("overwrite").partitionBy("date", "host").parquet(path)


def _merged(output: Output, first: int, last: int) -> str:
    return output.at("traffic", f"batch={first}-{last}")


def _forget(spark: SparkSession, output: Output, since: str, say: Callable[[str], None]) -> None:
    """Let nothing from before this date count any more."""
    if since > storage.kept_since(spark, output):
        storage.write_text(spark, output.at("traffic", f"{storage.KEPT_SINCE}{since}"), "")
        say(f"maintain: traffic is kept since {since}")
    for name in storage.children(spark, output.traffic):
        if name.startswith(storage.KEPT_SINCE) and name.removeprefix(storage.KEPT_SINCE) < since:
            storage.delete(spark, output.at("traffic", name))


def _remove_leftovers(spark: SparkSession, output: Output) -> None:
    """Delete what a ``maintain`` that was killed began to merge or to remove; what ``ingest`` began is its own."""
    begun = storage.all_batches(spark, output)[1]
    # After that, as ``ingest`` notes a batch before it begins it, and until it is whole.
    settled = inputs.settled(spark, output.checkpoint)
    for batch in begun:
        in_part = settled(batch.first) and not storage.exists(spark, f"{batch.path}/_SUCCESS")
        if batch.merged or in_part:
            storage.delete(spark, batch.path)


class _Remover:
    """Deletes what nobody reads. As soon as somebody does, it deletes nothing more: ``disturbs``."""

    def __init__(self, spark: SparkSession, alone: Callable[[], AbstractContextManager[bool]]) -> None:
        self._spark = spark
        self._alone = alone
        self.disturbs = False

    def __call__(self, *paths: str) -> bool:
        """Whether they are deleted now."""
        if not self.disturbs:
            # For each anew: who wants to read waits no longer than for one.
            with self._alone() as alone:
                self.disturbs = not alone
                for path in paths if alone else ():
                    storage.delete(self._spark, path)
        return not self.disturbs


def _remove(spark: SparkSession, output: Output, remover: _Remover, say: Callable[[str], None]) -> None:
    """Delete what no longer counts, if that is so for long enough."""
    whole, _ = storage.all_batches(spark, output)
    settled = inputs.settled(spark, output.checkpoint)
    counting, old = storage.counting(whole), time.time() - GRACE_SECONDS
    waiting = removed = 0
    for batch in set(whole) - set(counting):
        holder = next(each for each in counting if each.holds(batch))
        if storage.modified(spark, f"{holder.path}/_SUCCESS") > old:
            waiting += 1
        elif remover(batch.path):
            removed += 1
    if removed:
        say(f"maintain: removed {removed:,} batches that were merged")
    if waiting:
        say(f"maintain: {waiting:,} merged batches go with a maintain in an hour or later")
    if since := storage.kept_since(spark, output):
        if storage.modified(spark, output.at("traffic", f"{storage.KEPT_SINCE}{since}")) <= old:
            done = [batch for batch in counting if _is_settled(batch, settled)]
            _remove_days(spark, output, remover, done, since, say)
        else:
            say(f"maintain: what is older than {since} goes with a maintain in an hour or later")


def _remove_days(
    spark: SparkSession, output: Output, remover: _Remover, batches: Sequence[Batch], since: str,
    say: Callable[[str], None],
) -> None:  # fmt: skip
    days = set()
    for batch in batches:
        dates = [name for name in storage.children(spark, batch.path) if name.startswith("date=")]
        gone = [name for name in dates if name.removeprefix("date=") < since]
        if dates and len(gone) == len(dates):
            # What was set aside belongs to what is no longer there.
            set_aside = (f"{output.rejected_files}/batch={n}" for n in range(batch.first, batch.last + 1))
            paths = [[batch.path, *set_aside]]
        else:
            paths = [[f"{batch.path}/{name}"] for name in gone]
        if all(remover(*each) for each in paths):
            days.update(gone)
    if days:
        named = sorted(name.removeprefix("date=") for name in days)
        say(f"maintain: removed {len(named):,} days, {named[0]} to {named[-1]}")


def first_day(today: date, keep_days: int | None) -> date | None:
    """The first of so many days that are kept beside today; None keeps all."""
    return None if keep_days is None else today - timedelta(days=keep_days)
