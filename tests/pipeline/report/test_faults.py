"""``bccnd/pipeline/report/faults.py``: who is accused, from literal rows."""

from bccnd.pipeline.report import faults
from bccnd.pipeline.report.findings import Finding, Level
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
from tests.pipeline.report.test_findings import ONE_DAY, at, sentences


def test_cause_is_a_host_that_loses_with_most_partners() -> None:
    totals = Totals(4, 12, 3, 12_000, 310)
    bad = HostLoss("c", "receiver", 3, 3, 3000, 300)
    a_third = HostLoss("a", "sender", 3, 1, 3000, 100)
    as_all = HostLoss("b", "receiver", 3, 3, 3000, 3)
    lone = HostLoss("d", "receiver", 1, 1, 3000, 300)
    assert faults.causes([as_all, a_third, lone, bad], totals) == [bad]


def test_receiver_that_loses_messages_of_all_senders() -> None:
    host = HostLoss("c", "receiver", 3, 3, 3000, 300, at("14:05"), at("14:20"))
    assert sentences(faults.widespread([host], ONE_DAY)) == [
        (
            "Host c lost messages of all 3 other hosts between 14:05 and 14:20, 10.0 percent in all: look for the "
            "cause at host c or its link."
        )
    ]


def test_host_that_loses_with_both_others() -> None:
    assert sentences(faults.widespread([HostLoss("a", "sender", 2, 2, 5000, 50)], ONE_DAY)) == [
        "Both other hosts lost messages of host a, 1.0 percent in all: look for the cause at host a or its link."
    ]


def test_sender_whose_messages_most_receivers_lose() -> None:
    assert sentences(faults.widespread([HostLoss("a", "sender", 5, 4, 5000, 50)], ONE_DAY)) == [
        "4 of 5 other hosts lost messages of host a, 1.0 percent in all: look for the cause at host a or its link."
    ]


def test_host_with_another_key_is_named() -> None:
    rows = [OtherKey("k", 3, 34_204, 512), OtherKey("a", 1, 170, 34_204), OtherKey("b", 1, 171, 34_204)]
    assert faults.odd_keys(rows, 4) == (rows[:1], True)
    assert faults.keys(rows, 4) == [
        Finding(
            Level.PROBLEM,
            "Host k has another key than 3 other hosts, or none: they rejected up to 34,204 datagrams of it each, "
            "and it rejected 512 of theirs. Give host k the key file of the others.",
        )
    ]


def test_of_two_hosts_with_different_keys_neither_is_accused() -> None:
    rows = [OtherKey("a", 1, 90, 100), OtherKey("b", 1, 100, 90)]
    assert sentences(faults.keys(rows, 2)) == [
        (
            "Host a and host b do not all have the same key, and reject each other's datagrams (100 at one host): "
            "give all hosts of the segment the same key file."
        )
    ]
    assert faults.keys([], 2) == []


def test_cut_off_hosts_are_named() -> None:
    rows = [
        CutOff("d", "deaf", 3, 900),
        CutOff("m", "mute", 2, 50),
        CutOff("n", "deaf", 3, 9),
        CutOff("n", "mute", 3, 9),
    ]
    assert sentences(faults.cut_off([*rows, CutOff("k", "deaf", 3, 9)], [], ["k"])) == [
        (
            "Host d heard nothing: none of 900 messages of 3 other hosts reached it, though others heard them. Look "
            "at its firewall, its port and its link."
        ),
        (
            "Host m was heard by nobody: none of its 50 messages reached 2 other hosts, though others were heard "
            "there. Look at its address for broadcasts, its firewall and its link."
        ),
        (
            "Host n heard no other host, and no other host heard it (18 messages were lost). Look at its link, its "
            "address for broadcasts and its firewall."
        ),
    ]
    assert sentences(faults.cut_off([], [Unheard("a", "b", 7)])) == [
        "Host b heard nothing of host a: all 7 messages were lost, and no third host shows at which of them."
    ]


def test_late_messages_come_with_the_setting_that_delivers_them() -> None:
    rows = [Late("b", "a", 1, 2000, 904, 12), Late("c", "a", 3, 9000, 1, 5000)]
    assert faults.late(rows) == [
        Finding(
            Level.PROBLEM,
            "The daemon of host b dropped 904 messages of host a as late, up to 12 numbers behind later ones: "
            "dedup.reorder = 12 at host b delivers them.",
        ),
        Finding(
            Level.WARNING,
            "The daemon of host c dropped 1 message of host a and 2 other hosts as late, up to 5,000 numbers behind "
            "later ones: find out what reorders messages so much.",
        ),
    ]


def test_late_messages_that_were_asked_for_want_a_longer_wait() -> None:
    (sentence,) = sentences(faults.late([Late("b", "a", 1, 2000, 9, 12, repaired=90)]))
    assert sentence == (
        "The daemon of host b dropped 9 messages of host a as late, up to 12 numbers behind later ones: they had "
        "been lost, and came when it had given up waiting for them. Look at its link, or raise repair.hold_seconds "
        "at host b."
    )


def test_messages_behind_the_window_are_late_as_well() -> None:
    (sentence,) = sentences(faults.late([Late("b", "a", 1, 2000, 120, 59, further=True)]))
    assert sentence == (
        "The daemon of host b dropped 120 messages of host a as late, some of them more than 64 numbers behind later "
        "ones: dedup.reorder = 1024 at host b delivers those that come no later than that."
    )


def test_what_no_receiver_got_is_not_the_fault_of_one() -> None:
    totals = Totals(4, 12, 3, 12_000, 310)
    receiver = HostLoss("c", "receiver", 3, 3, 3000, 300, common=0.9)
    assert faults.causes([receiver], totals) == []
    assert faults.causes([receiver._replace(common=0.1)], totals) == [receiver._replace(common=0.1)]


def test_different_numbers_missing_point_away_from_the_sender() -> None:
    row = HostLoss("a", "sender", 2, 2, 5000, 50)
    assert sentences(faults.widespread([row._replace(common=0.9), row._replace(common=0.1)], ONE_DAY)) == [
        (
            "Both other hosts lost messages of host a, 1.0 percent in all: the same ones at all of them, so look for "
            "the cause at host a or its link."
        ),
        (
            "Both other hosts lost messages of host a, 1.0 percent in all: each of them different ones, so look for "
            "the cause at these and their links, not at host a."
        ),
    ]


def test_what_a_host_lost_itself_is_named_with_the_remedy() -> None:
    assert sentences(faults.drops([Dropped("c", None, 1204), Dropped("c", "c/ledger/9", 1)])) == [
        (
            "The kernel of host c dropped 1,204 datagrams: the buffer of its daemon was full. Raise "
            "net.core.rmem_max and buffers.receive_bytes."
        ),
        (
            "Client c/ledger/9 of host c read too slowly and lost 1 message: let it read faster, subscribe to less, "
            "or have a larger queue."
        ),
    ]


def test_host_without_a_segment_is_named() -> None:
    assert sentences(faults.placeless(["d"])) == [
        (
            "Host d heard no other host, and no other host heard it; nothing in its record says which hosts are on "
            "its segment. Look at its link and its address for broadcasts."
        )
    ]


def test_source_that_carries_the_loss_is_named() -> None:
    row = Culprit("a/pump/9", "a", 1000, 310, 100_000, 320, ("b", "c"), 3)
    assert faults.culprits([row]) == [
        Finding(
            Level.PROBLEM,
            "Source a/pump/9 lost 31.0 percent of its messages (310 of 1,000, counted once per receiver) at host b, "
            "host c and 1 more; the other sources of host a lost 0.010 percent: look at how fast it sends, and "
            "how large its messages are.",
        )
    ]


def test_clock_that_is_off_is_named_with_its_remedy() -> None:
    rows = [OffClock("c", -4_999_994.0, 3, 3)]
    assert faults.clocks(rows, 4) == [
        Finding(
            Level.WARNING,
            "The clock of host c is 5 s behind those of 3 other hosts: let NTP set them (timedatectl set-ntp true). "
            "Until then, loss is counted with the estimated offset.",
        )
    ]
    rows = [OffClock("a", 5e6, 1, 1), OffClock("b", -5e6, 1, 1)]
    (sentence,) = sentences(faults.clocks(rows, 2))
    assert sentence.startswith("The clocks of host a and host b differ by 5 s: let NTP set them")
