"""Finds from the marks in recorded files when a host's record is whole: only then a missing message counts as lost.

    file        opened ........ closed opened ... unrecorded ... closed
    coverage    |------------------------------------------------------|
    stretches   |----------------------------|  hole  |----------------|

Rules
- A file is the whole record from its mark ``opened`` to its mark ``closed``. Between files nothing is known.
- At a mark ``unrecorded`` the recorder missed messages. A message that is missing from MARGIN_NS before the mark to
  MARGIN_NS after it may be one of them, so the record has a hole there.
- What a capture of tcpdump says of a host that has a recorder as well is left out: everything would count twice.
- The clocks of two hosts differ, and messages take time. So a slot, a fixed span of the sender's time, counts at a
  receiver if the receiver's record is whole from MARGIN_NS before the slot to MARGIN_NS after it.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.layout import MARGIN_NS, ORIGIN
from bccnd.pipeline.words import so_far
from bccnd.recorder.layout import Direction, Mark


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
