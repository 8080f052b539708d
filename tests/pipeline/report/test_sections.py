from datetime import UTC, datetime, timedelta

from bccnd.pipeline.report import sections
from bccnd.pipeline.report.rows import (
    Bin,
    Block,
    Channel,
    Copies,
    Pair,
    Reason,
    Recorder,
    Rejection,
    Reordering,
    Silence,
    Source,
    Totals,
)
from bccnd.pipeline.report.wording import Clock

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
HOUR = (NOON, NOON + timedelta(hours=1))
CLOCK = Clock(*HOUR)


def test_sections_without_rows_are_none() -> None:
    assert sections.matrix([], ([], []), Totals(), None, 1) is None
    assert sections.loss([], 60, HOUR, [], Totals()) is None
    assert sections.loss([Bin("", "", NOON, 1, 0)], 60, None, [], Totals()) is None
    assert sections.latencies([], 0) is None
    assert sections.busiest([], 0, 0) is None
    assert sections.silent([], 0, HOUR, CLOCK) is None
    assert sections.rejected([], [], 0, CLOCK) is None
    assert sections.reordered([], 0) is None
    assert sections.second_copies([], Copies("", "", 0, 0, 0, 0, 0), 0) is None
    assert sections.coverage([], 0, HOUR, CLOCK) is None
    assert sections.source_table([], 0) is None


def test_figures_at_the_top() -> None:
    found = sections.figures(
        Totals(3, 6, 1, 1000, 20), 4, (2, 5000, 1_500_000),
        [Silence("x", NOON, NOON, 5, ("a",), True), Silence("y", NOON, NOON, 5, ("a",), False)],
        [Reason("hmac", 7, 1, 1), Reason("duplicate", 900, 1, 1)],
    )  # fmt: skip
    assert [(one.name, one.value, one.level) for one in found] == [
        ("Hosts", "4", ""), ("Messages", "5,000", ""), ("Lost", "2.0 %", "problem"),
        ("Pairs with loss", "1", "warning"), ("Silent at the end", "1", "problem"), ("Rejected", "7", "problem"),
    ]  # fmt: skip


def test_figures_show_what_was_lost_on_the_way_if_any_came_again() -> None:
    found = sections.figures(Totals(3, 6, 1, 1000, 1, repaired=19), 4, (2, 5000, 1_500_000), [], [])
    assert [(one.name, one.value, one.detail, one.level) for one in found[2:4]] == [
        ("Lost", "0.10 %", "1 of 1,000, counted once per receiver", "warning"),
        ("Lost on the way", "2.0 %", "19 of 20 came again", "warning"),
    ]


def test_small_matrix_has_the_worst_pairs_beside_it() -> None:
    pairs = [Pair("a", "b", 100, 1), Pair("b", "a", 10, 5), Pair("a", "c", 10, 0)]
    drawn = sections.matrix(pairs, (["a", "b"], ["a", "b", "c"]), Totals(3, 3, 2, 120, 6), None, 1)
    assert drawn is not None
    assert drawn["thumbnail"] is None
    assert drawn["table"].rows == [["a", "-", "1.0 %", "0 %"], ["b", "50.0 %", "-", "-"]]
    assert [row[0] for row in drawn["worst"].rows] == ["b → a", "a → b"]
    assert "≥" not in drawn["lead"]
    guessed = [Pair("a", "b", 100, 1, basis="gaps")]
    assert "≥: at least" in sections.matrix(guessed, (["a"], ["b"]), Totals(2, 1, 1, 100, 1), None, 1)["lead"]


def test_large_matrix_has_a_thumbnail() -> None:
    pairs = [Pair("a", "b", 100, 1)]
    drawn = sections.matrix(pairs, (["a"], ["b"]), Totals(1000, 999_000, 1, 100, 1), [Block(0, 1, 0.01)], 5)
    assert drawn is not None
    assert drawn["thumbnail"].side == 200
    assert drawn["thumbnail_caption"].endswith("for each block of 5 hosts, coloured by the worst pair in it")


def test_loss_has_a_chart_for_each_of_the_worst_pairs() -> None:
    bins = [Bin("", "", NOON, 100, 1), Bin("a", "b", NOON, 50, 1)]
    drawn = sections.loss(bins, 300, HOUR, [Pair("a", "b", 50, 1)], Totals(3, 6, 4, 100, 1))
    assert drawn is not None
    assert (drawn["step"], drawn["peak"]) == ("5 minutes", "1.0 percent")
    assert [pair["name"] for pair in drawn["multiples"]] == ["a → b"]
    assert drawn["heading"] == "The 1 worst of 4 pairs with loss, at most 4 of one host"


def test_latency_says_how_it_was_measured() -> None:
    pair = Pair("a", "b", 50, 1, method="above-fastest", p50=10, p90=20, p99=30, top=40)
    drawn = sections.latencies([pair], 9)
    assert drawn is not None
    assert "in one direction only, it is the time above that of the fastest message" in drawn["lead"]
    assert "both directions" not in drawn["lead"]
    assert drawn["table"].rows[0][-1] == "above the fastest"
    both = sections.latencies([pair._replace(method="both-ways")], 1)
    assert both is not None
    assert both["table"].rows[0][-1] == "both directions"
    assert drawn["lead"].endswith("Of 9 pairs, the 1 with the highest 99 %.")


def test_captions_say_how_many_rows_there_are() -> None:
    channel = Channel("t", 1, 1, 1, 1, 1, 1)
    assert sections.busiest([channel], 7, 2)["table"].caption == "The 1 busiest of 7 channels"  # type: ignore[index]
    assert sections.busiest([channel], 1, 2)["table"].caption == "All channels"  # type: ignore[index]
    assert sections.reordered([Reordering("b", "x", 0, 1, 1, 1)], 3).caption == (  # type: ignore[union-attr]
        "Of 3 pairs of source and receiver, the 1 with most reordering"
    )
    source = sections.source_table([Source("x", 1, 1, 0, 0, 0, 0)], 2)
    assert source["table"].caption == "The 1 of 2 sources with most irregularities"  # type: ignore[index]
    copies = sections.second_copies(
        [Copies("a", "b", 2, 9, 0, 0.0, 0.0)], Copies("", "", 2, 9, 0, 0.0, 0.0), 2
    )
    assert copies["table"].rows[0][-1] == "-"  # type: ignore[index]


def test_each_verdict_has_its_meaning() -> None:
    row = Rejection("envelope", "p", 3, 1, "a", None, None)
    reasons = [Reason("envelope", 3, 1, 1), Reason("late", 1, 1, 1), Reason("of-a-later-version", 1, 1, 1)]
    drawn = sections.rejected(reasons, [row], 1, CLOCK)
    assert drawn is not None
    assert [(line[0], line[-1]) for line in drawn["reasons"].rows] == [
        ("envelope", "datagrams with a malformed envelope"),
        ("late", "datagrams overtaken by later ones; harmless"),
        ("of-a-later-version", "not known to this version"),
    ]
    assert drawn["peers"].rows[0][-3:] == ["-", "-", "-"]


def test_lasting_silence_has_no_end() -> None:
    rows = [Silence("x", NOON, NOON + timedelta(minutes=20), 5, ("a", "b"), True)]
    drawn = sections.silent(rows, 1, HOUR, CLOCK)
    assert drawn is not None
    assert drawn["table"].rows == [["x", "12:00", "still silent", "20 minutes", "5 s", "a and b"]]


def test_coverage_counts_what_recorders_missed() -> None:
    drawn = sections.coverage([Recorder("a", *HOUR, 65, 1200, 1)], 3, HOUR, CLOCK)
    assert drawn is not None
    assert drawn["lead"].endswith("Of 3 recorders, the 1 that missed most.")
    assert drawn["table"].rows == [["a", "12:00", "13:00", "1", "1 minute 5 seconds", "1,200"]]
