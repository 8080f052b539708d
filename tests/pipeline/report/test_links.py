"""``bccnd/pipeline/report/links.py``: what is said of links between segments, and where they stand on the page."""

from bccnd.pipeline.report import links
from bccnd.pipeline.report.findings import Level
from bccnd.pipeline.report.rows import Link, Pair

SOUTH = Link("north", "south", "N1", "s1", 1000, 70, 0, 1800, 1810, 0, "both-ways", 21_000.0, 90_000.0)
ABOUT = {"link": "north -> south", "receiver": "s1"}


def said(*found: Link, total: int = 0) -> list[tuple[Level, str]]:
    return [(each.level, each.sentence) for each in links.findings(found, total or len(found))]


def test_a_link_that_misses_much_is_warned_of_though_all_came() -> None:
    assert said(SOUTH) == [
        (
            Level.WARNING,
            (
                "Link north → south missed 7.0 percent of its datagrams on the way (70 of 1,000); all of them came "
                "after all. But repair costs traffic and delay: look at the path between the uplink on host N1 and "
                "host s1, and at the carrier."
            ),
        ),
        (
            Level.NOTE,
            (
                "Link north → south brought all 1,800 messages; half of them took at most 21 ms, 99 of 100 at most "
                "90 ms."
            ),
        ),
    ]
    assert [level for level, _ in said(SOUTH._replace(missed=9))] == [Level.NOTE]
    assert all(each.about == ABOUT for each in links.findings([SOUTH], 1))


def test_a_link_that_loses_is_accused_with_what_to_do() -> None:
    ((level, text), *others) = said(SOUTH._replace(lost=20))
    assert (level, text) == (
        Level.PROBLEM,
        (
            "Link north → south lost 2.0 percent of its datagrams for good (20 of 1,000): nobody kept them until "
            "they were asked for. Give the uplink on host N1 more journal_bytes (NATS: nats_bytes), and look at the "
            "path to the carrier."
        ),
    )
    assert [level for level, _ in others] == [Level.WARNING]
    assert said(SOUTH._replace(lost=1, missed=1, exporter=""))[0][1].startswith(
        "Link north → south lost 0.10 percent of its datagrams for good (1 of 1,000): nobody kept them until they "
        "were asked for. Give the uplink of segment north more"
    )


def test_what_an_uplink_gave_up_is_a_problem_of_its_own() -> None:
    assert said(SOUTH._replace(missed=0, withheld=7))[0] == (
        Level.PROBLEM,
        (
            "The uplink on host N1 gave up 7 of its messages for link north → south before the carrier took them: "
            "bccn links on that host says why, and what to do."
        ),
    )


def test_what_no_uplink_said_is_unknown() -> None:
    unsaid = Link("", "", "", "s1", 0, 0, 0, 0, None, 0, "above-fastest", 5.0, 9.0)
    assert said(unsaid) == []
    drawn = links.section([SOUTH._replace(lost=20), unsaid], 2)
    assert drawn is not None
    assert drawn["table"].rows == [
        ["link north → south", "N1 → s1", "1,810", "1,000", "70 (7.0 %)", "20 (2.0 %)", "1,800", "21 ms", "90 ms",
         "both directions"],
        ["link ? → s1", "? → s1", "-", "-", "-", "-", "-", "5 µs", "9 µs", "above the fastest"],
    ]  # fmt: skip
    assert links.section([], 0) is None
    assert len(set(drawn["table"].ids)) == 2


def test_links_stand_in_the_matrix_as_senders() -> None:
    again = SOUTH._replace(exporter="n2", lost=3)
    assert links.pairs([SOUTH, again, Link("", "", "", "w1", 0, 0, 0, 0)]) == [
        Pair("link north → south", "s1", 2000, 3, basis="link", repaired=137)
    ]
