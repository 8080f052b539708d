"""Loss in steps of seconds, for the charts of a short record: its minutes would be a point or two.

Rules
- There are about as many steps as a longer chart has minutes. They are kept of all pairs together, which have no
  names, and of those that the page draws: of each pair they would be more rows than were recorded.
- A gap in the numbers of a sender without a record belongs to the step in which it begins.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline.layout import OF_ONE_HOST, PAIR, PAIRS_DRAWN
from bccnd.pipeline.times import SECOND_NS

STEPS_S = (1, 2, 5, 10, 15)
# As ``report.page.BINS``.
STEPS = 240


def seconds_of(span_ns: int) -> int | None:
    """The length of a step for a record of so many nanoseconds; None if a minute is short enough."""
    return next((step for step in STEPS_S if span_ns < STEPS * step * SECOND_NS), None)


def steps(
    matched_words: DataFrame, guessed: DataFrame, all_minutes: DataFrame, slot_ns: int, seconds: int | None
) -> DataFrame:
    """``matched``, ``guesses.by_gaps`` and ``counted`` -> table ``steps``: of the worst pairs, and of all together.

    There are none without ``seconds``, the length of a step.
    """
    if seconds is None:
        return all_minutes.where("false").select(
            *PAIR, F.col("minute").alias("from"), F.lit(0).alias("seconds"), "sent", "lost"
        )
    recorded = matched_words.select(*PAIR, "bits", F.explode("slots").alias("at")).select(
        *PAIR,
        F.expr(f"at.slot * {slot_ns} div {seconds * SECOND_NS}").alias("step"),
        F.expr("bit_count(at.bits)").alias("sent"),
        F.expr("bit_count(at.bits & ~bits)").alias("lost"),
    )
    return together(recorded, guessed, worst_pairs(all_minutes), seconds)


def together(
    recorded: DataFrame, guessed: DataFrame | None, worst: DataFrame, seconds: int | None
) -> DataFrame:
    """(sender, receiver, step, sent, lost) of those with a record, ``guesses.by_gaps`` and ``worst_pairs`` -> table
    ``steps``.
    """
    if seconds is None:
        return recorded.where("false").select(
            *PAIR, F.timestamp_seconds("step").alias("from"), F.lit(0).alias("seconds"), "sent", "lost"
        )
    drawn = F.broadcast(worst.withColumn("drawn", F.lit(True)))
    names = [F.when(F.col("drawn"), F.col(name)).otherwise("").alias(name) for name in PAIR]
    if guessed is not None:
        step = F.expr(f"span.from_ns div {seconds * SECOND_NS}").alias("step")
        recorded = recorded.union(guessed.select(*PAIR, step, "sent", "lost"))
    sums = [F.sum(name).alias(name) for name in ("sent", "lost")]
    own = recorded.join(drawn, list(PAIR), "left").groupBy(*names, "step").agg(*sums)
    # Those of the worst count twice: on their own, and among all.
    nobody = "named_struct('sender', '', 'receiver', '')"
    every = F.expr(f"IF(sender = '', array({nobody}), array({nobody}, struct(sender, receiver)))")
    return (
        own.select("step", "sent", "lost", F.explode(every).alias("pair"))
        .groupBy(*(f"pair.{name}" for name in PAIR), "step")
        .agg(*sums)
        .select(
            *PAIR,
            F.timestamp_seconds(F.col("step") * seconds).alias("from"),
            F.lit(seconds).alias("seconds"),
            "sent",
            "lost",
        )
    )


def worst_pairs(all_minutes: DataFrame) -> DataFrame:
    """``counted`` -> (sender, receiver): those that the page draws (``report.queries.Summaries.worst_pairs``)."""
    sums = (
        all_minutes.where("sender != receiver")
        .groupBy(*PAIR)
        .agg(F.sum("lost").alias("lost"))
        .where("lost > 0")
    )
    places = {
        f"of_{one}": F.row_number().over(Window.partitionBy(one).orderBy(F.desc("lost"), other))
        for one, other in (PAIR, PAIR[::-1])
    }
    few = sums.withColumns(places).where(f"of_sender <= {OF_ONE_HOST} AND of_receiver <= {OF_ONE_HOST}")
    return few.orderBy(F.desc("lost"), "sender").limit(PAIRS_DRAWN).select(*PAIR)
