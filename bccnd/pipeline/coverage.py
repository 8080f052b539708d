"""Finds from the marks in recorded files when a host's record is whole: only then a missing message counts as lost.

    file        opened ........ closed opened ... unrecorded ... closed
    coverage    |------------------------------------------------------|
    stretches   |----------------------------|  hole  |----------------|

Rules
- A file is the whole record from its mark ``opened`` to its mark ``closed``. Between files nothing is known.
- At a mark ``unrecorded`` the recorder missed messages. A message that is missing from MARGIN_NS before the mark to
  MARGIN_NS after it may be one of them, so the record has a hole there.
- A capture of tcpdump is left out for a host that also has a recorder: everything would count twice.
- The clocks of two hosts differ, and messages take time. So a slot, a fixed span of the sender's time, counts at a
  receiver if the receiver's record is whole from MARGIN_NS before the slot to MARGIN_NS after it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.layout import MARGIN_NS, ORIGIN
from bccnd.pipeline.words import so_far
from bccnd.recorder.layout import Direction, Mark

_COVERED = pa.schema(
    [
        ("host", pa.string()), ("from_ns", pa.int64()), ("until_ns", pa.int64()), ("unrecorded", pa.int64()),
        ("capture", pa.bool_()), ("counted", pa.bool_()), ("links", pa.int64()),
    ]
)  # fmt: skip


def digest(traffic: DataFrame) -> DataFrame:
    """The marks of ``TRAFFIC``, which are few, with the columns that anything here or elsewhere needs of them."""
    names = ("host", "time_ns", "direction", "verdict", "size", "payload", *ORIGIN)
    return traffic.where(F.col("direction") == Direction.MARK).select(*names)


def coverage(traffic: DataFrame, since_ns: int | None = None, until_ns: int | None = None) -> DataFrame:
    """``TRAFFIC`` -> table ``coverage``: the times that a host's files cover, joined where they touch or overlap.

    Times outside ``since_ns`` .. ``until_ns`` are cut off. ``unrecorded`` counts the messages that the recorder
    missed in each; ``capture`` says that tcpdump recorded it, and ``counted`` that it is used. Beside the columns of
    the table there is ``links``, how many marks in it tell of links to other segments.
    """
    kind = F.col("verdict")
    order = Window.partitionBy("host", "capture").orderBy("time_ns", kind != Mark.OPENED)
    open_files = so_far(F.when(kind == Mark.OPENED, 1).when(kind == Mark.CLOSED, -1).otherwise(0), order)
    begins = (kind == Mark.OPENED) & (F.col("open") == 1)
    spans = (
        _marks(traffic)
        .withColumn("open", open_files)
        .withColumn("span", F.sum(F.when(begins, 1).otherwise(0)).over(order))
        .groupBy("host", "capture", "span")
        .agg(
            F.min("time_ns").alias("from_ns"),
            F.max("time_ns").alias("until_ns"),
            F.sum(F.when(kind == Mark.UNRECORDED, F.col("size")).otherwise(0)).alias("unrecorded"),
            F.count_if(kind.isin(Mark.RELAYED, Mark.LINK)).alias("links"),
        )
    )
    if since_ns is not None:
        spans = spans.withColumn("from_ns", F.greatest("from_ns", F.lit(since_ns)))
    if until_ns is not None:
        spans = spans.withColumn("until_ns", F.least("until_ns", F.lit(until_ns)))
    counted = ~F.col("capture") | F.every("capture").over(Window.partitionBy("host"))
    return spans.where("from_ns <= until_ns").select(
        "host", "from_ns", "until_ns", "unrecorded", "capture", counted.alias("counted"), "links"
    )


class Covered(NamedTuple):
    """``coverage`` of marks in memory: (host, from_ns, until_ns, unrecorded, capture, counted, links), and the
    ``stretches`` of each host.
    """

    table: pa.Table
    stretches: dict[str, list[tuple[int, int]]]

    @property
    def twice(self) -> list[str]:
        """``captured_twice``."""
        return sorted({*self.table.filter(~pc.field("counted"))["host"].to_pylist()})


def covered(marks: pa.Table, since_ns: int | None = None, until_ns: int | None = None) -> Covered:
    """``coverage`` and ``stretches`` of ``digest`` in memory."""
    names = ("host", "capture", "time_ns", "verdict", "size")
    rows = sorted(
        zip(*(marks[name].to_pylist() for name in names), strict=True),
        key=lambda row: (*row[:3], row[3] != Mark.OPENED),
    )
    spans: list[list[Any]] = []
    for (host, capture), of in groupby(rows, key=itemgetter(0, 1)):
        open_files = 0
        for number, (*_, time_ns, kind, size) in enumerate(of):
            open_files += {Mark.OPENED: 1, Mark.CLOSED: -1}.get(kind, 0)
            if not number or (kind == Mark.OPENED and open_files == 1):
                spans.append([host, time_ns, time_ns, 0, capture, 0])
            span = spans[-1]
            span[2] = time_ns
            span[3] += (size or 0) * (kind == Mark.UNRECORDED)
            span[5] += kind in {Mark.RELAYED, Mark.LINK}
    for span in spans:
        span[1] = span[1] if since_ns is None else max(span[1], since_ns)
        span[2] = span[2] if until_ns is None else min(span[2], until_ns)
    spans = [span for span in spans if span[1] <= span[2]]
    by_recorder = {host for host, *_, capture, _ in spans if not capture}
    found = [(*span[:5], not span[4] or span[0] not in by_recorder, span[5]) for span in spans]
    twice = {host for host, *_, capture, _ in spans if capture and host in by_recorder}
    holes = defaultdict[str, set[int]](set)
    for host, capture, time_ns, kind, _ in rows:
        if kind == Mark.UNRECORDED and not (capture and host in twice):
            holes[host].add(time_ns)
    return Covered(
        pa.Table.from_pylist([dict(zip(_COVERED.names, row, strict=True)) for row in found], _COVERED),
        _between(found, holes),
    )


def _between(
    found: Iterable[tuple[Any, ...]], holes: Mapping[str, set[int]]
) -> dict[str, list[tuple[int, int]]]:
    """The spans that count, without their holes."""
    stretches = defaultdict[str, list[tuple[int, int]]](list)
    for host, from_ns, until_ns, _, _, counts, _ in sorted(found):
        if not counts:
            continue
        within = sorted(at for at in holes.get(host, ()) if from_ns <= at <= until_ns)
        starts = [from_ns, *(at + MARGIN_NS for at in within)]
        ends = [*(at - MARGIN_NS for at in within), until_ns]
        stretches[host] += [(start, end) for start, end in zip(starts, ends, strict=True) if start <= end]
    return {host: sorted(spans) for host, spans in stretches.items() if spans}


def captured_twice(covered: DataFrame) -> list[str]:
    """Table ``coverage`` -> the hosts that have both a recorder and a capture."""
    return [row.host for row in covered.where("NOT counted").select("host").distinct().collect()]


def counted(traffic: DataFrame, twice: Sequence[str]) -> DataFrame:
    """``TRAFFIC`` without the captures of the hosts of ``captured_twice``."""
    return (
        traffic.where(~(F.coalesce("capture", F.lit(False)) & F.col("host").isin(*twice)))
        if twice
        else traffic
    )


def stretches(traffic: DataFrame, covered: DataFrame) -> DataFrame:
    """``TRAFFIC`` and table ``coverage`` -> (host, stretches array<struct<from_ns, until_ns>>), in order and without
    the holes; of what is ``counted``.
    """
    covered = covered.where("counted").drop("capture")
    holes = (
        _marks(traffic)
        .where(F.col("verdict") == Mark.UNRECORDED)
        .drop("capture")
        .join(covered, "host")
        .where("time_ns BETWEEN from_ns AND until_ns")
        .groupBy("host", "from_ns", "until_ns")
        .agg(F.array_sort(F.collect_set("time_ns")).alias("holes"))
    )
    pieces = F.expr(
        f"""transform(sequence(0, size(holes)), i -> struct(
            IF(i = 0, from_ns, holes[i - 1] + {MARGIN_NS}) AS from_ns,
            IF(i = size(holes), until_ns, holes[i] - {MARGIN_NS}) AS until_ns))"""
    )
    return (
        covered.join(holes, ["host", "from_ns", "until_ns"], "left")
        .withColumn("holes", F.coalesce("holes", F.array().cast("array<bigint>")))
        .select("host", F.explode(pieces).alias("piece"))
        .where("piece.from_ns <= piece.until_ns")
        .groupBy("host")
        .agg(F.array_sort(F.collect_list("piece")).alias("stretches"))
    )


def stretch_at(time_ns: str) -> Column:
    """The position of ``time_ns`` (an SQL expression) among ``stretches``: odd within one, even outside."""
    # Most have one, and Java compiles no filter.
    return F.expr(
        f"""IF(size(stretches) = 1,
        IF(get(stretches, 0).from_ns <= {time_ns}, 1, 0) + IF(get(stretches, 0).until_ns < {time_ns}, 1, 0),
        size(filter(stretches, s -> s.from_ns <= {time_ns}))
        + size(filter(stretches, s -> s.until_ns < {time_ns})))"""
    )


def whole(slots: str, slot_ns: int) -> Column:
    """Those of ``slots`` (an array of structs with ``slot``, in order) that lie in one of ``stretches``, margins
    included.
    """

    def covered(first: str, last: str) -> str:
        return f"""exists(stretches, s ->
            s.from_ns <= {first}.slot * {slot_ns} - {MARGIN_NS}
            AND s.until_ns >= ({last}.slot + 1) * {slot_ns} + {MARGIN_NS})"""

    every = covered(f"get({slots}, 0)", f"get({slots}, size({slots}) - 1)")
    return F.expr(f"IF({every}, {slots}, filter({slots}, at -> {covered('at', 'at')}))")


def _marks(traffic: DataFrame) -> DataFrame:
    return traffic.where(F.col("direction") == Direction.MARK).select(
        "host", "time_ns", "verdict", "size", F.coalesce("capture", F.lit(False)).alias("capture")
    )
