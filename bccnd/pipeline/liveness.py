"""Sources that fell silent: gaps between heartbeats (``bccnd/wire/BCCN1.md``, "Heartbeats") as observers saw them.

    observer a    | | | |           | |      missing since the 4th
    observer b    | | | |   | | | | | |      heard
    observer c    | | | |           | |      missing: 2 of 3, so a and c lost beats and nobody was silent

Rules
- A source that beats does so every few seconds on ``heartbeat/<src>``. It does not say how often, so the interval
  expected is the median of those the observer saw. An observer misses a source once MISSES beats in a row are
  missing, as in the daemon.
- A source is silent while NEARLY_ALL observers miss it. Observers are those that have heard it, and whose records
  cover the time. If fewer miss it, that is loss, and ``delivery`` says whose.
- If the record of its own host covers the time, that record alone decides: a source that beats is not silent, whoever
  misses it.
- A source that starts anew gets another name, ``<host>/<program>/<pid>``. So its silence lasts at most until the next
  source of that host and program.
- After ``leaving`` a source is not silent: it stopped in order.
- A single beat has no interval, so no silence follows it. The copies of a beat are one.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.layout import ORIGIN
from bccnd.pipeline.times import SECOND_NS, moment
from bccnd.pipeline.words import so_far
from bccnd.wire.verdict import DELIVERED

CHANNELS = "heartbeat/"
MISSES = 3
LEAVING = b"leaving"
# The share of observers that have to miss a source.
NEARLY_ALL = 0.9

_BEATER = ("observer", "src")


def digest(traffic: DataFrame) -> DataFrame:
    """``TRAFFIC`` -> (host, src, word, bit, own boolean, capture, date, time_ns, leaving boolean): the heartbeats.

    ``own`` at the host itself.
    """
    is_out = F.col("direction") == "out"
    leaving = F.coalesce(F.col("payload") == F.lit(LEAVING), F.lit(False))
    return (
        traffic.where(is_out | ((F.col("direction") == "in") & F.col("verdict").isin(*DELIVERED)))
        .where(F.col("channel").startswith(CHANNELS))
        .where(F.col("channel") == F.concat(F.lit(CHANNELS), "src"))
        .groupBy("host", "src", "word", "bit", is_out.alias("own"), *ORIGIN)
        .agg(F.min("time_ns").alias("time_ns"), F.bool_or(leaving).alias("leaving"))
    )


def beats(digests: DataFrame) -> DataFrame:
    """``digest``, of any number of batches -> (observer, src, own, time_ns, leaving): each beat once."""
    return (
        digests.groupBy(F.col("host").alias("observer"), "src", "word", "bit", "own")
        .agg(F.min("time_ns").alias("time_ns"), F.bool_or("leaving").alias("leaving"))
        .drop("word", "bit")
    )


def missed(beaten: DataFrame, stretches: DataFrame) -> DataFrame:
    """``beats`` and ``coverage.stretches`` -> (observer, src, own, from_ns, until_ns, expected_ns).

    The times in which one observer missed a source, each within one stretch of its record.
    """
    order = Window.partitionBy(*_BEATER).orderBy("time_ns")
    step = F.when(~F.col("leaving"), F.col("next_ns") - F.col("time_ns"))
    steps = beaten.withColumn("next_ns", F.lead("time_ns").over(order)).withColumn(
        "expected_ns", F.percentile_approx(step, 0.5).over(Window.partitionBy(*_BEATER))
    )
    program = F.regexp_replace("src", r"/\d+$", "").alias("program")
    begins = (
        beaten.groupBy("observer", "src", program)
        .agg(F.min("time_ns").alias("begin_ns"))
        .groupBy("observer", "program")
        .agg(F.array_sort(F.collect_list("begin_ns")).alias("begins"))
    )
    heir = F.expr("get(filter(begins, at -> at > time_ns), 0)")
    end = F.expr("get(filter(stretches, s -> s.from_ns <= time_ns AND s.until_ns >= time_ns), 0).until_ns")
    return (
        steps.where(
            f"NOT leaving AND coalesce(next_ns - time_ns > {MISSES} * expected_ns, expected_ns IS NOT NULL)"
        )
        .join(F.broadcast(stretches.withColumnRenamed("host", "observer")), "observer")
        .select("*", program, end.alias("end_ns"))
        # Which also leaves out what no stretch covers. Few are left for the join.
        .where(f"end_ns - time_ns > {MISSES} * expected_ns")
        .join(begins, ["observer", "program"])
        .withColumn("until_ns", F.least("end_ns", "next_ns", F.when(F.isnull("next_ns"), heir)))
        .where(f"until_ns - time_ns > {MISSES} * expected_ns")
        .select(*_BEATER, "own", F.col("time_ns").alias("from_ns"), "until_ns", "expected_ns")
    )


def silences(
    beaten: DataFrame, stretches: DataFrame, keep: Callable[[DataFrame], DataFrame] = lambda frame: frame
) -> DataFrame | None:
    """``beats`` and ``coverage.stretches`` -> table ``silences``, a row for each observer that missed the source.
    None if nobody missed any.

    ``keep`` is given a frame of few rows that is used several times.
    """
    gaps = keep(missed(beaten, stretches))
    if gaps.isEmpty():
        return None
    suspects = beaten.join(F.broadcast(gaps.select("src").distinct()), "src", "left_semi")
    watched = (
        suspects.groupBy(*_BEATER, "own")
        .agg(F.min("time_ns").alias("first_ns"))
        .join(F.broadcast(stretches.withColumnRenamed("host", "observer")), "observer")
        .select("src", "own", "first_ns", F.explode("stretches").alias("s"))
        .where("s.until_ns > first_ns")
        .select("src", "own", F.greatest("s.from_ns", "first_ns").alias("from_ns"), "s.until_ns")
    )
    steps = _steps(watched, "watching").unionByName(_steps(gaps, "missing"), allowMissingColumns=True)
    names = ("watching", "missing", "own_watching", "own_missing")
    order = Window.partitionBy("src").orderBy("from_ns")
    counts = (
        steps.groupBy("src", "from_ns")
        .agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names))
        .select(
            "src",
            "from_ns",
            F.lead("from_ns").over(order).alias("until_ns"),
            *(so_far(F.col(name), order).alias(name) for name in names),
        )
    )
    others = F.expr(f"missing > 0 AND missing >= {NEARLY_ALL} * watching")
    silent = counts.withColumn(
        "silent", F.when(F.col("own_watching") > 0, F.col("own_missing") > 0).otherwise(True) & others
    )
    begins = F.col("silent") & ~F.coalesce(F.lag("silent").over(order), F.lit(False))
    spans = (
        silent.withColumn("begins", begins.cast("int"))
        .withColumn("span", so_far(F.col("begins"), order))
        .where("silent")
        .groupBy("src", "span")
        .agg(F.min("from_ns").alias("silent_ns"), F.max("until_ns").alias("back_ns"))
    )
    within = F.least("until_ns", "back_ns") - F.greatest("from_ns", "silent_ns")
    return (
        gaps.where("NOT own")
        .join(F.broadcast(spans), "src")
        # Observers notice at their own times: the first ones a beat before the last.
        .where(within > (MISSES - 1) * F.col("expected_ns"))
        .select(
            *_BEATER,
            moment("greatest(from_ns, silent_ns)").alias("from"),
            moment("least(until_ns, back_ns)").alias("until"),
            (within / SECOND_NS).alias("seconds"),
            (F.col("expected_ns") / SECOND_NS).alias("expected_s"),
        )
    )


def _steps(spans: DataFrame, name: str) -> DataFrame:
    """Spans -> (src, from_ns, <name>, own_<name>): how many more there are from then on, or fewer."""
    both = spans.select("src", "own", F.explode(F.array(
        F.struct("from_ns", F.lit(1).alias("step")),
        F.struct(F.col("until_ns").alias("from_ns"), F.lit(-1).alias("step")),
    )).alias("at"))  # fmt: skip
    step = F.col("at.step")
    return both.select(
        "src",
        "at.from_ns",
        F.when(F.col("own"), 0).otherwise(step).alias(name),
        F.when(F.col("own"), step).otherwise(0).alias(f"own_{name}"),
    )
