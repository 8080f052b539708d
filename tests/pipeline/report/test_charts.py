import re
from datetime import UTC, datetime, timedelta

import pytest

from bccnd.pipeline.report import charts
from bccnd.pipeline.report.rows import Bin, Block, Gap, Pair, Recorder, Silence
from bccnd.pipeline.report.wording import Clock

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
HOUR = (NOON, NOON + timedelta(hours=1))
CLOCK = Clock(*HOUR)


def minute(number: float) -> datetime:
    return NOON + timedelta(minutes=number)


def test_steps_do_not_overlap_where_a_record_begins() -> None:
    start = datetime(2026, 8, 1, 12, 0, 45, tzinfo=UTC)
    minutes = [start.replace(second=0) + timedelta(minutes=number) for number in range(3)]
    bins = [Bin("", "", minute, 100, number) for number, minute in enumerate(minutes)]
    drawn = charts.curve(bins, (start, start + timedelta(minutes=2)), 60, 360, 130)
    edges = [float(number) for number in re.findall(r"[MH]([0-9.]+)", drawn.line)]
    # 15 seconds, a minute, and 45 seconds of the third.
    assert edges == sorted(edges)
    assert edges[1] - edges[0] == pytest.approx((drawn.right - drawn.left) / 8, abs=0.2)


def test_heat_map_distinguishes_no_loss_from_unknown_loss() -> None:
    pairs = [
        Pair("a", "b", 100, 0),
        Pair("b", "a", 100, 3),
        Pair("c", "a", 100, 60, "gaps"),
        Pair("c", "b", 0, 0),
    ]
    drawn = charts.heat_map(pairs, ["a", "b", "c"], ["a", "b"])
    assert [(field.colour, field.text) for field in drawn.fields] == [
        (-2, ""), (0, "0"),
        (3, "3.0 %"), (-2, ""),
        (6, "≥60.0 %"), (-1, "?"),
    ]  # fmt: skip
    assert drawn.fields[2].tip == "b to a: 3.0 percent lost, 3 of 100 messages"
    assert drawn.fields[4].tip == "c to a: at least 60.0 percent lost, 60 of 100 messages"


@pytest.mark.parametrize(("hosts", "numbers"), [(1, True), (14, True), (15, False), (40, False)])
def test_fields_have_numbers_if_they_fit(hosts: int, numbers: bool) -> None:
    names = [f"node{n}" for n in range(hosts)]
    drawn = charts.heat_map([Pair("node0", "node1", 10, 1)], names, names)
    assert drawn.numbers is numbers
    assert len(drawn.fields) == hosts * hosts
    assert max(field.x for field in drawn.fields) + drawn.side <= drawn.width <= charts.WIDE
    assert max(field.y for field in drawn.fields) + drawn.side <= drawn.height


def test_labels_have_room() -> None:
    assert charts.breadth("") == 0
    assert charts.breadth("ill") < charts.breadth("abc") < charts.breadth("mmm")
    names = ["node-with-a-long-name-1", "b"]
    drawn = charts.heat_map([Pair(*names, 10, 1)], names, names)
    assert drawn.slanted
    assert drawn.left > charts.breadth("node-with-a-long-…")


def test_neighbours_in_a_thumbnail_share_a_stroke() -> None:
    blocks = [
        Block(0, 3, 0.3),
        Block(0, 1, 0.3),
        Block(0, 2, 0.3),
        Block(0, 5, 0.3),
        Block(2, 0, 0.002),
        Block(1, 1, 0),
    ]
    assert charts.thumbnail(blocks, 6).paths == [(2, "M0 2.5h1"), (5, "M1 0.5h3M5 0.5h1")]


def test_curve_breaks_where_nothing_was_sent() -> None:
    bins = [Bin("", "", minute(0), 100, 0), Bin("", "", minute(1), 100, 3), Bin("", "", minute(30), 100, 1)]
    drawn = charts.curve(bins, HOUR, 60, 1040, 200)
    assert [tick.label for tick in drawn.y] == ["0 %", "2.5 %", "5 %"]
    assert drawn.line.count("M") == 2
    assert drawn.area.count("Z") == 2


def test_curve_without_bins_is_empty() -> None:
    drawn = charts.curve([], HOUR, 60, 360, 200)
    assert (drawn.area, drawn.line) == ("", "")


def test_latency_strips_stay_within_the_picture() -> None:
    pairs = [
        Pair("a", "b", 9, 0, method="both-ways", p50=85, p90=200, p99=4000, top=2_000_000),
        Pair("b", "a", 9, 0, method="both-ways", p50=0, p90=0, p99=0, top=0),
    ]
    for width in (charts.WIDE, charts.NARROW):
        drawn = charts.latency_strips(pairs, width)
        first, second = drawn.strips
        assert drawn.left <= first.p50 < first.p90 < first.p99 < first.top <= drawn.right
        assert second.p50 == second.top == drawn.left
        assert len(drawn.x) >= 2


def test_sources_still_silent_have_the_first_lanes() -> None:
    rows = [
        Silence("b/x/1", minute(0), minute(40), 5, ("a",), False),
        Silence("c/x/1", minute(50), minute(55), 5, ("a", "b"), True),
        Silence("b/x/1", minute(45), minute(46), 5, ("a",), False),
    ]
    drawn = charts.silences(rows, HOUR, CLOCK, charts.WIDE)
    assert [(lane.label, [one.kind for one in lane.stretches]) for lane in drawn.lanes] == [
        ("c/x/1", ["lasting"]), ("b/x/1", ["silent", "silent"]),
    ]  # fmt: skip
    lasting = drawn.lanes[0].stretches[0]
    assert lasting.x + lasting.width == pytest.approx(drawn.right)
    assert lasting.tip == "c/x/1: silent since 12:50, noticed by a and b"


def test_recorder_lane_leaves_out_pauses() -> None:
    rows = [Recorder("a", minute(0), minute(60), 600, 1200, 1, (Gap(minute(20), minute(30)),))]
    (lane,) = charts.coverage(rows, HOUR, CLOCK, charts.WIDE).lanes
    first, second = lane.stretches
    assert first.x + first.width < second.x
    assert second.width == pytest.approx(1.5 * first.width, rel=0.01)
    assert lane.note == "1,200 missed"


@pytest.mark.parametrize(
    ("value", "most", "length"), [(0, 0, 0), (0, 5, 0), (1, 100_000, 1), (50, 100, 50), (5, 5, 100)]
)
def test_length_of_a_bar(value: float, most: float, length: float) -> None:
    assert charts.bar(value, most) == length
