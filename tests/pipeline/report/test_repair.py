"""``bccnd/pipeline/report/repair.py``: what was lost on the way and came by repair."""

from collections.abc import Iterable

from bccnd.pipeline.report import repair
from bccnd.pipeline.report.findings import Finding, Level, overall
from bccnd.pipeline.report.rows import Dropped, HostLoss, Pair, Totals

WHOLE = Pair(
    "", "", 9000, 2, repaired=445, direct_p50=212.0, direct_p99=31_000.0, repaired_p50=14_200.0, repaired_p99=46_000.0
)  # fmt: skip
DELAYS = "; half of them took at most 14.2 ms, 99 of 100 at most 46 ms, the others 212 µs and 31 ms"
LINK = "But repair costs traffic and delay: look at "


def sentences(found: Iterable[Finding]) -> list[str]:
    return [finding.sentence for finding in found if finding.level is Level.WARNING]


def of_hosts(*hosts: HostLoss, drops: tuple[Dropped, ...] = ()) -> list[str]:
    return sentences(repair.findings(WHOLE, hosts, [], 0, drops))


def test_lossy_link_of_a_receiver_is_named_though_all_came_again() -> None:
    row = HostLoss("c", "receiver", 3, 3, 9000, 442, common=0.0, repaired=441)
    found = repair.findings(WHOLE, [row], [], 0, [])
    assert [finding.level for finding in found] == [Level.WARNING, Level.NOTE]
    assert found[0].about == {"host": "c"}
    assert found[0].sentence == (
        "4.9 percent of the messages of all 3 other hosts were lost on the way to host c; repair brought all but "
        f"0.011 percent. {LINK}the link of host c (ip -s link), and at its receive buffer."
    )
    (sentence,) = of_hosts(row._replace(lossy=2, repaired=442))
    assert sentence == (
        "4.9 percent of the messages of 2 of 3 other hosts were lost on the way to host c; repair brought all of "
        f"them. {LINK}the link of host c (ip -s link), and at its receive buffer."
    )


def test_receive_buffer_is_named_if_the_kernel_dropped_it() -> None:
    row = HostLoss("c", "receiver", 3, 3, 9000, 442, repaired=442)
    (sentence,) = of_hosts(row, drops=(Dropped("c", None, 400), Dropped("c", "c/slow/1", 9)))
    assert sentence.endswith(f"{LINK}the receive buffer of host c, whose kernel dropped 400 datagrams.")
    (sentence,) = of_hosts(row, drops=(Dropped("c", None, 200), Dropped("a", None, 9000)))
    assert sentence.endswith(f"{LINK}the link of host c (ip -s link), and at its receive buffer.")


def test_sender_is_named_only_if_all_missed_the_same() -> None:
    row = HostLoss("a", "sender", 2, 2, 5000, 250, common=0.9, repaired=250)
    (sentence,) = of_hosts(row._replace(common=None))
    assert sentence.endswith("look at its link and theirs (ip -s link)."), "nobody knows"
    assert of_hosts(row, row._replace(common=0.1)) == [
        (
            "5.0 percent of the messages of host a were lost on the way to both other hosts, the same ones to all of "
            f"them; repair brought all of them. {LINK}the link of host a (ip -s link)."
        ),
        (
            "5.0 percent of the messages of host a were lost on the way to both other hosts, different ones to each "
            f"of them; repair brought all of them. {LINK}the links of these (ip -s link), not at host a."
        ),
    ]


def test_of_two_hosts_neither_link_is_accused() -> None:
    pair = Pair("a", "b", 1000, 1, repaired=49)
    found = repair.findings(WHOLE, [], [pair], 1, [])
    assert found[0].sentence == (
        "5.0 percent of host a's messages were lost on the way to host b; repair brought all but 0.10 percent. "
        f"{LINK}the links of both (ip -s link)."
    )
    assert found[0].about == {"sender": "a", "receiver": "b"}


def test_loss_is_mended_if_it_was_much_and_most_of_it_came_again() -> None:
    receiver = HostLoss("c", "receiver", 3, 3, 9000, 442, repaired=441)
    assert repair.mended([receiver]) == [receiver]
    assert repair.mended([receiver._replace(lost=80, repaired=80), receiver._replace(repaired=200)]) == []


def test_rest_of_what_was_mended_is_no_finding_of_another() -> None:
    mended = HostLoss("c", "receiver", 3, 3, 9000, 442, repaired=441)
    left = mended._replace(lost=1, repaired=0)
    assert repair.explains(left, [mended])
    assert not repair.explains(left._replace(lost=90), [mended])
    assert not repair.explains(left._replace(role="sender"), [mended])


def test_what_repair_did_in_all_is_a_note() -> None:
    (note,) = repair.findings(WHOLE, [], [], 0, [])
    assert note == Finding(
        Level.NOTE, f"Between hosts that repair, 445 of 447 messages lost on the way came after all{DELAYS}."
    )
    unknown = WHOLE._replace(lost=0, repaired_p50=None, repaired_p99=None)
    (note,) = repair.findings(unknown, [], [], 0, [])
    assert note.sentence == "Between hosts that repair, all 445 messages lost on the way came after all."
    assert repair.findings(WHOLE._replace(repaired=0), [], [], 0, []) == []


def test_overall_says_what_came_by_repair() -> None:
    (found,) = overall(Totals(3, 6, 0, 9000, 0, repaired=445), True)
    assert (found.level, found.sentence) == (
        Level.GOOD,
        "Nothing was lost in the end: all 9,000 messages between 3 hosts arrived, 445 of them by repair.",
    )
    (found,) = overall(Totals(3, 6, 1, 9000, 2, repaired=445), True)
    assert found.sentence.startswith(
        "0.022 percent of all messages between hosts were lost in the end: 2 of 9,000"
    )


def test_section_shows_both_losses_and_how_long_repair_took() -> None:
    known = {"direct_p50": 200.0, "direct_p99": 900.0, "repaired_p50": 9000.0, "repaired_p99": 20_000.0}
    pairs = [
        Pair("a", "c", 1000, 1, repaired=49)._replace(**known),
        Pair("b", "c", 1000, 0, "gaps", repaired=10),
    ]
    whole = pairs[0]._replace(sender="", receiver="", sent=2000, repaired=59)
    drawn = repair.section(pairs, 2, whole, [*pairs, Pair("a", "b", 1000, 0)], (["a", "b"], ["b", "c"]), 3)
    assert drawn is not None
    assert drawn["caption"].endswith("of the 2 senders and the 2 receivers with the most of it")
    drawn = repair.section(pairs, 2, whole, [*pairs, Pair("a", "b", 1000, 0)], (["a", "b"], ["b", "c"]), 2)
    assert drawn is not None
    assert drawn["table"].rows == [
        ["a → c", "1,000", "50 (5.0 %)", "49", "1 (0.10 %)", "9 ms", "20 ms", "200 µs", "900 µs"],
        ["b → c", "1,000", "10 (1.0 %)", "10", "0 (0 %)", "-", "-", "-", "-"],
        ["All 2 pairs", "2,000", "60 (3.0 %)", "59", "1 (0.050 %)", "9 ms", "20 ms", "200 µs", "900 µs"],
    ]  # fmt: skip
    assert [field.text for field in drawn["map"].fields] == ["0", "5.0 %", "", "≥1.0 %"]
    assert drawn["map"].fields[1].tip == "a to c: 5.0 percent lost on the way, 50 of 1,000 messages"
    assert repair.section([], 0, Pair("", "", 0, 0), [], ([], []), 0) is None
