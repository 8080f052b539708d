"""The losses of senders without a record: the gaps between the numbers that a receiver has of them.

    received    0 ... 70           4000 ...      a gap of 3929 numbers, in words of 64
                |  word 1: 57 |  words 2 to 61  |  word 62: 32 |
                one row         a row, all missing   one row

Rules
- Where the sender's own record has a number, the record counts, and not the guess (``delivery.matched``).
- A gap may have up to JUMP numbers, and one forged datagram is enough to make one. So the part between the word in
  which it begins and the word in which it ends is a row for each RUN of words, unless numbers in it are known.
- Losses before the first or after the last number do not show.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import words
from bccnd.pipeline.delivery import ALL_SENT
from bccnd.pipeline.layout import PAIR
from bccnd.pipeline.times import minute

# Words of a gap that are looked at together: where nothing is known of them, they are a row and not as many.
RUN = 512
_NO_PIECES = """CAST(array() AS array<struct<
    word: bigint, words: bigint, missing: bigint, got: bigint, late: bigint, repaired: bigint>>)"""


def by_gaps(
    gaps: DataFrame,
    sent_words: DataFrame,
    owned: DataFrame,
    stretches: DataFrame,
    offsets: DataFrame,
    left_out: DataFrame | None = None,
) -> DataFrame:
    """``loss.gaps`` -> (sender, receiver, src, epoch, word, words, minute, span, missing, sent, lost, late,
    repaired), of senders without a record, and of others while theirs has a hole.

    ``missing`` are bits of ``word``, or, where there are more ``words``, all of them. Of ``span``, the number
    ``from`` came at ``from_ns`` and ``until`` at ``until_ns``; both are counted from bit 0 of ``word``. ``sent`` is
    what was received and what is missing in between, without what the sender's record has: that is ``matched``.
    ``left_out`` (src, word, known) has, as bits, what is not missing either.
    """
    known = sent_words.select("src", "word", F.expr(ALL_SENT).alias("known"))
    if left_out is not None:
        known = known.unionByName(left_out)
    known = known.groupBy("src", "word").agg(F.bit_or("known").alias("known"))
    span = F.expr(
        """named_struct('from_ns', from_ns, 'until_ns', until_ns,
            'from', (from_word - word) * 64 + from_bit, 'until', (until_word - word) * 64 + until_bit)"""
    )
    return (
        _unknown(_pieces(_judged(gaps, owned, stretches, offsets)), known)
        .withColumn("span", span)
        .select(
            *(*PAIR, "src", "epoch", "word", "words", "minute", "span", "missing"),
            F.expr("bit_count(missing) * words + bit_count(got & ~known)").alias("sent"),
            F.expr("bit_count(missing) * words").alias("lost"),
            F.bit_count(F.expr("missing & late")).alias("late"),
            F.bit_count(F.expr("repaired & ~known")).alias("repaired"),
        )
        .where("sent > 0")
    )


def _judged(gaps: DataFrame, owned: DataFrame, stretches: DataFrame, offsets: DataFrame) -> DataFrame:
    """Those of ``loss.gaps`` that the sender's record says nothing of, with (sender)."""
    by_sender = F.expr(
        """exists(stretches, s -> s.from_ns + coalesce(most_ns, 0) <= coalesce(since_ns, first_ns)
            AND s.until_ns + coalesce(least_ns, 0) >= last_ns)"""
    )
    return (
        gaps.join(F.broadcast(owned), "src")
        .where("sender != receiver")
        .join(F.broadcast(stretches.withColumnRenamed("host", "sender")), "sender", "left")
        .join(F.broadcast(offsets), list(PAIR), "left")
        .where(~F.col("recorded") | ~F.coalesce(by_sender, F.lit(False)))
    )


def _pieces(judged: DataFrame) -> DataFrame:
    """-> (sender, receiver, src, epoch, minute, from_ns, until_ns, from_word, from_bit, until_word, until_bit, word,
    words, missing, got, late, repaired): a row for each word in which a gap begins or ends, and one for each RUN
    of ``words`` between, of which all is missing.

    A gap has up to JUMP numbers, and one forged datagram is enough to make one.
    """
    run = f"transform(sequence((previous + 1) div {RUN}, (word - 1) div {RUN}), at -> {_run('previous', 'word')})"
    between = F.expr(f"IF(before > 0 AND word - previous > 1, {run}, {_NO_PIECES})")
    ends = F.expr(
        f"""concat(
            IF(before > 0, array(struct(previous AS word, 1L AS words,
                IF(previous_high = 63, 0L, shiftleft(-1L, previous_high + 1)) AS missing,
                0L AS got, 0L AS late, 0L AS repaired)), {_NO_PIECES}),
            array(struct(
                word, 1L AS words, inside | IF(before > 0, ~shiftleft(-1L, low), 0L) AS missing,
                bits AS got, late_bits AS late, repaired_bits AS repaired)))"""
    )
    return (
        judged.select(
            *(*PAIR, "src", "epoch"),
            minute("first_ns").alias("minute"),
            F.expr("IF(before > 0, since_ns, first_ns)").alias("from_ns"),
            F.expr("IF(inside = 0, first_ns, last_ns)").alias("until_ns"),
            F.expr("IF(before > 0, previous, word)").alias("from_word"),
            F.expr("IF(before > 0, previous_high, low)").alias("from_bit"),
            F.col("word").alias("until_word"),
            F.when(F.col("inside") == 0, F.col("low")).otherwise(words.highest("bits")).alias("until_bit"),
            F.explode(F.concat(ends, between)).alias("piece"),
        )
        .select("*", "piece.*")
        .drop("piece")
    )


def _run(after: str, before: str) -> str:
    """Those words of run ``at`` that lie between two others."""
    first, last = f"greatest({after} + 1, at * {RUN})", f"least({before} - 1, at * {RUN} + {RUN - 1})"
    size = f"{last} - {first} + 1"
    return f"struct({first} AS word, {size} AS words, -1L AS missing, 0L AS got, 0L AS late, 0L AS repaired)"


def _unknown(pieces: DataFrame, known: DataFrame) -> DataFrame:
    """``_pieces`` without what is ``known`` (src, word, known) of a word, and with (known): runs end before it."""
    by_run = known.groupBy("src", F.expr(f"word div {RUN}").alias("run")).agg(
        F.array_sort(F.collect_list(F.struct("word", "known"))).alias("all_known")
    )
    # Of a run that has known words: each of these, and what lies before, between and behind them.
    cut = """concat(
        transform(within, at -> struct(at.word AS word, 1L AS words, ~at.known AS missing, at.known AS known)),
        filter(transform(sequence(0, size(within)), i -> struct(
            IF(i = 0, word, within[i - 1].word + 1) AS word,
            IF(i = size(within), word + words, within[i].word) - IF(i = 0, word, within[i - 1].word + 1) AS words,
            missing, 0L AS known)), run -> run.words > 0))"""
    one = "array(struct(word, words, missing & ~known AS missing, known))"
    others = [name for name in pieces.columns if name not in {"word", "words", "missing"}]
    return (
        pieces.withColumn("run", F.expr(f"word div {RUN}"))
        .join(by_run, ["src", "run"], "left")
        .withColumn("within", F.expr("filter(all_known, at -> at.word >= word AND at.word < word + words)"))
        .withColumn("known", F.expr("IF(words = 1, coalesce(get(within, 0).known, 0L), 0L)"))
        .withColumn("part", F.explode(F.expr(f"IF(words = 1 OR within IS NULL, {one}, {cut})")))
        .select(*others, "part.*")
    )


def guessed_bursts(guessed: DataFrame) -> DataFrame:
    """``by_gaps`` -> as ``bursts``, but by the receiver's clock, as if the sender sent evenly from the last number
    before the gap to the first after it.
    """
    key = (*PAIR, "src", "epoch")
    runs = words.runs(guessed.drop("sent", "lost", "late", "repaired")).withColumn(
        "end", F.expr("CAST(end + (words - 1) * 64 AS int)")
    )
    found = words.stitched(runs.drop("words"), *key)
    return found.select(
        *PAIR,
        "src",
        "minute",
        _guessed_ns("start").alias("from_ns"),
        _guessed_ns("start + length - 1").alias("until_ns"),
        "length",
    )


def _guessed_ns(bit: str) -> Column:
    """When the number of that bit, counted from the word of ``span``, would have come."""
    return F.expr(
        f"""span.from_ns + CAST((span.until_ns - span.from_ns) * (CAST({bit} - span.from AS double)
            / greatest(1, span.until - span.from)) AS bigint)"""
    )
