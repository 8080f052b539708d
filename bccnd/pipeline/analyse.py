"""Makes all tables of what was ingested.

Rules
- A digest holds what the tables need of the rows of a batch. It is made once, and kept beside the traffic
  (``digests``). Rows are read again only for what no single batch shows: in what order the messages of suspects came,
  and the channels of sources without a record of their own.
- ``--since`` and ``--until`` count in whole minutes, like digests. For the margins beyond them, rows are read.
- The tables are written to a new directory and replace the old ones together (``versions``). So a report shows one
  run, and a run that is killed leaves the tables of the run before.
- Work for links between segments is done only where a record has one.
- Tables depend on rows, a time span, and this program. If none of these has changed, the tables stay as they are.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

import bccnd
from bccnd.errors import ConfigError
from bccnd.pipeline import (
    channels,
    copies,
    coverage,
    delivery,
    digests,
    drops,
    guesses,
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
from bccnd.pipeline.in_memory import MOST, PAIR_MINUTES, InMemory
from bccnd.pipeline.layout import MARGIN_NS, TABLES, VIA, Output
from bccnd.pipeline.progress import Progress
from bccnd.pipeline.source import inputs
from bccnd.pipeline.times import HOUR_NS, MINUTE_NS, SECOND_NS, date

# Of Spark, or made in memory; None without rows, for which to ask Spark takes as long as for some.
Table: TypeAlias = DataFrame | pa.Table | None

_ADAPTIVE = "spark.sql.adaptive.enabled"
SLOT_NS = 10 * SECOND_NS
# A record shorter than this has slots of a second.
SHORT_NS = HOUR_NS
SHORT_SLOT_NS = SECOND_NS
# What is held in memory, when a row began and ended, and in what unit.
_HELD = {
    "words": ("first_ns", "last_ns", 1),
    "sample": ("time_ns", "time_ns", 1),
    "heard": ("hour", "hour", HOUR_NS),
}


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

    Spark plans a query from everything that its frames were made of, even if they are persisted, and writes that
    down with each query. So a frame is cut off from its origin. That saves a quarter of the time on one machine, and
    more than half of the driver's time on a cluster. On one machine the frame cannot be computed again then. On a
    cluster it can, since an executor may be lost with its rows: only the plan is cut off.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._on_cluster = _is_cluster(spark)
        self._spark = spark
        self._persisted: list[DataFrame] = []
        self._set: list[str] = []
        if self._on_cluster:
            # Spark computes a part of a frame when it is cut off, for no query: only so tasks have the settings.
            self._set = [key for key in spark.conf.getAll if key.startswith("spark.sql.")]
            for key in self._set:
                spark.sparkContext.setLocalProperty(key, str(spark.conf.get(key)))

    def __call__(self, frame: DataFrame) -> DataFrame:
        if not self._on_cluster:
            return frame.localCheckpoint(eager=False)
        rows, columns = frame._jdf.queryExecution().toRdd(), frame._jdf.schema()  # noqa: SLF001 - into the JVM
        cut = self._spark._jsparkSession.internalCreateDataFrame(rows, columns, False)  # noqa: SLF001
        return self._persist(DataFrame(cut, self._spark))

    def placed(self, frame: DataFrame) -> DataFrame:
        """Keep ``frame`` with what Spark knows of where its rows are, so that they need not move to be grouped.

        Where a frame is cut off, that is forgotten of plans that adapt themselves while they run, and on a cluster of
        all: there it keeps its plan.
        """
        if self._on_cluster:
            return self._persist(frame)
        adapts = str(self._spark.conf.get(_ADAPTIVE))
        self._spark.conf.set(_ADAPTIVE, "false")
        try:
            return self(frame)
        finally:
            self._spark.conf.set(_ADAPTIVE, adapts)

    def _persist(self, frame: DataFrame) -> DataFrame:
        self._persisted.append(frame.persist())
        return frame

    def release(self) -> None:
        """Unpersist the frames; those of one machine go when nothing refers to them."""
        for frame in self._persisted:
            frame.unpersist()
        for key in self._set:
            self._spark.sparkContext.setLocalProperty(key, None)  # type: ignore[arg-type]


def _is_cluster(spark: SparkSession) -> bool:
    return re.match(r"local(\[|$)", str(spark.conf.get("spark.master"))) is None


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
        made = tables(found, span, keep, progress.say)
        for number, name in enumerate(TABLES, 1):
            with progress.step(f"analyse {number}/{len(TABLES)}: {name}"):
                _write(spark, next(made), f"{version}/{name}", name)
    finally:
        keep.release()
    versions.publish(spark, output, version, made_of)


def _write(spark: SparkSession, table: Table, path: str, name: str) -> None:
    if table is None:
        table = in_memory.empty(name)
    if isinstance(table, pa.Table):
        if (folder := storage.on_this_machine(spark, path)) is not None:
            in_memory.write(table, folder)
            return
        table = spark.createDataFrame(table)
    typed(table, name).write.parquet(path)


def _made_of(spark: SparkSession, output: Output, span: Span) -> str:
    """A hash of everything that the tables depend on; empty while a batch may be written again."""
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
    columns = cast("StructType", StructType.fromDDL(TABLES[name]))
    return table.select(*(F.col(f"`{field.name}`").cast(field.dataType) for field in columns))


Stretches: TypeAlias = Mapping[str, Sequence[tuple[int, int]]]


class _Record(NamedTuple):
    """Who was recorded when: table ``coverage``, and ``coverage.stretches``, each of Spark or in memory.

    ``twice`` has hosts with a recorder and a capture, ``hosts`` all; ``span_ns`` is from the beginning of the first
    record to the end of the last. ``linked``: one of them tells of links.
    """

    covered: Table
    stretches: DataFrame | Stretches
    twice: Sequence[str]
    hosts: Sequence[str]
    span_ns: int
    linked: bool

    @property
    def slot_ns(self) -> int:
        """Slots of ten seconds would leave out too much at the ends of a short record."""
        return SHORT_SLOT_NS if self.span_ns < SHORT_NS else SLOT_NS

    @property
    def step_seconds(self) -> int | None:
        return steps.seconds_of(self.span_ns)


def tables(
    found: Digests, span: Span, keep: Keeping, say: Callable[[str], None] = lambda _: None
) -> Iterator[Table]:
    """The tables in the order of ``TABLES``; what was left aside for them, ``say`` is told."""
    span = span.of_minutes()
    seen_span = span.widened(MARGIN_NS)
    days = found.each(lambda _, frame: _of_days(frame, seen_span))
    if found.parts is None:
        days = days._replace(marks=keep(days.marks))
    whole = _record(days, found.parts, seen_span, keep)
    days = days.each(lambda _, frame: coverage.counted(frame, whole.twice))
    during = days.during(*span, MARGIN_NS)
    yield whole.covered

    held = None if whole.linked else _held(found.parts, whole, during, span, seen_span)
    if held is not None:
        yield from _tables_in_memory(held, during, whole, keep)
    else:
        relayed = relays.relays(days.marks, whole.hosts, keep) if whole.linked else None
        if relayed and (cut := relayed.cut).sources:
            say(
                f"analyse: too much was left out of {cut.sources:,} relayed sources to look at, "
                f"{cut.numbers:,} messages; gaps of these count as no loss"
            )
        yield from _tables_of_spark(during, relayed, whole, keep)


def _record(days: Digests, parts: Parts | None, seen_span: Span, keep: Keeping) -> _Record:
    """In memory where the marks are on this machine, and not too many."""
    if parts is not None and _fits(parts, "marks"):
        covered = coverage.covered(parts.table("marks", *_on_days(seen_span)), *seen_span)
        names = {"from_ns": "min", "until_ns": "max", "links": "sum"}
        found = covered.table.group_by("host").aggregate([*names.items()])
        rows = zip(
            *(found[name].to_pylist() for name in ("host", *(f"{n}_{how}" for n, how in names.items()))),
            strict=True,
        )
        table = in_memory.typed(covered.table, "coverage")
        return _of(rows, table, covered.stretches, covered.twice)
    table = keep(coverage.coverage(days.marks, *seen_span))
    found = table.groupBy("host").agg(F.min("from_ns"), F.max("until_ns"), F.sum("links")).collect()
    twice = coverage.captured_twice(table)
    stretches = keep(coverage.stretches(coverage.counted(days.marks, twice), table))
    return _of(found, table, stretches, twice)


def _tables_of_spark(
    during: Digests, relayed: relays.Relays | None, whole: _Record, keep: Keeping
) -> Iterator[Table]:
    """The tables after the first."""
    stretches, slot_ns = whole.stretches, whole.slot_ns
    if not isinstance(stretches, DataFrame):
        stretches = in_memory.stretches_frame(during.rows.sparkSession, stretches)
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
    talk = keep(during.heard)
    heard = keep(segments.heard(relayed.heard(talk) if relayed else talk))
    known, edges = segments.whom(heard, owned)
    places = [*segments.segments(edges, whole.hosts)]
    connected = segments.frame(talk, places)
    left_out = relayed.left_out if relayed else None
    found = _Numbers(numbers, gaps, sampled, owned, connected, stretches, left_out)
    yield from _tables_of_pairs(found, slot_ns, whole.step_seconds, keep)
    yield from _tables_of_rows(during, talk, known, stretches, numbers, slot_ns, keep)
    yield links.links(during.marks, sampled, places, keep) if relayed else None


class _Numbers(NamedTuple):
    """What ``_tables_of_pairs`` is made of: results of the functions of these names."""

    numbers: DataFrame
    gaps: DataFrame
    sampled: DataFrame
    owned: DataFrame
    connected: DataFrame
    stretches: DataFrame
    left_out: DataFrame | None


def _tables_of_pairs(of: _Numbers, slot_ns: int, seconds: int | None, keep: Keeping) -> Iterator[Table]:
    """The tables from ``minutes`` to ``steps``."""
    delayed = keep(latency.delays(of.sampled, of.owned))
    fastest = keep(latency.fastest(delayed))
    offsets = keep(latency.offsets(fastest))
    receivers = keep(delivery.pairs(of.owned, of.connected, of.stretches, offsets))
    sent = keep(delivery.sent(of.numbers, of.owned))
    matched = keep(delivery.matched(sent, delivery.received(of.numbers, sent), receivers, slot_ns))
    guessed = keep(guesses.by_gaps(of.gaps, sent, of.owned, of.stretches, offsets, of.left_out))
    by_minute = keep(delivery.by_minute(matched, slot_ns))
    minutes = keep(delivery.counted(by_minute, guessed))
    yield delivery.minutes(minutes)
    bursts = keep(delivery.bursts(matched, sent, slot_ns).unionByName(guesses.guessed_bursts(guessed)))
    yield delivery.episodes(minutes, keep(delivery.outages(bursts)))
    yield delivery.delivery(minutes, bursts, latency.latency(delayed, fastest))
    yield delivery.by_source(delivery.sums(matched, slot_ns), guessed)
    yield delivery.senders(matched, slot_ns)
    yield copies.copies(by_minute)
    yield steps.steps(matched, guessed, minutes, slot_ns, seconds)


def _tables_in_memory(held: InMemory, during: Digests, whole: _Record, keep: Keeping) -> Iterator[Table]:
    """The tables after the first, with what ``held`` finds in place of what Spark would; nothing is relayed."""
    yield held.sources()
    told = held.talks()
    known = segments.addresses(told)
    made = held.matched(segments.segments(segments.edges(told, known), whole.hosts), whole.step_seconds)
    minutes, bursts, losses = held.frame(made.minutes), held.frame(made.bursts), made.losses
    stretches = held.stretches()
    guessed = None
    if (gaps := held.gaps()) is not None:
        guessed = keep(guesses.by_gaps(gaps, held.sent(), held.owned(), stretches, held.offsets()))
        bursts = bursts.unionByName(guesses.guessed_bursts(guessed))
        losses = delivery.by_source(held.frame(losses), guessed)
    minutes, bursts = keep(delivery.counted(minutes, guessed)), keep(bursts)
    yield delivery.minutes(minutes) if guessed is not None else in_memory.typed(made.minutes, "minutes")
    lossy = made.bursts.num_rows > 0 or guessed is not None
    yield delivery.episodes(minutes, keep(delivery.outages(bursts))) if lossy else None
    yield delivery.delivery(minutes, bursts, held.latency())
    yield losses
    yield made.senders
    yield made.copies
    worst = keep(steps.worst_pairs(minutes))
    drawn = [(row.sender, row.receiver) for row in worst.collect()] if whole.step_seconds else []
    yield steps.together(held.steps(drawn), guessed, worst, whole.step_seconds)
    numbers = keep(held.late())
    yield from _tables_of_rows(during, keep(during.heard), known, stretches, numbers, whole.slot_ns, keep)
    yield None


def _tables_of_rows(
    during: Digests,
    talk: DataFrame,
    known: Mapping[str, str],
    stretches: DataFrame,
    numbers: DataFrame,
    slot_ns: int,
    keep: Keeping,
) -> Iterator[Table]:
    """The tables from ``channels`` to ``reordering``. ``known`` are ``segments.addresses``; ``numbers`` are of
    ``words.of`` what ``suspects`` asks for.
    """
    best = keep(channels.witnesses(talk))
    yield channels.channels(channels.sizes(best, during.sizes, during.rows), keep)
    yield liveness.silences(keep(liveness.beats(during.beats)), stretches, keep)
    of_known = segments.frame(during.marks, known.items(), ("address", "known"))
    none = during.parts is not None and not during.parts.count("rejected")
    yield None if none else rejected.rejected(during.rejected, of_known)
    yield drops.drops(during.marks)
    yield reordering.reordering(reordering.suspects(during.rows, during.marks, numbers), slot_ns)


def _held(
    parts: Parts | None, whole: _Record, during: Digests, span: Span, seen_span: Span
) -> InMemory | None:
    """The numbers in memory, as far as they are on this machine and not too many."""
    if parts is None or isinstance(whole.stretches, DataFrame):
        return None
    minutes = whole.span_ns // MINUTE_NS + 1
    if len(whole.hosts) ** 2 * minutes > PAIR_MINUTES or not all(_fits(parts, name) for name in _HELD):
        return None
    where = _on_days(seen_span)
    if whole.twice:
        where.append(~(pc.field("capture") & pc.field("host").isin(whole.twice)))

    def read(name: str) -> Iterator[pa.Table]:
        began, ended, unit_ns = _HELD[name]
        since_ns, until_ns = span if name == "words" else seen_span
        limited = list(where)
        if since_ns is not None:
            limited.append(pc.field(ended) >= since_ns // unit_ns)
        if until_ns is not None:
            limited.append(pc.field(began) < -(-until_ns // unit_ns))
        yield from parts.tables(name, *limited)
        if name == "words" and span != Span():
            yield during.of_margins("words", *span, MARGIN_NS).toArrow()

    return InMemory(during.rows.sparkSession, read, whole.stretches, whole.slot_ns)


def _fits(parts: Parts, name: str) -> bool:
    return parts.count(name) <= MOST[name]


def _on_days(span: Span) -> list[pc.Expression]:
    """``_of_days``, of digests in memory."""
    day, limits = pc.field("date"), []
    if span.since_ns is not None:
        limits.append(day >= date(span.since_ns))
    if span.until_ns is not None:
        limits.append(day <= date(span.until_ns))
    return limits


def _of_days(rows: DataFrame, span: Span) -> DataFrame:
    """What files of these days say; a file belongs to the day on which it begins."""
    if span.since_ns is not None:
        rows = rows.where(F.col("date") >= date(span.since_ns))
    if span.until_ns is not None:
        rows = rows.where(F.col("date") <= date(span.until_ns))
    return rows


def _of(
    rows: Iterable[Sequence[Any]], covered: Table, stretches: DataFrame | Stretches, twice: Sequence[str]
) -> _Record:
    """``rows`` say of each host from when to when there is a record, and how often it tells of links."""
    hosts, first, last, told = [*zip(*rows, strict=True)] or [()] * 4
    if not hosts:
        raise ConfigError("nothing was recorded in the time asked for (--since, --until)")
    return _Record(covered, stretches, twice, [*hosts], max(last) - min(first), any(told))
