"""``bccnd/pipeline/links.py``, ``relays.py``: two segments, a link between them, and what belongs to whom."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from bccnd.pipeline import digests, links
from bccnd.pipeline.analyse import Keeping, Span, tables
from bccnd.pipeline.layout import TABLES
from tests.pipeline.rows import at, datagram, mark, recording, sent, traffic

SEGMENTS = {"n": 1, "s": 2, "t": 3, "u": 4}
# The clocks of the south are ahead, by seconds.
AHEAD = {"s1": 0.25, "s2": 0.25}
NUMBERS, BEGIN, APART = 300, 10.0, 0.1
# The link lost one number for good, and a host of the far segment another.
ON_LINK, AT_S2 = 30, 60
# Seconds from a host to another, and across the link.
NEAR, ACROSS = 0.001, 0.02


def said(host: str, by: str, seconds: float, src: str, left_out: list[list[int]]) -> tuple[Any, ...]:
    about = {"by": by, "sources": [{"src": src, "left_out": left_out}]}
    return mark(host, seconds + AHEAD.get(host, 0), "relayed", said=about)


def came(host: str, sender: str, seconds: float, src: str, seq: int) -> tuple[Any, ...]:
    return datagram(
        host, seconds + AHEAD.get(host, 0), src, seq, peer=f"10.{SEGMENTS[sender[0]]}.0.{sender[1]}:5400"
    )


def gave(host: str, seconds: float, src: str, seq: int) -> tuple[Any, ...]:
    return sent(host, seconds + AHEAD.get(host, 0), src, seq)


def facts(host: str, seconds: float, seq: int, **others: object) -> tuple[Any, ...]:
    about = {"uplink": f"{host}/bccnd-uplink/7", "seq": seq, **others}
    return mark(host, seconds + AHEAD.get(host, 0), "link", said=about)


def looks(
    host: str, segment: str, other: str, counts: dict[str, int], exported: int
) -> list[tuple[Any, ...]]:
    """What an uplink says when it starts, and at the end."""
    own = {"segment": segment, "instance": f"of-{segment}"}
    return [
        facts(host, 2, 1, **own, exported=0, withheld=0),
        facts(host, 60, 2, **own, exported=exported, withheld=0),
        facts(host, 60, 3, link={"segment": other, "instance": f"of-{other}", **counts}),
    ]


def flow(src: str, path: tuple[str, str, str, str], *, lost: bool) -> list[tuple[Any, ...]]:
    """Every third number of a source goes from its host by the two uplinks to a host of the other segment."""
    host, exporter, importer, receiver = path
    rows = []
    for seq in range(NUMBERS):
        moment = BEGIN + APART * seq
        rows.append(gave(host, moment, src, seq))
        rows.append(came(exporter, host, moment + NEAR, src, seq))
        if seq % 3 == 0 and not (lost and seq == ON_LINK):
            moment += NEAR + ACROSS
            rows.append(gave(importer, moment, src, seq))
            if not (lost and seq == AT_S2):
                rows.append(came(receiver, importer, moment + NEAR, src, seq))
    return rows


def brought_by_two() -> list[tuple[Any, ...]]:
    """By turns, and now and then by both at once, to a host that loses one."""
    hosts = ("u1", "u2", "u3")
    rows = [row for host in hosts for row in recording(host, 0, 70)]
    rows += [said(host, by, 20, "x9/c/1", []) for host in hosts for by in hosts[:2]]
    for seq in range(NUMBERS):
        moment, brings, hears = BEGIN + APART * seq, *(hosts[:2] if seq % 2 else ("u2", "u1"))
        rows.append(gave(brings, moment, "x9/c/1", seq))
        twice = gave(hears, moment, "x9/c/1", seq)
        rows.append(came(hears, brings, moment + NEAR, "x9/c/1", seq) if seq % 100 else twice)
        if seq != LOST_BY_U3:
            rows.append(came("u3", brings, moment + NEAR, "x9/c/1", seq))
    rows += [came(a, b, 15, f"{b}/own/1", 1) for a in hosts for b in hosts if a != b]
    return rows


def brought_by_a_host_without_record() -> list[tuple[Any, ...]]:
    """Of one source is said what was left out, of the other nothing."""
    rows = [row for host in ("t2", "t3") for row in recording(host, 0, 70)]
    rows += [said("t2", "t1", 20, "x9/told/1", LEFT_OUT), said("t2", "t1", 20, "x9/quiet/1", [])]
    for src in ("x9/told/1", "x9/quiet/1"):
        rows += [came("t2", "t1", BEGIN + APART * seq, src, seq) for seq in BROUGHT if seq != LOST_BY_T2]
    return [*rows, came("t2", "t3", 15, "t3/own/1", 1)]


BROUGHT = range(0, NUMBERS, 3)
LEFT_OUT = [[seq + 1, seq + 2] for seq in BROUGHT[:-1]]
LOST_BY_T2, LOST_BY_U3 = 90, 50
COUNTS = {"datagrams": 99, "duplicates": 2, "messages": 99, "missed": 6, "lost": 1}
ROWS = [
    *(row for host in ("n1", "n2", "s1", "s2") for row in recording(host, 0, 70)),
    *flow("n2/a/1", ("n2", "n1", "s1", "s2"), lost=True),
    *flow("s2/b/1", ("s2", "s1", "n1", "n2"), lost=False),
    *(said(host, "s1", 20, "n2/a/1", LEFT_OUT) for host in ("s1", "s2")),
    *(said(host, "n1", 20, "s2/b/1", LEFT_OUT) for host in ("n1", "n2")),
    *looks("s1", "south", "north", COUNTS, 100),
    # Two recorders had the same messages.
    *(row for host in ("n1", "n2") for row in [
        (*row[:-1], host) for row in looks("n1", "north", "south", COUNTS | {"missed": 0, "lost": 0}, 100)
    ]),
    *brought_by_two(), *brought_by_a_host_without_record(),
]  # fmt: skip


class Found(NamedTuple):
    tables: dict[str, list[Row]]

    def pairs(self, hosts: str) -> dict[tuple[str, str], tuple[str, int, int]]:
        """What was sent and lost, of hosts that begin so."""
        return {
            (row.sender, row.receiver): (row.basis, row.sent, row.lost)
            for row in self.tables["delivery"]
            if row.receiver[0] in hosts
        }


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    """All of it together: an analysis takes seconds, however few rows there are."""
    rows = digests.of(traffic(spark, ROWS).persist())
    made = zip(TABLES, tables(rows, Span(), Keeping(spark)), strict=True)
    wanted = "delivery", "losses", "sources", "links"
    # Of little traffic some are made in memory.
    frames = {
        name: each if isinstance(each, DataFrame) else spark.createDataFrame(each)
        for name, each in made
        if name in wanted
    }
    return Found({name: frame.collect() for name, frame in frames.items()})


def test_filters_make_no_loss_on_either_segment(found: Found) -> None:
    assert found.pairs("ns") == {
        ("n2", "n1"): ("record", 300, 0), ("s2", "s1"): ("record", 300, 0),
        ("n1", "n2"): ("record", 100, 0), ("s1", "s2"): ("record", 99, 1),
    }  # fmt: skip
    by_source = {(row.src, row.receiver): (row.received, row.lost) for row in found.tables["sources"]}
    assert by_source["n2/a/1 via s1", "s2"] == (98, 0)
    lossy = [(row.sender, row.src, row.lost) for row in found.tables["losses"] if row.lost]
    assert [row for row in lossy if row[0] in ("n1", "n2", "s1", "s2")] == [("s1", "n2/a/1 via s1", 1)]


def test_a_link_has_a_row_with_its_loss_before_and_after_repair(found: Found) -> None:
    south, north = sorted(found.tables["links"], key=lambda row: row.far != "south")
    assert (south.near, south.far, south.exporter, south.importer, south.hour) == (
        "north", "south", "n1", "s1", at(0),
    )  # fmt: skip
    assert (south.exported, south.sent, south.arrived, south.missed, south.lost, south.messages) == (
        100, 98, 97, 6, 1, 99,
    )  # fmt: skip
    assert (north.near, north.importer, north.missed, north.lost) == ("south", "n1", 0, 0)
    for row in (south, north):
        assert row.latency_method == "both-ways"
        assert row.latency_p50_us == pytest.approx((NEAR + ACROSS) * 1e6, abs=1000)


def test_without_the_uplinks_record_only_what_is_known_is_lost(found: Found) -> None:
    """A hole of which nobody said that it was left out counts, if anything of the source was said to be."""
    assert found.pairs("t") == {("t1", "t2"): ("gaps", 2 * len(BROUGHT) - 1, 1), ("t3", "t2"): ("gaps", 1, 0)}


def test_of_two_uplinks_each_is_the_sender_of_what_it_brought(found: Found) -> None:
    brought = {pair: counts[1:] for pair, counts in found.pairs("u").items() if pair[0] != "u3"}
    one = 1  # of each itself
    assert brought == {
        ("u1", "u2"): (153 + one, 0), ("u2", "u1"): (150 + one, 0),
        ("u1", "u3"): (153 + one, 0), ("u2", "u3"): (150 + one, 1),
    }  # fmt: skip


def own(uplink: str, segment: str, hour: int = 1, exported: int = 5) -> Any:
    return SimpleNamespace(
        uplink=uplink, segment=segment, instance=f"of-{segment}", hour=hour, exported=exported, withheld=0
    )


def hears(uplink: str, segment: str, hour: int = 1) -> Any:
    counts = {"datagrams": 10, "duplicates": 1, "messages": 12, "missed": 2, "lost": 1}
    return SimpleNamespace(uplink=uplink, segment=segment, instance=f"of-{segment}", hour=hour, **counts)


def test_a_sender_belongs_to_the_segment_of_the_uplink_beside_it() -> None:
    places = [("n1", "x"), ("n2", "x"), ("w2", "y"), ("w1", "y"), ("s1", "z")]
    uplinks = [own("n1/u/1", "north"), own("w1/u/1", "west"), own("s1/u/1", "south")]
    links_of = [hears("s1/u/1", "north"), hears("s1/u/1", "west")]
    ends = [("n2", "s1"), ("w2", "s1"), ("lost", "s1")]
    found = links.ways_of(ends, uplinks, links_of, places)
    assert [way.near for way in found.values()] == ["north", "west", ""]
    assert links.ways_of([("lost", "s1")], [], links_of[:1], [])["lost", "s1"].near == "north"


def test_an_uplink_that_was_restarted_goes_on_in_its_row() -> None:
    uplinks = [own("n1/u/1", "north"), own("n1/u/2", "north"), own("s1/u/1", "south")]
    links_of = [hears("s1/u/1", "north"), hears("s1/u/1", "north", 2)]
    one, two = links.rows(uplinks, links_of, [(links.Way("", "w1"), 2, None)][:0])
    assert (one["exporter"], one["importer"], one["exported"], one["sent"]) == ("n1", "s1", 10, 10)
    assert two["hour"] == datetime(1970, 1, 1, 2, tzinfo=UTC)
    assert "exported" not in two


def test_counts_that_nobody_has_end_no_analysis(spark: SparkSession) -> None:
    """Any program may say that it is an uplink."""
    rows = []
    for look in range(6):
        counts = dict.fromkeys(COUNTS, (2**63 - 1) * (look % 2)) | {"messages": look}
        rows.append(
            facts("n1", 2 * look, 2 * look, segment="a", instance="b", exported=counts["lost"], withheld=0)
        )
        rows.append(facts("n1", 2 * look, 2 * look + 1, link={"segment": "c", "instance": "d", **counts}))
    spoken = links.said(digests.of(traffic(spark, rows)).marks)
    own, heard_of = links.exported(spoken).collect(), links.heard(spoken).collect()
    (row,) = links.rows(own, heard_of, [])
    assert (row["sent"], row["lost"], row["messages"]) == (0, 0, 5)
    assert links.table([row]).num_rows == 1


def test_many_uplinks_cost_no_more_than_a_look_at_each() -> None:
    """A program can name as many as it sends messages."""
    looks = 0

    class Looked(SimpleNamespace):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looks
            looks += name in ("uplink", "segment")
            return super().__getattribute__(name)

    many = 200
    uplinks = [Looked(**vars(own(f"n{each}/u/1", f"of {each}"))) for each in range(many)]
    links_of = [Looked(**vars(hears(f"s{each}/u/1", f"of {each}"))) for each in range(many)]
    ends = [(f"n{each}", f"s{each}") for each in range(many)]
    ways = links.ways_of(ends, uplinks, links_of, ends)
    assert len(ways) == len(links.rows(uplinks, links_of, [])) == many
    assert looks < 20 * many
