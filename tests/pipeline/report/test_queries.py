"""``bccnd/pipeline/report/queries.py``, over literal tables."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bccnd.pipeline.report import sections
from bccnd.pipeline.report.queries import THUMBNAIL, Summaries, block_hosts
from bccnd.pipeline.report.rows import (
    Bin,
    Block,
    Gap,
    HostLoss,
    Link,
    Pair,
    Reason,
    Rejection,
    Silence,
    Totals,
)
from tests.pipeline.report.tables import nanoseconds, write_table

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def delivery(
    sender: str, receiver: str, sent: int, lost: int, hour: datetime = NOON, **more: Any
) -> dict[str, Any]:
    latency = {
        "latency_p50_us": 100.0,
        "latency_p90_us": 200.0,
        "latency_p99_us": 300.0,
        "latency_max_us": 400.0,
    }
    return {
        "sender": sender, "receiver": receiver, "hour": hour, "basis": "record", "sent": sent,
        "received": sent - lost, "lost": lost, "loss": lost / sent, "bursts": lost, "burst_p50": 1, "burst_max": 2,
        "latency_method": "both-ways", **latency, **more,
    }  # fmt: skip


@contextmanager
def asked(directory: Path, **tables: list[dict[str, Any]]) -> Iterator[Summaries]:
    for name, rows in tables.items():
        write_table(directory, name, rows)
    ask = Summaries(str(directory))
    try:
        yield ask
    finally:
        ask.close()


def test_missing_tables_give_no_rows(tmp_path: Path) -> None:
    with asked(tmp_path) as ask:
        assert ask.period() is None
        assert ask.totals() == Totals()
        assert ask.matrix_hosts(0) == ([], [])
        assert ask.episodes([]) == ([], 0)
        assert ask.silences() == ([], 0)
        assert ask.recorders() == ([], 0)
        assert ask.channels() == ([], 0, 0, 0)
        assert ask.bins(60, []) == []


def test_hours_are_summed_and_a_host_is_no_pair_with_itself(tmp_path: Path) -> None:
    rows = [
        delivery("a", "b", 100, 10, burst_p50=5),
        delivery("a", "b", 300, 0, at(60), latency_p50_us=500.0, basis="gaps", burst_p50=0),
        delivery("b", "a", 50, 0, latency_method=None, latency_p50_us=None),
        delivery("a", "a", 999, 999),
    ]
    with asked(tmp_path, delivery=rows) as ask:
        assert ask.totals() == Totals(hosts=2, pairs=2, lossy_pairs=1, sent=450, lost=10, measured=1)
        (worst,) = ask.worst_pairs()
        assert (worst.sent, worst.lost, worst.basis, worst.burst_p50) == (400, 10, "both", 5)
        assert worst.p50 == pytest.approx((100 * 90 + 500 * 300) / 390)
        assert len(ask.slowest_pairs()) == 1
        assert ask.hosts_without_recorder() == ([], 0)  # it was off for an hour
        assert ask.period() == (NOON, at(120))
        assert ask.host_losses() == [
            HostLoss("a", "sender", 1, 1, 400, 10, worst_sent=400, worst_lost=10),
            HostLoss("b", "receiver", 1, 1, 400, 10, worst_sent=400, worst_lost=10),
        ]


def test_repaired_pairs_are_summed_without_what_is_unknown(tmp_path: Path) -> None:
    times = ("direct_p50_us", "direct_p99_us", "repaired_p50_us", "repaired_p99_us")
    known = dict(zip(times, (100.0, 900.0, 20_000.0, 60_000.0), strict=True))
    rows = [
        delivery("a", "c", 1000, 10, repaired=90, **known),
        delivery("a", "c", 1000, 0, at(60), repaired=30, **known | {"repaired_p50_us": 40_000.0}),
        delivery("b", "c", 500, 0, repaired=30, **dict.fromkeys(times)),
        delivery("c", "a", 500, 5, repaired=0, **known | dict.fromkeys(times[2:])),
    ]
    with asked(tmp_path, delivery=rows) as ask:
        assert (ask.totals().lost, ask.totals().repaired, ask.totals().missed) == (15, 150, 165)
        pairs, count, whole = ask.repaired_pairs()
        assert [(pair.sender, pair.receiver, pair.missed) for pair in pairs] == [
            ("a", "c", 130),
            ("b", "c", 30),
        ]
        assert (pairs[0].repaired_p50, pairs[0].repaired_p99) == (25_000, 60_000)
        assert (pairs[0].direct_p50, pairs[0].direct_p99) == (100, 900)
        assert (pairs[1].repaired_p50, pairs[1].direct_p99) == (None, None)
        assert (count, whole.sent, whole.lost, whole.repaired) == (2, 2500, 10, 150)
        assert (whole.repaired_p50, whole.direct_p99) == (25_000, 900)
        assert ask.matrix_hosts(3, "lost + repaired") == (["a", "b", "c"], ["a", "c"])


def test_mended_pairs_are_those_that_no_host_explains(tmp_path: Path) -> None:
    rows = [
        delivery("a", "c", 1000, 2, repaired=48),
        delivery("b", "c", 1000, 2, repaired=47),
        delivery("a", "b", 1000, 0, repaired=9),  # less than a hundredth
        delivery("b", "a", 1000, 20, repaired=19),  # most of it stayed lost
        delivery("c", "k", 1000, 0, repaired=50),
        delivery("d", "a", 1000, 0, repaired=10),
    ]
    with asked(tmp_path, delivery=rows) as ask:
        pairs, count = ask.mended([], ["k"])
        assert ([(pair.sender, pair.receiver) for pair in pairs], count) == (
            [("a", "c"), ("b", "c"), ("d", "a")], 3,
        )  # fmt: skip
        pairs, count = ask.mended([HostLoss("c", "receiver", 2, 2, 2000, 99)], ["k"])
        assert ([pair.sender for pair in pairs], count) == (["d"], 1)


def test_one_bad_host_does_not_fill_the_worst_pairs(tmp_path: Path) -> None:
    rows = [delivery(f"s{n}", "bad", 1000, 100 + n) for n in range(9)] + [delivery("s0", "r", 1000, 1)]
    with asked(tmp_path, delivery=rows) as ask:
        assert [(pair.sender, pair.receiver) for pair in ask.worst_pairs()] == [
            ("s8", "bad"), ("s7", "bad"), ("s6", "bad"), ("s5", "bad"), ("s0", "r"),
        ]  # fmt: skip


def test_hosts_are_in_natural_order(tmp_path: Path) -> None:
    names = ["node10", "node2", "node1", "gate", "x" + "9" * 30]
    rows = [delivery(name, "gate", 10, 0) for name in names if name != "gate"] + [
        delivery("gate", "node1", 10, 1)
    ]
    with asked(tmp_path, delivery=rows) as ask:
        senders, receivers = ask.matrix_hosts(5)
        assert senders == ["gate", "node1", "node2", "node10", "x" + "9" * 30]
        assert receivers == ["gate", "node1"]
        assert [pair.loss for pair in ask.matrix(senders, ["node1"])] == [0.1]


def test_thumbnail_has_the_worst_of_each_block(tmp_path: Path) -> None:
    rows = [delivery("n1", "n4", 100, 3), delivery("n2", "n3", 100, 50), delivery("n3", "n1", 100, 0)]
    with asked(tmp_path, delivery=rows) as ask:
        assert sorted(ask.thumbnail(4)) == [Block(0, 3, 0.03), Block(1, 2, 0.5)]
        assert ask.thumbnail(2 * THUMBNAIL) == [Block(0, 1, 0.5)]


@pytest.mark.parametrize(("hosts", "block"), [(0, 1), (THUMBNAIL, 1), (THUMBNAIL + 1, 2), (5 * THUMBNAIL, 5)])
def test_thumbnail_has_a_limit_of_blocks(hosts: int, block: int) -> None:
    assert block_hosts(hosts) == block


def test_explained_episodes_are_left_out_unless_severe(tmp_path: Path) -> None:
    rows = [
        {
            "sender": sender,
            "receiver": receiver,
            "from": at(1),
            "until": at(3),
            "sent": 100,
            "lost": lost,
            "burst_p50": 2,
        }
        for sender, receiver, lost in (("a", "bad", 20), ("b", "bad", 60), ("a", "b", 5))
    ]
    with asked(tmp_path, episodes=rows) as ask:
        found, count = ask.episodes([HostLoss("bad", "receiver", 2, 2, 200, 80)])
        assert ([(row.receiver, row.lost) for row in found], count) == ([("bad", 60), ("b", 5)], 2)
        assert (found[0].start, found[0].end) == (at(1), at(3))
        assert ask.episodes([])[1] == 3


def test_captures_are_told_from_recorders(tmp_path: Path) -> None:
    rows = [
        {
            "host": host, "from_ns": nanoseconds(at(start)), "until_ns": nanoseconds(at(60)), "unrecorded": 0,
            "capture": capture, "counted": counted,
        }
        for host, start, capture, counted in (
            ("a", 0, False, True), ("a", 30, True, False), ("b", 0, True, True), ("c", 0, False, True),
        )
    ]  # fmt: skip
    with asked(tmp_path, coverage=rows) as ask:
        assert ask.captured() == (["b"], ["a"])
        assert [(row.host, row.start, row.capture) for row in ask.recorders()[0]] == [
            ("a", at(0), False), ("b", at(0), True), ("c", at(0), False),
        ]  # fmt: skip


def test_loss_is_summed_in_bins(tmp_path: Path) -> None:
    rows = [
        {"sender": sender, "receiver": "b", "minute": at(minute), "sent": 10, "lost": lost}
        for sender, minute, lost in (("a", 0, 1), ("a", 1, 2), ("c", 1, 4), ("a", 5, 0), ("b", 0, 9))
    ]
    with asked(tmp_path, minutes=rows) as ask:
        assert sorted(ask.bins(300, [Pair("a", "b", 0, 0)])) == [
            Bin("", "", at(0), 30, 7), Bin("", "", at(5), 10, 0),
            Bin("a", "b", at(0), 20, 3), Bin("a", "b", at(5), 10, 0),
        ]  # fmt: skip


def test_short_records_have_steps_below_a_minute(tmp_path: Path) -> None:
    rows = [
        {
            "sender": pair[0],
            "receiver": pair[1],
            "from": at(place / 60),
            "seconds": 2,
            "sent": 10,
            "lost": lost,
        }
        for pair, place, lost in ((("", ""), 0, 3), (("", ""), 2, 0), (("a", "b"), 0, 3))
    ]
    with asked(tmp_path, steps=rows) as ask:
        assert ask.step_seconds() == 2
        assert sorted(ask.bins(2, [])) == [
            Bin("", "", at(0), 10, 3), Bin("", "", at(2 / 60), 10, 0), Bin("a", "b", at(0), 10, 3),
        ]  # fmt: skip
    with asked(tmp_path / "none") as ask:
        assert ask.step_seconds() is None


def covered(host: str, start: float, end: float, unrecorded: int = 0) -> dict[str, Any]:
    return {
        "host": host, "from_ns": nanoseconds(at(start)), "until_ns": nanoseconds(at(end)), "unrecorded": unrecorded,
    }  # fmt: skip


def test_gaps_between_files_are_pauses(tmp_path: Path) -> None:
    rows = [
        covered("a", 0, 10), covered("a", 10.02, 20, 7), covered("a", 30, 40), covered("a", 25, 31),
        covered("a", 41, 60), covered("b", 0, 60),
    ]  # fmt: skip
    with asked(tmp_path, coverage=rows) as ask:
        (first, second), count = ask.recorders()
        assert (first.host, first.missing, first.unrecorded, first.pauses) == ("a", 360, 7, 2)
        assert first.gaps == (Gap(at(20), at(25)), Gap(at(40), at(41)))
        assert (second.host, second.missing, second.gaps, count) == ("b", 0, (), 2)
        assert ask.period() == (at(0), at(60))


def test_overlapping_silences_of_a_source_are_one(tmp_path: Path) -> None:
    rows = [
        {
            "observer": observer, "src": src, "from": at(start), "until": at(end), "seconds": 1.0, "expected_s": 5.0,
        }
        for observer, src, start, end in (
            ("a", "x", 1, 5), ("b", "x", 2, 6), ("a", "x", 20, 21), ("a", "y", 50, 60), ("b", "y", 50.5, 60),
            ("b", "z", 45, 55), ("a", "z", 46, 57),
        )
    ]  # fmt: skip
    marks = [covered("a", 0, 60), covered("b", 0, 60)]
    with asked(tmp_path, silences=rows, coverage=marks) as ask:
        assert ask.silences() == (
            [
                Silence("y", at(50), at(60), 5, ("a", "b"), True),
                Silence("z", at(45), at(57), 5, ("a", "b"), False),
                Silence("x", at(1), at(6), 5, ("a", "b"), False),
                Silence("x", at(20), at(21), 5, ("a",), False),
            ],
            4,
        )


def test_broadcast_rejected_by_several_hosts_counts_once(tmp_path: Path) -> None:
    rows = [
        {
            "host": host, "hour": at(hour * 60), "verdict": verdict, "peer": peer, "datagrams": count,
            "first": at(hour * 60 + 1), "last": at(hour * 60 + 9), "example_channel": channel,
        }
        for host, hour, verdict, peer, count, channel in (
            ("a", 0, "hmac", "p", 10, "c"), ("a", 1, "hmac", "p", 5, "c"), ("b", 0, "hmac", "p", 9, "c"),
            ("a", 0, "duplicate", "q", 500, None), ("a", 0, "magic", None, 1, None),
        )
    ]  # fmt: skip
    with asked(tmp_path, rejected=rows) as ask:
        assert ask.rejections() == (
            [
                Rejection("hmac", "p", 15, 2, "a", at(1), at(69), "c"),
                Rejection("magic", "this host", 1, 1, "a", at(1), at(9), ""),
            ],
            2,
        )
        assert ask.reasons() == [
            Reason("duplicate", 500, 1, 1),
            Reason("hmac", 15, 1, 2),
            Reason("magic", 1, 0, 1),
        ]


def test_sizes_are_those_of_hours_that_have_payloads(tmp_path: Path) -> None:
    """``bccnd-record --payloads none`` leaves them out."""
    channels = [
        {
            "channel": channel, "hour": hour, "messages": 5, "bytes": 50, "rate_peak": 1, "payload_p50": size,
            "payload_p95": size, "payload_max": size,
        }
        for channel, hour, size in (("never", NOON, None), ("once", NOON, 8), ("once", at(60), None))
    ]  # fmt: skip
    with asked(tmp_path, channels=channels) as ask:
        (once, never), *_ = ask.channels()
    assert (once.channel, once.messages, once.payload_p50, once.payload_max) == ("once", 10, 8.0, 8)
    assert (never.payload_p50, never.payload_p95, never.payload_max) == (None, None, None)
    shown = sections.busiest([once, never], 2, 15)
    assert shown is not None
    assert [row[-3:] for row in shown["table"].rows] == [["8", "8", "8"], ["-", "-", "-"]]


def test_channels_sources_reordering_and_copies_are_summed(tmp_path: Path) -> None:
    hours = [NOON, at(60)]
    channels = [
        {
            "channel": channel, "hour": hour, "messages": count, "bytes": 10 * count, "rate_peak": count,
            "payload_p50": 8, "payload_p95": 9, "payload_max": 10,
        }
        for hour in hours for channel, count in (("t", 3), ("u", 1))
    ]  # fmt: skip
    sources = [
        {
            "receiver": receiver, "src": "a/x/1", "hour": hour, "received": 100, "lost": 1, "duplicates": 2,
            "late": 3, "restarts": 1, "repaired": 5, "resent": 6,
        }
        for hour in hours for receiver in ("b", "c")
    ]  # fmt: skip
    reordering = [
        {"receiver": "b", "src": "a/x/1", "hour": hour, "reordered": 4, "distance_p50": 2, "distance_max": 7}
        for hour in hours
    ]
    copies = [
        {
            "sender": "a", "receiver": receiver, "hour": NOON, "copies": number, "sent": 100, "lost": 1,
            "lost_single": 5.0, "saved": 4.0,
        }
        for receiver, number in (("b", 2), ("c", 1))
    ]  # fmt: skip
    with asked(tmp_path, channels=channels, sources=sources, reordering=reordering, copies=copies) as ask:
        assert ask.channels() == ([("t", 6, 60, 3, 8.0, 9.0, 10), ("u", 2, 20, 1, 8.0, 9.0, 10)], 2, 8, 80)
        assert ask.sources() == ([("a/x/1", 2, 400, 4, 8, 12, 2, 404, 20, 24)], 1)
        assert ask.reorderings() == ([("b", "a/x/1", 200, 8, 2, 7)], 1)
        assert ask.copies() == ([("a", "b", 2, 100, 1, 5.0, 4.0)], ("", "", 2, 100, 1, 5.0, 4.0), 1)


def test_links_are_summed_and_what_nobody_said_is_unknown(tmp_path: Path) -> None:
    north = {"near": "north", "far": "south", "exporter": "n1", "importer": "s1"}
    counts = {"exported": 500, "sent": 100, "missed": 5, "lost": 1, "messages": 300, "withheld": 2}
    timed = {"latency_method": "both-ways", "latency_p50_us": 100.0, "latency_p99_us": 400.0}
    rows = [
        {**north, **counts, **timed, "hour": at(0)},
        {**north, **counts, **timed, "messages": 100, "latency_p50_us": 300.0, "hour": at(60)},
        {"near": "", "far": "", "exporter": "", "importer": "w1", "hour": at(0)},
    ]
    with asked(tmp_path, links=rows) as ask:
        links, count = ask.links()
    assert (count, links[1]) == (2, Link("", "", "", "w1", 0, 0, 0, 0))
    assert links[0] == Link("north", "south", "n1", "s1", 200, 10, 2, 400, 1000, 4, "both-ways", 150.0, 400.0)
