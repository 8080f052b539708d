"""``bccnd/pipeline/report/evidence.py``, over literal tables."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bccnd.pipeline.report import faults
from bccnd.pipeline.report.rows import (
    Culprit,
    CutOff,
    Dropped,
    HostLoss,
    Late,
    OffClock,
    OtherKey,
    Totals,
    Unheard,
)
from tests.pipeline.report.test_queries import NOON, asked, at, delivery


def test_cut_off_hosts_are_found_where_third_hosts_show_it(tmp_path: Path) -> None:
    healthy = [delivery(a, b, 10, 0) for a in "abc" for b in "abc" if a != b]
    rows = [delivery(a, "d", 10, 10) for a in "abc"] + [delivery("d", a, 20, 1) for a in "abc"]
    rows += [delivery("m", a, 30, 30) for a in "abcd"] + [delivery(a, "m", 10, 0) for a in "abcd"]
    with asked(tmp_path, delivery=healthy + rows) as ask:
        found, told = ask.cut_off()
        assert found == [CutOff("m", "mute", 3, 90), CutOff("d", "deaf", 3, 30)]
        assert told == []  # of what m sent to d, both explain it


def test_of_two_hosts_nobody_knows_which_is_cut_off(tmp_path: Path) -> None:
    with asked(tmp_path, delivery=[delivery("a", "b", 10, 10), delivery("b", "a", 10, 0)]) as ask:
        assert ask.cut_off() == ([], [Unheard("a", "b", 10)])


def test_what_was_lost_inside_a_host_is_summed(tmp_path: Path) -> None:
    rows = [
        {"host": "c", "hour": hour, "client": client, "messages": count}
        for hour, client, count in ((NOON, None, 5), (at(60), None, 2), (NOON, "c/ledger/9", 9))
    ]
    with asked(tmp_path, drops=rows) as ask:
        assert ask.drops() == [Dropped("c", "c/ledger/9", 9), Dropped("c", None, 7)]


def test_recorded_host_in_no_pair_has_no_segment(tmp_path: Path) -> None:
    coverage = [{"host": host, "from_ns": 0, "until_ns": 9, "unrecorded": 0} for host in "abd"]
    with asked(tmp_path / "1", coverage=coverage, delivery=[delivery("a", "b", 10, 0)]) as ask:
        assert ask.placeless() == ["d"]
    with asked(tmp_path / "2", coverage=coverage) as ask:
        assert ask.placeless() == []


def test_hosts_that_reject_each_other_have_different_keys(tmp_path: Path) -> None:
    healthy = [delivery(a, b, 10, 0) for a in "abf" for b in "abf" if a != b]
    apart = [delivery("k", a, 10, 10) for a in "ab"] + [delivery(a, "k", 10, 10) for a in "ab"]
    rejected = [
        {
            "host": host, "hour": NOON, "verdict": "hmac", "peer": f"10.0.0.{peer}", "peer_host": peer,
            "datagrams": count, "first": NOON, "last": at(9), "example_channel": "c",
        }
        for host, peer, count in (
            ("a", "k", 9), ("b", "k", 8), ("k", "a", 5), ("k", "b", 6), ("a", "f", 3), ("a", None, 2),
        )
    ]  # fmt: skip
    with asked(tmp_path, delivery=healthy + apart, rejected=rejected) as ask:
        # A program on f forges, but f itself has the key.
        assert ask.other_keys() == [OtherKey("k", 2, 9, 11), OtherKey("a", 1, 5, 9), OtherKey("b", 1, 6, 8)]
        assert [(row.peer_host, row.datagrams) for row in ask.rejections(["k"])[0]] == [("f", 3), ("", 2)]


def test_late_messages_are_summed_by_receiver(tmp_path: Path) -> None:
    rows = [
        delivery("a", "b", 100, 10, late=4),
        delivery("a", "b", 100, 10, at(60), late=3),
        delivery("c", "b", 50, 9, late=9),
        delivery("b", "a", 50, 9, late=0),
    ]
    reordering = [
        {"receiver": "b", "src": "a/x/1", "hour": NOON, "reordered": 9, "distance_p50": 2, "distance_max": 7}
    ]
    with asked(tmp_path, delivery=rows, reordering=reordering) as ask:
        assert ask.late() == [Late("b", "c", 2, 250, 16, 7, further=True)]
    for row in rows:
        row["repaired"] = 30
    with asked(tmp_path, delivery=rows) as ask:
        assert ask.late() == [Late("b", "c", 2, 250, 16, 7, further=True, repaired=90)]


def test_clock_is_off_if_it_is_for_more_than_half_of_the_others(tmp_path: Path) -> None:
    clocks = {"a": 0.0, "b": 20.0, "c": 4_999_994.0, "d": 900.0}
    rows = [
        delivery(one, other, 10, 0, clock_offset_us=clocks[other] - clocks[one])
        for one in clocks for other in clocks if one != other
    ]  # fmt: skip
    with asked(tmp_path, delivery=rows) as ask:
        assert ask.clocks() == [OffClock("c", 4_999_974.0, 3, 3)]


def test_source_carries_the_loss_if_it_sent_little_of_all(tmp_path: Path) -> None:
    rows = [
        {"sender": src[0], "receiver": receiver, "src": src, "hour": NOON, "sent": count, "lost": lost}
        for src, receiver, count, lost in (
            ("a/x/1", "b", 500, 200), ("a/x/1", "c", 500, 110), ("a/y/1", "b", 50_000, 5), ("a/y/1", "c", 49_000, 5),
            ("b/x/1", "a", 100, 50), ("b/y/1", "a", 100, 40), ("c/x/1", "a", 100, 50),
        )
    ]  # fmt: skip
    with asked(tmp_path, losses=rows) as ask:
        assert ask.culprits() == [Culprit("a/x/1", "a", 1000, 310, 100_000, 320, ("b", "c"), 2)]


def test_loss_in_common_is_of_senders_and_weighed_for_receivers(tmp_path: Path) -> None:
    rows = [delivery("a", "c", 100, 30), delivery("b", "c", 100, 10), delivery("a", "b", 100, 0)]
    senders = [
        {"sender": sender, "hour": NOON, "lost": lost, "lost_everywhere": common}
        for sender, lost, common in (("a", 40, 30), ("b", 10, 0))
    ]
    with asked(tmp_path, delivery=rows, senders=senders) as ask:
        common = {(row.host, row.role): row.common for row in ask.host_losses()}
        assert common == pytest.approx(
            {("a", "sender"): 0.75, ("b", "sender"): 0.0, ("c", "receiver"): 0.5625}
        )


def test_receivers_that_lose_make_no_causes_of_their_senders(tmp_path: Path) -> None:
    # c and d lose a twentieth of what most send, everybody else next to nothing.
    rows = [
        delivery(
            a, b, 400_000 if a in "cd" else 100_000, 0, repaired=5000 if b in "cd" else 80 if a in "cd" else 20
        )
        for a in "abcde" for b in "abcde" if a != b
    ]  # fmt: skip
    with asked(tmp_path, delivery=rows) as ask:

        def left(explained: Sequence[HostLoss]) -> Totals:
            totals = ask.left(explained)
            return totals._replace(lost=totals.missed)

        assert "sender" in {row.role for row in faults.causes(ask.host_misses(), left([]))}
        found = faults.one_by_one(ask.host_misses, left)
        assert [(row.host, row.role, row.lossy, row.partners) for row in found] == [
            ("c", "receiver", 4, 4), ("d", "receiver", 4, 4),
        ]  # fmt: skip
        assert ask.left(found) == Totals(sent=3_000_000, repaired=600)
        assert faults.one_by_one(ask.host_losses, ask.left) == []


def test_one_bad_pair_makes_no_cause_of_its_hosts(tmp_path: Path) -> None:
    """Everybody loses a little of everybody, and b hears nothing of a for a while: neither is to blame."""
    rows = [
        delivery(a, b, 8000, 1800 if (a, b) == ("a", "b") else 200 + 10 * ord(b) % 50)
        for a in "abcd" for b in "abc" if a != b
    ]  # fmt: skip
    with asked(tmp_path, delivery=rows) as ask:
        assert max(row.loss for row in ask.host_losses()) > 0.08
        assert faults.one_by_one(ask.host_losses, ask.left) == []


def test_causes_are_told_of_all_their_partners(tmp_path: Path) -> None:
    # Everybody loses of m, and c of everybody.
    rows = [
        delivery(a, b, 10_000, 900 if b == "c" else 500 if a == "m" else 0)
        for a in "abcdm" for b in "abcdm" if a != b
    ]  # fmt: skip
    with asked(tmp_path, delivery=rows) as ask:
        found = faults.one_by_one(ask.host_losses, ask.left)
        assert [(row.host, row.role, row.lossy, row.partners, row.lost) for row in found] == [
            ("c", "receiver", 4, 4, 3600), ("m", "sender", 3, 4, 1500),
        ]  # fmt: skip


def test_loss_on_the_way_has_evidence_of_its_own(tmp_path: Path) -> None:
    rows = [
        delivery("a", "c", 100, 1, repaired=29),
        delivery("b", "c", 100, 0, repaired=10),
        delivery("a", "b", 100, 0),
    ]
    senders = [
        {
            "sender": sender, "hour": NOON, "lost": lost, "lost_everywhere": lost, "missed": missed,
            "missed_everywhere": 6,
        }
        for sender, lost, missed in (("a", 1, 30), ("b", 0, 10))
    ]  # fmt: skip
    with asked(tmp_path, delivery=rows, senders=senders) as ask:
        found = {
            (row.host, row.role): (row.lossy, row.lost, row.repaired, row.common) for row in ask.host_misses()
        }
        assert found == {
            ("a", "sender"): (1, 30, 29, 0.2), ("b", "sender"): (1, 10, 10, 0.6),
            ("c", "receiver"): (2, 40, 39, pytest.approx(0.3)),
        }  # fmt: skip
        assert {(row.host, row.lost, row.repaired) for row in ask.host_losses()} == {("a", 1, 0), ("c", 1, 0)}
