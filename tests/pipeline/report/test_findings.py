"""``bccnd/pipeline/report/findings.py``: the sentences, from literal rows."""

from datetime import UTC, datetime, timedelta

import pytest

from bccnd.pipeline.report import findings
from bccnd.pipeline.report.findings import Finding, Level
from bccnd.pipeline.report.rows import (
    Channel,
    Copies,
    Episode,
    Gap,
    Pair,
    Recorder,
    Rejection,
    Reordering,
    Silence,
    Source,
    Totals,
)
from bccnd.pipeline.report.wording import Clock

DAY = datetime(2026, 8, 1, tzinfo=UTC)
ONE_DAY = Clock(DAY + timedelta(hours=13), DAY + timedelta(hours=16))
TWO_DAYS = Clock(DAY, DAY + timedelta(days=2))


def at(clock_time: str, day: int = 1) -> datetime:
    hour, minute, *second = map(int, clock_time.split(":"))
    return datetime(2026, 8, day, hour, minute, *second, tzinfo=UTC)


def sentences(found: list[Finding]) -> list[str]:
    return [finding.sentence for finding in found]


@pytest.mark.parametrize(
    ("totals", "recorded", "level", "sentence"),
    [
        (
            Totals(3, 6, 0, 1_204_331, 0), True, Level.GOOD,
            "Nothing was lost: all 1,204,331 messages between 3 hosts arrived.",
        ),
        (Totals(2, 1, 0, 1, 0), True, Level.GOOD, "Nothing was lost: the only message between 2 hosts arrived."),
        (
            Totals(3, 6, 2, 10_000, 310), True, Level.PROBLEM,
            ("3.1 percent of all messages between hosts were lost: 310 of 10,000, "
             "between 2 of 6 pairs of hosts."),
        ),
        (
            Totals(2, 1, 1, 1000, 1), True, Level.WARNING,
            "0.10 percent of all messages between hosts were lost: 1 of 1,000.",
        ),
        (Totals(), False, Level.UNKNOWN, "Loss is unknown: there is no recording."),
        (
            Totals(), True, Level.UNKNOWN,
            "Loss is unknown: no host was recording while another one of its segment sent.",
        ),
    ],
)  # fmt: skip
def test_overall_loss(totals: Totals, recorded: bool, level: Level, sentence: str) -> None:
    assert findings.overall(totals, recorded) == [Finding(level, sentence)]


@pytest.mark.parametrize(
    ("row", "clock", "level", "sentence"),
    [
        (
            Episode("a", "c", at("14:05"), at("14:20"), 10_000, 310, 40.2), ONE_DAY, Level.PROBLEM,
            ("Host c lost 3.1 percent of host a's messages between 14:05 and 14:20, in bursts of about 40 "
             "(310 of 10,000)."),
        ),
        (
            Episode("a", "c", at("14:05"), at("14:20"), 10_000, 31, 1), TWO_DAYS, Level.WARNING,
            ("Host c lost 0.31 percent of host a's messages between 2026-08-01 14:05 and 14:20, one at a time "
             "(31 of 10,000)."),
        ),
        (
            Episode("a", "c", at("23:59"), at("00:02", 2), 500, 500, 500), TWO_DAYS, Level.PROBLEM,
            "Host c lost all 500 messages of host a between 2026-08-01 23:59 and 2026-08-02 00:02.",
        ),
        (
            Episode("a", "c", at("14:05"), at("14:06"), 1, 1, 1), ONE_DAY, Level.PROBLEM,
            "Host c lost the only message of host a between 14:05 and 14:06.",
        ),
        (
            Episode("a", "c", at("14:05"), at("14:06"), 5000, 1, 1), ONE_DAY, Level.WARNING,
            "Host c lost 0.020 percent of host a's messages between 14:05 and 14:06 (1 of 5,000).",
        ),
    ],
)  # fmt: skip
def test_episode_of_loss(row: Episode, clock: Clock, level: Level, sentence: str) -> None:
    assert findings.episodes([row], 1, clock) == [Finding(level, sentence)]


def test_outages_are_told_in_time() -> None:
    starts = (at("14:05:12"), at("14:06:20"), at("14:07:00"))
    row = Episode("a", "c", at("14:05"), at("14:20"), 10_000, 310, 40, 5, 0.3, starts)
    assert sentences(findings.episodes([row, row._replace(outages=1, starts=starts[:1])], 2, TWO_DAYS)) == [
        (
            "Host c lost 3.1 percent of host a's messages between 2026-08-01 14:05 and 14:20, in 5 outages of about "
            "300 ms, at 14:05:12, 14:06:20, 14:07:00 and 2 more (310 of 10,000)."
        ),
        (
            "Host c lost 3.1 percent of host a's messages between 2026-08-01 14:05 and 14:20, in 1 outage of 300 ms, "
            "at 14:05:12 (310 of 10,000)."
        ),
    ]


def test_loss_among_what_arrived_is_no_outage() -> None:
    row = Episode("a", "c", at("14:00"), at("14:06"), 360, 31, 31, 1, 215.0, (at("14:00:00"),))
    assert sentences(findings.episodes([row], 1, ONE_DAY)) == [
        "Host c lost 8.6 percent of host a's messages between 14:00 and 14:06, in bursts of about 31 (31 of 360)."
    ]


def test_minutes_end_with_the_record() -> None:
    clock = Clock(at("14:05:20"), at("14:06:05"))
    (sentence,) = sentences(
        findings.episodes([Episode("a", "c", at("14:05"), at("14:07"), 100, 50, 1)], 1, clock)
    )
    assert "between 14:05:20 and 14:06:05, one at a time" in sentence


def test_worst_episodes_are_named_and_others_counted() -> None:
    rows = [Episode("a", f"h{lost}", at("14:05"), at("14:06"), 100, lost, 2) for lost in range(1, 8)]
    found = sentences(findings.episodes(rows, 9, ONE_DAY))
    assert [sentence.split()[1] for sentence in found[:-1]] == ["h7", "h6", "h5", "h4", "h3"]
    assert found[-1] == "There are 4 more episodes of loss, in which fewer messages were lost."


@pytest.mark.parametrize(
    ("row", "observers", "level", "sentence"),
    [
        (
            Silence("d/bccnd/71", at("14:32:10"), at("16:00"), 5, ("a", "b", "c"), True), 3, Level.PROBLEM,
            ("Host d has been silent since 14:32:10; a heartbeat was due every 5 seconds "
             "(noticed by all 3 recorders)."),
        ),
        (
            Silence("d/pump/9", at("14:32"), at("16:00"), 1, ("a",), True), 3, Level.PROBLEM,
            "Source d/pump/9 has been silent since 14:32; a heartbeat was due every second (noticed by host a).",
        ),
        (
            Silence("d/pump/9", at("14:30"), at("14:33:20"), 60, ("a",), False), 1, Level.WARNING,
            "Source d/pump/9 was silent for 3 minutes 20 seconds, between 14:30 and 14:33:20.",
        ),
        (
            Silence("pump", at("14:30"), at("14:31"), 5, ("a", "b"), False), 4, Level.WARNING,
            "Source pump was silent for 1 minute, between 14:30 and 14:31 (noticed by hosts a and b).",
        ),
    ],
)  # fmt: skip
def test_silence(row: Silence, observers: int, level: Level, sentence: str) -> None:
    assert findings.silences([row], observers, ONE_DAY) == [Finding(level, sentence)]


def test_many_observers_are_counted() -> None:
    row = Silence("d/pump/9", at("14:32"), at("16:00"), 5, ("a", "b", "c", "e"), True)
    assert sentences(findings.silences([row], 5, ONE_DAY))[0].endswith("(noticed by 4 of 5 recorders).")


def test_lasting_silences_come_before_longer_ones() -> None:
    rows = [
        Silence("a/x/1", at("13:10"), at("15:00"), 5, ("b",), False),
        Silence("b/x/1", at("15:50"), at("16:00"), 5, ("b",), True),
    ]
    assert [s.split()[1] for s in sentences(findings.silences(rows, 1, ONE_DAY))] == ["b/x/1", "a/x/1"]


@pytest.mark.parametrize(
    ("row", "level", "sentence"),
    [
        (
            Rejection("hmac", "10.0.0.9:5400", 412, 3, "b", at("14:00"), at("14:20")), Level.PROBLEM,
            ("3 hosts rejected up to 412 datagrams each from 10.0.0.9:5400 between 14:00 and 14:20 "
             "(hmac: signed with an unknown key)."),
        ),
        (
            Rejection("crc32", "10.0.0.9:5400", 1, 1, "b", at("14:00:07"), at("14:00:07")), Level.WARNING,
            "Host b rejected 1 datagram from 10.0.0.9:5400 at 14:00:07 (crc32: with a wrong checksum).",
        ),
        (
            Rejection("magic", "10.0.0.9:5400", 2, 1, "b", None, None), Level.WARNING,
            "Host b rejected 2 datagrams from 10.0.0.9:5400 (magic: of another protocol).",
        ),
        (
            Rejection("envelope", "10.0.0.9:5400", 2, 1, "b", None, None), Level.WARNING,
            "Host b rejected 2 datagrams from 10.0.0.9:5400 (envelope: with a malformed envelope).",
        ),
        (
            Rejection("of-a-later-version", "10.0.0.9:5400", 2, 1, "b", None, None), Level.WARNING,
            "Host b rejected 2 datagrams from 10.0.0.9:5400 (of-a-later-version).",
        ),
        (
            Rejection("conflict", "10.0.0.9", 2, 1, "b", None, None, "", "c"), Level.PROBLEM,
            ("Host b rejected 2 datagrams from host c (10.0.0.9) "
             "(conflict: sent by another host under a name of this one)."),
        ),
    ],
)  # fmt: skip
def test_rejected_datagrams(row: Rejection, level: Level, sentence: str) -> None:
    assert findings.rejections([row], ONE_DAY) == [Finding(level, sentence)]


def test_peers_beyond_the_worst_are_summed() -> None:
    rows = [Rejection("crc32", f"p{n}", n, 1, "b", None, None) for n in range(1, 7)]
    assert sentences(findings.rejections(rows, ONE_DAY, 9)) == [
        "Host b rejected 6 datagrams from p6 (crc32: with a wrong checksum).",
        "Host b rejected 5 datagrams from p5 (crc32: with a wrong checksum).",
        "4 other peers sent 10 more (crc32).",
        "There are 3 more pairs of a verdict and a peer, with fewer datagrams.",
    ]


def test_harmless_datagrams_are_no_finding() -> None:
    rows = [Rejection(verdict, "p", 9, 1, "b", None, None) for verdict in ("own", "duplicate", "late")]
    assert findings.rejections(rows, ONE_DAY) == []


def test_gaps_in_the_record_are_findings() -> None:
    recorders = [
        Recorder("b", at("13:00"), at("16:00"), 600, 0, 1, (Gap(at("14:10"), at("14:20")),)),
        Recorder("a", at("13:00"), at("16:00"), 0, 1200),
    ]
    assert sentences(findings.coverage(recorders, ONE_DAY)) == [
        "Host a's recorder missed 1,200 messages: loss at the host is not counted around those times.",
        (
            "Host b recorded nothing between 14:10 and 14:20: what it lost then is unknown, and what others lost of "
            "it is counted from gaps in its sequence numbers."
        ),
    ]


def test_captures_are_named_with_what_they_cannot_know() -> None:
    assert [
        (finding.level, finding.sentence.partition(". It")[0]) for finding in findings.captured(["x"], ["y"])
    ] == [
        (
            Level.WARNING,
            "There is a capture beside the recorder of host y: only the recorder is counted. Remove the capture.",
        ),
        (Level.UNKNOWN, "There is only a capture of host x"),
    ]
    assert findings.captured([], []) == []


@pytest.mark.parametrize(
    ("hosts", "total", "beginning"),
    [
        ([], 0, None),
        (["x"], 1, "Host x had no recorder: loss of its messages"),
        (["x", "y"], 2, "Hosts x and y had no recorder: loss of their messages"),
        (["a", "b", "c", "d", "e", "f"], 40, "Hosts a, b, c, d, e and 35 more had no recorder: "),
    ],
)
def test_senders_without_recorder(hosts: list[str], total: int, beginning: str | None) -> None:
    found = sentences(findings.without_recorder(hosts, total))
    assert found == [] if beginning is None else found[0].startswith(beginning)


def test_slowest_pair() -> None:
    pairs = [
        Pair("a", "b", 10, 0, method="both-ways", p50=80, p99=900),
        Pair("a", "c", 10, 0, method="above-fastest", p50=1250, p99=45_200),
        Pair("a", "d", 10, 0),
    ]
    assert sentences(findings.latencies(pairs)) == [
        (
            "Messages from host a to host c took longest: half of them at most 1.25 ms longer than the fastest, "
            "99 of 100 at most 45.2 ms longer than the fastest."
        ),
    ]
    assert sentences(findings.latencies(pairs[:1])) == [
        "Messages from host a to host b took longest: half of them at most 80 µs, 99 of 100 at most 900 µs."
    ]
    assert findings.latencies(pairs[2:]) == []


def test_reordering_is_a_finding_only_if_notable() -> None:
    assert sentences(findings.reorderings([Reordering("c", "a/x/1", 1000, 21, 2, 12)])) == [
        "21 messages of source a/x/1 reached host c out of order (2.1 percent), up to 12 numbers late."
    ]
    assert sentences(findings.reorderings([Reordering("c", "a/x/1", 100, 1, 1, 1)])) == [
        "1 message of source a/x/1 reached host c out of order (1.0 percent), up to 1 number late."
    ]
    assert findings.reorderings([Reordering("c", "a/x/1", 1_000_000, 21, 2, 12)]) == []
    assert findings.reorderings([]) == []


def test_extra_copies() -> None:
    rows = [Copies("a", "b", 2, 1000, 1, 20.4, 19.4), Copies("a", "c", 1, 1000, 7, 7, 0)]
    assert sentences(findings.copies(rows)) == [
        "Extra copies saved 19 of the 20 messages that single copies would have lost (95.0 percent)."
    ]
    assert sentences(findings.copies([Copies("a", "b", 2, 1000, 0, 0, 0)])) == [
        "Extra copies saved nothing: no copy was lost."
    ]
    assert findings.copies(rows[1:]) == []


@pytest.mark.parametrize(("count", "times"), [(1, "once"), (2, "twice"), (3, "3 times")])
def test_restarts(count: int, times: str) -> None:
    rows = [Source("a/x/1", 2, 10, 0, 0, 0, 0), Source("b/x/1", 2, 10, 0, 0, 0, count)]
    assert sentences(findings.restarts(rows)) == [f"Source b/x/1 restarted its sequence numbers {times}."]
    assert findings.restarts(rows[:1]) == []


def test_busiest_channel() -> None:
    rows = [Channel("t/a", 450, 9, 30, 1, 1, 1), Channel("t/b", 50, 9, 5, 1, 1, 1)]
    assert sentences(findings.busiest(rows, 1000)) == [
        "The busiest channel is t/a with 45.0 percent of all messages, and 30 messages in its busiest second."
    ]
    assert findings.busiest([], 0) == []


def test_problems_come_first_and_keep_their_order() -> None:
    mixed = [
        Finding(Level.NOTE, "1"),
        Finding(Level.PROBLEM, "2"),
        Finding(Level.GOOD, "3"),
        Finding(Level.PROBLEM, "4"),
    ]
    assert sentences(findings.by_importance(mixed)) == ["2", "4", "3", "1"]


def test_names_neither_reverse_nor_fill_the_sentence() -> None:
    found = sentences(findings.busiest([Channel("x\u202e" + "y" * 900, 1, 1, 1, 1, 1, 1)], 1))[0]
    assert "\u202e" not in found
    assert "x\\u202e" in found
    assert len(found) < 200
