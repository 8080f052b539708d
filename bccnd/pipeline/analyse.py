"""Makes all tables of what was ingested.

Rules
- What the tables need of the rows of a batch is made once and kept beside the traffic (``digests``). Rows are read
  again only for what cannot be known of a batch alone: in what order the messages of suspects came, and the channels
  of sources without a record of their own.
- ``--since`` and ``--until`` are of whole minutes, as digests are. Of the margins beyond them rows are read.
- The tables are written to a directory of their own and replace the old ones together (``versions``). So a report is
  of one run, and a run that is killed leaves the tables of the run before.
- What links between segments ask for is done only where a record tells of one.
- Tables are made of rows, a time, and this program. Where all of them are what they were, the tables are left as they
  are.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import bccnd
from bccnd.errors import ConfigError
from bccnd.pipeline import (
    channels,
    copies,
    coverage,
    delivery,
    digests,
    drops,
    in_memory,
    latency,
    links,
    liveness,
    loss,
    rejected,
    relays,
    reordering,
    segments,
    steps,
    storage,
    versions,
    words,
)
from bccnd.pipeline.digests import Digests, Parts
from bccnd.pipeline.in_memory import SAMPLED, WORDS, InMemory
from bccnd.pipeline.layout import MARGIN_NS, TABLES, VIA, Output
from bccnd.pipeline.progress import Progress
from bccnd.pipeline.source import inputs
from bccnd.pipeline.times import HOUR_NS, MINUTE_NS, SECOND_NS, date

# Of Spark, or made in memory.
Table: TypeAlias = DataFrame | pa.Table

_ADAPTIVE = "spark.sql.adaptive.enabled"
SLOT_NS = 10 * SECOND_NS
# A record shorter than this has slots of a second.
SHORT_NS = HOUR_NS
SHORT_SLOT_NS = SECOND_NS


class Span(NamedTuple):
    """A time from ``since_ns`` to ``until_ns``, in nanoseconds since 1970; None is without limit."""

    since_ns: int | None = None
    until_ns: int | None = None

    def of_minutes(self) -> "Span":
        """The whole minutes that have a part in it."""
        return Span(
            None if self.since_ns is None else self.since_ns // MINUTE_NS * MINUTE_NS,
            None if self.until_ns is None else -(-self.until_ns // MINUTE_NS) * MINUTE_NS,
        )

    def widened(self, margin_ns: int) -> "Span":
        return Span(
            None if self.since_ns is None else self.since_ns - margin_ns,
            None if self.until_ns is None else self.until_ns + margin_ns,
        )


class Keeping:
    """Keeps frames that are used again, so that each is computed once.

    Spark plans a query from everything that its frames were made of, even if they are persisted. On one machine a
    frame is cut off from that, which saves a quarter of the time. A frame that was cut off cannot be computed again
    when an executor is lost, so on a cluster it is persisted.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._cuts = re.match(r"local(\[|$)", str(spark.conf.get("spark.master"))) is not None
        self._conf = spark.conf
        self._persisted: list[DataFrame] = []

    def __call__(self, frame: DataFrame) -> DataFrame:
        if self._cuts:
            return frame.localCheckpoint(eager=False)
        self._persisted.append(frame.persist())
        return frame

    def placed(self, frame: DataFrame) -> DataFrame:
        """Keep ``frame`` with what Spark knows of where its rows are, so that they need not move to be grouped.

        Where a frame is cut off, that is forgotten of plans that adapt themselves while they run.
        """
        adapts = str(self._conf.get(_ADAPTIVE))
        self._conf.set(_ADAPTIVE, "false" if self._cuts else adapts)
        try:
            return self(frame)
        finally:
            self._conf.set(_ADAPTIVE, adapts)

    def release(self) -> None:
        """Unpersist the frames; those that were cut off go when nothing refers to them."""
        for frame in self._persisted:
            frame.unpersist()


def analyse(spark: SparkSession, output: Output, span: Span, progress: Progress) -> None:
    """Write all ``TABLES`` below ``output.tables``. Raises ConfigError if nothing was ingested or recorded then."""
    made_of = _made_of(spark, output, span.of_minutes())
    if made_of and made_of == versions.made_of(spark, output):
        progress.say("analyse: nothing is new, the tables stay")
        return
    version = versions.begin(spark, output)
    keep = Keeping(spark)
    with progress.step("analyse: rows"):
        found = digests.kept(spark, output)
    try:
        made = tables(found, span, keep)
        for number, name in enumerate(TABLES, 1):
            with progress.step(f"analyse {number}/{len(TABLES)}: {name}"):
                _write(spark, next(made), f"{version}/{name}", name)
    finally:
        keep.release()
    versions.publish(spark, output, version, made_of)


def _write(spark: SparkSession, table: Table, path: str, name: str) -> None:
    if isinstance(table, pa.Table):
        if (folder := storage.on_this_machine(spark, path)) is not None:
            in_memory.write(table, folder)
            return
        table = spark.createDataFrame(table)
    typed(table, name).write.parquet(path)


def _made_of(spark: SparkSession, output: Output, span: Span) -> str:
    """All that the tables depend on, as a hash; empty while a batch may be written again."""
    batches = storage.counting(storage.all_batches(spark, output)[0])
    planned = inputs.numbers(spark, output.checkpoint, inputs.PLANNED)
    if any(batch.first <= number <= batch.last for batch in batches for number in planned):
        return ""
    # A batch never changes. Another of the same name was written at another time.
    rows = [(batch.path, storage.modified(spark, f"{batch.path}/_SUCCESS")) for batch in batches]
    hashed = hashlib.sha256(repr((rows, storage.kept_since(spark, output), span, spark.version)).encode())
    for file in sorted(Path(bccnd.__file__).parent.rglob("*.py")):
        hashed.update(file.read_bytes())
    return hashed.hexdigest()


def typed(table: DataFrame, name: str) -> DataFrame:
    """``table`` with the columns of ``TABLES[name]``, in their order and types."""
    columns = table.sparkSession.createDataFrame([], TABLES[name]).schema.fields
    return table.select(*(F.col(f"`{field.name}`").cast(field.dataType) for field in columns))


def tables(found: Digests, span: Span, keep: Keeping) -> Iterator[Table]:
    """The tables in the order of ``TABLES``."""
    span = span.of_minutes()
    seen_span = span.widened(MARGIN_NS)
    days = found.each(lambda _, frame: _of_days(frame, seen_span))
    days = days._replace(marks=keep(days.marks))
    covered = keep(coverage.coverage(days.marks, *seen_span))
    twice = coverage.captured_twice(covered)
    days = days.each(lambda _, frame: coverage.counted(frame, twice))
    stretches = keep(coverage.stretches(days.marks, covered))
    during = days.during(*span, MARGIN_NS)
    span_ns, recorded, linked = _extent(covered)
    # Slots of ten seconds would leave out too much at the ends of a short record.
    slot_ns = SHORT_SLOT_NS if span_ns < SHORT_NS else SLOT_NS
    yield covered

    held = None if linked else _held(found.parts, span, seen_span, twice, stretches, slot_ns)
    if held is not None:
        yield from _tables_in_memory(
            held, during, covered, stretches, recorded, steps.seconds_of(span_ns), keep
        )
        return

    relayed = relays.relays(days.marks, recorded, keep) if linked else None
    if relayed:
        during = during._replace(words=relayed.words(during.words), beats=relayed.beats(during.beats))
    numbers = keep.placed(words.of(during.words, slot_ns))
    seen = keep(loss.seen(numbers))
    gaps = keep(loss.gaps(seen, stretches))
    # Of what is relayed, the numbers alone do not tell.
    yield loss.sources(
        seen, gaps.where(~F.col("src").contains(VIA)) if relayed else gaps, words.resent(numbers)
    )

    owned = keep(delivery.owners(delivery.present(numbers)))
    sampled = latency.sample(during.sample, words.rows(numbers))
    if relayed:
        sampled = keep(relayed.sample(sampled))
        gaps = keep(relayed.gaps(gaps))
    delayed = keep(latency.delays(sampled, owned))
    fastest = keep(latency.fastest(delayed))
    offsets = keep(latency.offsets(fastest))
    talk = keep(during.heard)
    heard = keep(segments.heard(relayed.heard(talk) if relayed else talk))
    known = keep(segments.addresses(heard, owned))
    places = [*segments.segments(segments.edges(heard, owned, known), recorded)]
    connected = segments.frame(covered, places)
    receivers = keep(delivery.pairs(owned, connected, stretches, offsets))
    sent = keep(delivery.sent(numbers, owned))
    matched = keep(delivery.matched(sent, delivery.received(numbers, sent), receivers, slot_ns))
    left_out = relayed.left_out if relayed else None
    guessed = keep(delivery.by_gaps(gaps, sent, owned, stretches, offsets, left_out))
    by_minute = keep(delivery.by_minute(matched, slot_ns))
    minutes = keep(delivery.counted(by_minute, guessed))
    yield delivery.minutes(minutes)
    bursts = keep(delivery.bursts(matched, sent, slot_ns).unionByName(delivery.guessed_bursts(guessed)))
    yield delivery.episodes(minutes, keep(delivery.outages(bursts)))
    yield delivery.delivery(minutes, bursts, latency.latency(delayed, fastest))
    yield delivery.by_source(delivery.sums(matched, slot_ns), guessed)
    yield delivery.senders(matched, slot_ns)
    yield copies.copies(by_minute)
    yield steps.steps(matched, guessed, minutes, slot_ns, steps.seconds_of(span_ns))
    yield from _tables_of_rows(during, talk, known, stretches, numbers, slot_ns, keep)
    yield links.links(during.marks, sampled, places, keep) if linked else links.frame(covered, [])


def _tables_in_memory(
    held: InMemory,
    during: Digests,
    covered: DataFrame,
    stretches: DataFrame,
    recorded: Sequence[str],
    seconds: int | None,
    keep: Keeping,
) -> Iterator[Table]:
    """The tables after the first, with what ``held`` finds in place of what Spark would; nothing is relayed."""
    yield held.sources()
    owned, offsets = keep(held.owned()), keep(held.offsets())
    talk = keep(during.heard)
    heard = keep(segments.heard(talk))
    known = keep(segments.addresses(heard, owned))
    connected = segments.frame(covered, segments.segments(segments.edges(heard, owned, known), recorded))
    made = held.matched(delivery.pairs(owned, connected, stretches, offsets), seconds)
    minutes, bursts, losses = held.frame(made.minutes), held.frame(made.bursts), made.losses
    guessed = None
    if (gaps := held.gaps()) is not None:
        guessed = keep(delivery.by_gaps(gaps, held.sent(), owned, stretches, offsets))
        bursts = bursts.unionByName(delivery.guessed_bursts(guessed))
        losses = delivery.by_source(held.frame(losses), guessed)
    minutes, bursts = keep(delivery.counted(minutes, guessed)), keep(bursts)
    yield delivery.minutes(minutes)
    yield delivery.episodes(minutes, keep(delivery.outages(bursts)))
    yield delivery.delivery(minutes, bursts, held.latency())
    yield losses
    yield made.senders
    yield made.copies
    worst = keep(steps.worst_pairs(minutes))
    drawn = [(row.sender, row.receiver) for row in worst.collect()] if seconds else []
    yield steps.together(held.steps(drawn), guessed, worst, seconds)
    yield from _tables_of_rows(during, talk, known, stretches, keep(held.late()), held.slot_ns, keep)
    yield links.frame(covered, [])


def _tables_of_rows(
    during: Digests,
    talk: DataFrame,
    known: DataFrame,
    stretches: DataFrame,
    numbers: DataFrame,
    slot_ns: int,
    keep: Keeping,
) -> Iterator[DataFrame]:
    """The tables from ``channels`` to ``reordering``. ``numbers``: of ``words.of``, what ``suspects`` asks for."""
    best = keep(channels.witnesses(talk))
    yield channels.channels(channels.sizes(best, during.sizes, during.rows), keep)
    yield liveness.silences(keep(liveness.beats(during.beats)), stretches, keep)
    yield rejected.rejected(during.rejected, known)
    yield drops.drops(during.marks)
    yield reordering.reordering(reordering.suspects(during.rows, during.marks, numbers), slot_ns)


def _held(
    parts: Parts | None,
    span: Span,
    seen_span: Span,
    twice: Sequence[str],
    stretches: DataFrame,
    slot_ns: int,
) -> InMemory | None:
    """The numbers in memory, as far as they are on this machine and not too many."""
    if parts is None or parts.rows("words") > WORDS or parts.rows("sample") > SAMPLED:
        return None
    host, capture, day = (pc.field(name) for name in ("host", "capture", "date"))
    where = [~(capture & host.isin(twice))] if twice else []
    if seen_span.since_ns is not None:
        where.append(day >= date(seen_span.since_ns))
    if seen_span.until_ns is not None:
        where.append(day <= date(seen_span.until_ns))
    found = {}
    for name, (began, ended), limits in (
        ("words", ("first_ns", "last_ns"), span),
        ("sample", ("time_ns", "time_ns"), seen_span),
    ):
        limited = list(where)
        if limits.since_ns is not None:
            limited.append(pc.field(ended) >= limits.since_ns)
        if limits.until_ns is not None:
            limited.append(pc.field(began) < limits.until_ns)
        found[name] = parts.table(name, *limited)
    if parts.several or span != Span():
        more = parts.rest.each(lambda _, frame: coverage.counted(_of_days(frame, seen_span), twice))
        more = more.during(*span, MARGIN_NS)
        for name, table in found.items():
            added = getattr(more, name).select(*table.column_names).toArrow().cast(table.schema)
            found[name] = pa.concat_tables([table, added])
    return InMemory(found["words"], found["sample"], stretches, slot_ns)


def _of_days(rows: DataFrame, span: Span) -> DataFrame:
    """What files of these days say; a file belongs to the day on which it begins."""
    if span.since_ns is not None:
        rows = rows.where(F.col("date") >= date(span.since_ns))
    if span.until_ns is not None:
        rows = rows.where(F.col("date") <= date(span.until_ns))
    return rows


def _extent(covered: DataFrame) -> tuple[int, list[str], bool]:
    """The time from the beginning of the first record to the end of the last, the hosts, and whether any tells of
    links.
    """
    rows = (
        covered.groupBy("host")
        .agg(F.min("from_ns").alias("first"), F.max("until_ns").alias("last"), F.sum("links").alias("links"))
        .collect()
    )
    if not rows:
        raise ConfigError("nothing was recorded in the time asked for (--since, --until)")
    span_ns = max(row.last for row in rows) - min(row.first for row in rows)
    return span_ns, [row.host for row in rows], any(row.links for row in rows)
