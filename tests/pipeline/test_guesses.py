"""``bccnd/pipeline/guesses.py``: what gaps tell of literal rows."""

from itertools import pairwise

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import delivery, guesses, words
from tests.pipeline.rows import at, datagram, ns, recording, sent
from tests.pipeline.test_delivery import SLOT_NS, Made, counts


def test_gaps_judge_while_the_record_of_the_sender_has_a_hole(spark: SparkSession) -> None:
    rows = [
        *recording("a", 0, 100),
        *recording("a", 200, 300),
        *recording("b", 0, 300),
        *recording("c", 0, 300),
    ]
    lost = {*range(20, 25), *range(95, 105), *range(120, 160), *range(190, 205), 250}
    for second in range(10, 290):
        if not 100 <= second < 200:
            rows.append(sent("a", second, "a/p/1", 1000 + second))
        if second not in lost:
            rows.append(datagram("b", second + 0.1, "a/p/1", 1000 + second))
        rows.append(datagram("c", second + 0.1, "a/p/1", 1000 + second))
        rows.append(datagram("c", second + 0.1, "x/p/1", second) if second % 2 else datagram("b", 1, "?", 1))
    made = Made(spark, rows)
    known = counts(made.matched)
    # Of b: 20 to 24, 95 to 99, 200 to 204 and 250, in the slots that both recorded.
    assert known["a", "b"] == (180, 16)
    sums = made.guessed.groupBy("sender", "receiver").sum("sent", "lost").collect()
    guessed = {(row[0], row[1]): (row[2], row[3]) for row in sums}
    # What a's record does not have: 100 to 199, of which 100 to 104, 120 to 159 and 190 to 199.
    assert guessed == {("a", "b"): (100, 55), ("a", "c"): (100, 0), ("x", "c"): (279, 139)}
    lengths = guesses.guessed_bursts(made.guessed).where("sender = 'a'").collect()
    assert sorted(row.length for row in lengths) == [5, 10, 40]
    minutes = delivery.counted(delivery.by_minute(made.matched, SLOT_NS), made.guessed)
    bases = {(row.sender, row.minute): row.basis for row in minutes.where("receiver != 'a'").collect()}
    assert [bases["a", at(60 * minute)] for minute in range(4)] == ["record", "both", "gaps", "record"]
    assert bases["x", at(0)] == "gaps"


def test_gaps_have_the_times_of_their_numbers(spark: SparkSession) -> None:
    """Numbers that are lost one at a time are no outage, though a word of 64 has several of them."""
    lost = {*range(10, 200, 10), *range(205, 300), *range(301, 304)}
    rows = recording("b", 0, 100)
    for seq in range(500):
        if seq not in lost:
            rows.append(datagram("b", 20 + seq / 10, "x/p/1", 2**63 + seq))
    found = guesses.guessed_bursts(Made(spark, rows).guessed).persist()
    nearby = [
        (round((row.from_ns - ns(20)) / 1e8), round((row.until_ns - ns(20)) / 1e8), row.length)
        for row in found.orderBy("from_ns").collect()
    ]
    assert nearby == [
        *((seq, seq, 1) for seq in range(10, 200, 10)), (205, 299, 95), (301, 303, 3),
    ]  # fmt: skip
    outages = delivery.outages(found).orderBy("from_ns").collect()
    assert [row.lost for row in outages] == [1] * 19 + [95, 3]


def test_a_leap_in_numbers_costs_few_rows(spark: SparkSession) -> None:
    """Though a datagram that anybody makes up may leap over a million, which are lost then but for those known."""
    leap = words.JUMP - 64
    rows = [*recording("a", 0, 20), *recording("a", 80, 100), *recording("b", 0, 100)]
    for second in range(10, 90, 10):
        rows += [datagram("b", second, src, second // 10 * leap) for src in ("x/p/1", "a/p/1")]
    # The record of a has the first leap whole, and these numbers of the second one.
    known = [2 * leap + 64 * word for word in (1, 700, 701, 5000)]
    rows += [sent("a", 10 + place, "a/p/1", seq) for place, seq in enumerate(known)]
    found = Made(spark, rows).guessed
    sums = found.groupBy("src").agg(F.count("*"), F.sum("lost"), F.sum("sent"), F.max("words"))
    counts = {src: (lost, sent, most) for src, _, lost, sent, most in sums.collect()}
    assert counts["x/p/1"] == (7 * (leap - 1), 7 * leap + 1, guesses.RUN)
    assert counts["a/p/1"] == (6 * (leap - 1) - len(known), 6 * leap - len(known), guesses.RUN)
    assert found.count() < 2 * 7 * (leap // 64 // guesses.RUN + 4) + 2 * len(known)
    lengths = {src: sorted(row.length for row in guesses.guessed_bursts(found).where(f"src = '{src}'").collect())
               for src in counts}  # fmt: skip
    assert lengths["x/p/1"] == [leap - 1] * 7
    cuts = [2 * leap, *known, 3 * leap]
    between = [end - begin - 1 for begin, end in pairwise(cuts)]
    assert lengths["a/p/1"] == sorted([*between, *[leap - 1] * 5])
