"""``bccnd/pipeline/guesses.py``: what gaps tell of literal rows."""

from itertools import pairwise

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline import guesses, words
from tests.pipeline.cases import Made, Rows
from tests.pipeline.rows import at, datagram, ns, recording, sent

LEAP = words.JUMP - 64
# The record of a has the first leap whole, and these numbers of the second one.
KNOWN = [2 * LEAP + 64 * word for word in (1, 700, 701, 5000)]


def hole() -> Rows:
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
    return rows


def test_gaps_judge_while_the_record_of_the_sender_has_a_hole(made: Made) -> None:
    # Of b: 20 to 24, 95 to 99, 200 to 204 and 250, in the slots that both recorded.
    assert made.counts("hole")["a", "b"] == (180, 16)
    guessed = {
        pair: tuple(sum(row[name] for row in made.guessed["hole"] if (row.sender, row.receiver) == pair)
                    for name in ("sent", "lost"))
        for pair in {(row.sender, row.receiver) for row in made.guessed["hole"]}
    }  # fmt: skip
    # What a's record does not have: 100 to 199, of which 100 to 104, 120 to 159 and 190 to 199.
    assert guessed == {("a", "b"): (100, 55), ("a", "c"): (100, 0), ("x", "c"): (279, 139)}
    lengths = [row.length for row in made.guessed_bursts["hole"] if row.sender == "a"]
    assert sorted(lengths) == [5, 10, 40]
    bases = {(row.sender, row.minute): row.basis for row in made.counted["hole"] if row.receiver != "a"}
    assert [bases["a", at(60 * minute)] for minute in range(4)] == ["record", "both", "gaps", "record"]
    assert bases["x", at(0)] == "gaps"


def one_at_a_time() -> Rows:
    lost = {*range(10, 200, 10), *range(205, 300), *range(301, 304)}
    rows = recording("b", 0, 100)
    for seq in range(500):
        if seq not in lost:
            rows.append(datagram("b", 20 + seq / 10, "x/p/1", 2**63 + seq))
    return rows


def test_gaps_have_the_times_of_their_numbers(made: Made) -> None:
    """Numbers that are lost one at a time are no outage, though a word of 64 has several of them."""
    nearby = [
        (round((row.from_ns - ns(20)) / 1e8), round((row.until_ns - ns(20)) / 1e8), row.length)
        for row in made.guessed_bursts["single"]
    ]
    assert nearby == [
        *((seq, seq, 1) for seq in range(10, 200, 10)), (205, 299, 95), (301, 303, 3),
    ]  # fmt: skip
    assert [row.lost for row in made.guessed_outages["single"]] == [1] * 19 + [95, 3]


def leaps() -> Rows:
    rows = [*recording("a", 0, 20), *recording("a", 80, 100), *recording("b", 0, 100)]
    for second in range(10, 90, 10):
        rows += [datagram("b", second, src, second // 10 * LEAP) for src in ("x/p/1", "a/p/1")]
    return rows + [sent("a", 10 + place, "a/p/1", seq) for place, seq in enumerate(KNOWN)]


def test_a_leap_in_numbers_costs_few_rows(made: Made) -> None:
    """Though a datagram that anybody makes up may leap over a million, which are lost then but for those known."""
    found = made.guessed["leaps"]
    of = {src: [row for row in found if row.src == src] for src in ("x/p/1", "a/p/1")}
    counts = {
        src: (sum(row.lost for row in rows), sum(row.sent for row in rows), max(row.words for row in rows))
        for src, rows in of.items()
    }
    assert counts["x/p/1"] == (7 * (LEAP - 1), 7 * LEAP + 1, guesses.RUN)
    assert counts["a/p/1"] == (6 * (LEAP - 1) - len(KNOWN), 6 * LEAP - len(KNOWN), guesses.RUN)
    assert len(found) < 2 * 7 * (LEAP // 64 // guesses.RUN + 4) + 2 * len(KNOWN)
    lengths = {
        src: sorted(row.length for row in made.guessed_bursts["leaps"] if row.src == src) for src in counts
    }
    assert lengths["x/p/1"] == [LEAP - 1] * 7
    cuts = [2 * LEAP, *KNOWN, 3 * LEAP]
    between = [end - begin - 1 for begin, end in pairwise(cuts)]
    assert lengths["a/p/1"] == sorted([*between, *[LEAP - 1] * 5])


@pytest.fixture(scope="module")
def made(spark: SparkSession) -> Made:
    return Made(spark, {"hole": hole(), "single": one_at_a_time(), "leaps": leaps()}, {})
