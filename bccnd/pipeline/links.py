"""Links between segments: what uplinks report about them (marks ``link``), and how long messages took to cross them.

    uplink of north, on n1: exported 800 messages      uplink of south, on s1: of north 96 datagrams, 5 missed, 0 lost
    table ``links``:  north, south, n1, s1, exported 800, sent 96, arrived 96, missed 5, lost 0

Rules
- A link is what the uplink of one segment hears from the uplink of another. Its ``exporter`` and its ``importer`` are
  their hosts. The exporter is known where its own segment was recorded, too.
- The counters of uplinks count from their start. The first report of an uplink in a record only sets the starting
  point; a link that the uplink did not know then counts from zero.
- A link carries datagrams of several messages. ``sent``, ``arrived``, ``missed`` and ``lost`` count these by their
  numbers, each of which the importer knows. Missed datagrams had not come when a later one came; those that never
  came are lost. Withheld messages are those that the exporter gave up before the carrier had them.
- Across is from the time at which the sender sent a message, or, if it has no record, at which the first host of its
  segment received it, to the time at which the importer sent it on. The offset of two clocks is taken as in
  ``latency``, from all that one of the two hosts heard of the other's segment.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bccnd.pipeline import latency
from bccnd.pipeline.layout import TABLES, VIA
from bccnd.pipeline.times import HOUR_NS
from bccnd.recorder.layout import Mark

_COUNTS = ("datagrams", "duplicates", "messages", "missed", "lost")
_SAID = (
    "uplink string, seq decimal(20,0), segment string, instance string, exported bigint, withheld bigint, "
    f"link struct<segment: string, instance: string, {', '.join(f'{name}: bigint' for name in _COUNTS)}>"
)
_MESSAGE = ("src", "word", "bit")
# What an uplink cannot have counted between two messages, which are seconds apart: any program can call itself one,
# and a sum of its numbers must not end the analysis.
_MOST = 1 << 34


class Key(NamedTuple):
    """A row of the table. ``hour`` counts the hours since 1970."""

    near: str
    far: str
    exporter: str
    importer: str
    hour: int


class Way(NamedTuple):
    """From the segment called ``near`` to a host that relays what comes from there."""

    near: str
    importer: str


def said(marks: DataFrame) -> DataFrame:
    """``coverage.digest`` -> (uplink, seq, time_ns, look, segment, instance, exported, withheld, link struct): each
    message of an uplink once, whoever recorded it. ``look`` counts how often it had spoken by then.
    """
    spoken = (
        marks.where(F.col("verdict") == Mark.LINK)
        .select("time_ns", F.from_json(F.col("payload").cast("string"), _SAID).alias("said"))
        .select("said.*", "time_ns")
        .where("uplink IS NOT NULL AND seq IS NOT NULL")
        .groupBy("uplink", "seq")
        .agg(
            F.min("time_ns").alias("time_ns"),
            *(F.first(name).alias(name) for name in ("segment", "instance", "exported", "withheld", "link")),
        )
    )
    so_far = Window.partitionBy("uplink").orderBy("seq").rowsBetween(Window.unboundedPreceding, 0)
    return spoken.withColumn("look", F.count_if(F.isnull("link")).over(so_far))


def exported(spoken: DataFrame) -> DataFrame:
    """``said`` -> (uplink, segment, instance, hour, exported, withheld)."""
    own = spoken.where("link IS NULL AND segment IS NOT NULL AND instance IS NOT NULL")
    return _increments(own, ("uplink", "segment", "instance"), ("exported", "withheld"))


def heard(spoken: DataFrame) -> DataFrame:
    """``said`` -> (uplink, segment, instance, hour, datagrams, duplicates, messages, missed, lost), of each link."""
    links = spoken.where("link.segment IS NOT NULL AND link.instance IS NOT NULL")
    return _increments(
        links.select("uplink", "seq", "time_ns", "look", "link.*"), ("uplink", "segment", "instance"), _COUNTS
    )


def _increments(rows: DataFrame, key: Sequence[str], counts: Sequence[str]) -> DataFrame:
    order = Window.partitionBy(*key).orderBy("seq")

    def more(name: str) -> Column:
        now, before = F.coalesce(name, F.lit(0)), F.lag(F.coalesce(name, F.lit(0))).over(order)
        begun = F.when(F.col("look") > 1, now).otherwise(0)
        counted = F.when(before.isNull(), begun).when(now >= before, now - before).otherwise(now)
        return F.when(counted.between(0, _MOST), counted).otherwise(0).alias(name)

    return (
        rows.select(*key, _hour("time_ns"), *map(more, counts))
        .groupBy(*key, "hour")
        .agg(*(F.sum(name).alias(name) for name in counts))
    )


def _hour(time_ns: str) -> Column:
    return F.expr(f"{time_ns} div {HOUR_NS}").alias("hour")


def crossings(sampled: DataFrame, importers: DataFrame) -> DataFrame:
    """``Relays.sample`` and (importer) -> (sender, receiver, hour, delay_ns, own, across, message): each message of
    the sample that crossed a link, for each two hosts on either side of which one relays.

    ``own`` says whether the sender's host sent it, ``across`` whether the receiver's relayed it.
    """
    near = (
        sampled.where(~F.col("src").contains(VIA))
        .groupBy(*_MESSAGE, F.col("host").alias("sender"))
        .agg(F.min("time_ns").alias("seen_ns"), F.bool_or(F.col("direction") == "out").alias("own"))
    )
    is_sent = F.col("direction") == "out"
    far = (
        sampled.where(F.col("src").contains(VIA))
        .withColumn("src", F.substring_index("src", VIA, 1))
        .groupBy(*_MESSAGE, F.col("host").alias("receiver"))
        .agg(F.min("time_ns").alias("came_ns"), F.bool_or(is_sent).alias("across"))
    )
    relaying = F.broadcast(importers.select(F.col("importer").alias("sender"), F.lit(True).alias("relays")))
    return (
        far.join(near, list(_MESSAGE))
        .join(relaying, "sender", "left")
        .where("across OR relays")
        .select(
            "sender",
            "receiver",
            _hour("seen_ns"),
            (F.col("came_ns") - F.col("seen_ns")).alias("delay_ns"),
            "own",
            "across",
            F.struct(*_MESSAGE).alias("message"),
        )
    )


def across(crossed: DataFrame) -> DataFrame:
    """``crossings`` -> (sender, importer, hour, taken, known boolean): how long each message took, in microseconds,
    by the sender's record or that of the first host that had it; whether the offset of the clocks is ``known``.
    """
    found = latency.fastest(crossed)
    taken = (F.col("delay_ns") - F.coalesce("offset", "there")) / 1000
    first = F.min_by(
        F.struct("sender", "hour", taken.alias("taken"), F.col("offset").isNotNull().alias("known")),
        F.struct(~F.col("own"), -F.col("delay_ns")),
    )
    return (
        crossed.where("across")
        .join(found, ["sender", "receiver", "hour"])
        .groupBy("message", F.col("receiver").alias("importer"))
        .agg(first.alias("first"))
        .select("importer", "first.*")
    )


def latencies(taken: DataFrame, ways: Mapping[tuple[str, str], Way]) -> list[tuple[Way, int, Any]]:
    """``across``, and of which link a sender and an importer are the ends -> the latency of each link and hour."""
    rows = pa.table(
        {
            "sender": [sender for sender, _ in ways],
            "importer": [importer for _, importer in ways],
            "near": [way.near for way in ways.values()],
        },
        pa.schema([(name, pa.string()) for name in ("sender", "importer", "near")]),
    )
    at = F.percentile_approx("taken", [0.5, 0.99])
    found = (
        taken.join(F.broadcast(taken.sparkSession.createDataFrame(rows)), ["sender", "importer"])
        .groupBy("near", "importer", "hour")
        .agg(at.alias("at"), F.max("taken").alias("most"), F.every("known").alias("known"))
        .collect()
    )
    return [(Way(row.near, row.importer), row.hour, row) for row in found]


def ways_of(
    ends: Iterable[tuple[str, str]],
    own: Sequence[Any],
    links: Sequence[Any],
    segments: Iterable[tuple[str, str]],
) -> dict[tuple[str, str], Way]:
    """Pairs of a sender and an importer -> by which link it is. ``own`` and ``links`` are rows of ``exported`` and
    ``heard``, ``segments`` (host, segment) tells whose neighbour a sender is. Where nothing tells, ``near`` is empty.
    """
    places: dict[str, set[str]] = {}
    for host, segment in segments:
        places.setdefault(host, set()).add(segment)
    heard_by: dict[str, set[str]] = {}
    for row in links:
        heard_by.setdefault(host_of(row.uplink), set()).add(row.segment)
    inside: dict[str, set[str]] = {}  # by segment as ``segments`` calls it, what its uplinks call it
    for row in own:
        for place in places.get(host_of(row.uplink), ()):
            inside.setdefault(place, set()).add(row.segment)
    found = {}
    for sender, importer in ends:
        hears = heard_by.get(importer, set())
        beside = set().union(*(inside.get(place, ()) for place in places.get(sender, ())))
        likely = (hears & beside if hears else beside) or hears
        found[sender, importer] = Way(likely.pop() if len(likely) == 1 else "", importer)
    return found


def host_of(uplink: str) -> str:
    return uplink.partition("/")[0]


def rows(
    own: Sequence[Any], links: Sequence[Any], timed: Iterable[tuple[Way, int, Any]]
) -> list[dict[str, Any]]:
    """``exported``, ``heard`` and ``latencies`` -> the rows of table ``links``."""
    names = {row.uplink: row.segment for row in own}
    exporters = {(row.segment, row.instance): host_of(row.uplink) for row in own}
    given: defaultdict[tuple[str, str, int], list[Any]] = defaultdict(list)
    for row in own:
        given[row.segment, row.instance, row.hour].append(row)
    found: dict[Key, dict[str, Any]] = {}
    for row in links:
        exporter = exporters.get((row.segment, row.instance), "")
        key = Key(row.segment, names.get(row.uplink, ""), exporter, host_of(row.uplink), row.hour)
        gave = given.get((row.segment, row.instance, row.hour))
        arrived = max(0, row.datagrams - row.duplicates)
        counts = {
            "sent": arrived + row.lost, "arrived": arrived, "missed": row.missed, "lost": row.lost,
            "messages": row.messages,
        }  # fmt: skip
        made = found.setdefault(key, {**key._asdict(), **dict.fromkeys(counts, 0)})
        made |= {name: made[name] + count for name, count in counts.items()}
        if gave:
            made |= {name: sum(getattr(one, name) for one in gave) for name in ("exported", "withheld")}
    fars = {host_of(uplink): segment for uplink, segment in names.items()}
    ends: defaultdict[Way, set[Key]] = defaultdict(set)
    for key in found:
        ends[Way(key.near, key.importer)].add(key._replace(hour=0))
    for way, at, row in timed:
        keys = {key._replace(hour=at) for key in ends.get(way, ())}
        for key in keys or {Key(way.near, fars.get(way.importer, ""), "", way.importer, at)}:
            found.setdefault(key, dict(key._asdict())).update(
                latency_method="both-ways" if row.known else "above-fastest",
                latency_p50_us=row["at"][0], latency_p99_us=row["at"][1], latency_max_us=row.most,
            )  # fmt: skip
    return [{**found[key], "hour": datetime.fromtimestamp(key.hour * 3600, UTC)} for key in sorted(found)]


def links(
    marks: DataFrame,
    sampled: DataFrame,
    segments: Sequence[tuple[str, str]],
    keep: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> pa.Table:
    """``coverage.digest``, ``Relays.sample`` and ``segments.segments`` -> table ``links``."""
    spoken = keep(said(marks))
    own, heard_of = exported(spoken).collect(), heard(spoken).collect()
    far = sampled.where(F.col("src").contains(VIA))
    importers = keep(far.select(F.substring_index("src", VIA, -1).alias("importer")).distinct())
    taken = keep(across(keep(crossings(sampled, importers))))
    ends = [(row.sender, row.importer) for row in taken.select("sender", "importer").distinct().collect()]
    timed = latencies(taken, ways_of(ends, own, heard_of, segments)) if ends else []
    return table(rows(own, heard_of, timed))


def table(found: Sequence[Mapping[str, Any]]) -> pa.Table:
    columns = to_arrow_schema(cast("StructType", StructType.fromDDL(TABLES["links"])), timezone="UTC")
    return pa.Table.from_pylist([*found], columns)
