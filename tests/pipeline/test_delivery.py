"""``bccnd/pipeline/delivery.py``: pairs, epochs, the time that counts; test_analyse has a whole network."""

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline import delivery
from tests.pipeline.cases import Made, Rows
from tests.pipeline.rows import at, datagram, frame, mark, ns, recording, sent

BURSTS = (
    "sender string, receiver string, src string, minute timestamp, from_ns bigint, until_ns bigint, "
    "length bigint"
)


def deaf() -> Rows:
    rows = [row for host in "abcxy" for row in recording(host, 0, 100)]
    for seq in range(200):
        second = 20 + seq / 10
        rows += [
            sent("a", second, "a/p/1", seq),
            sent("c", second, "c/p/1", seq),
            sent("x", second, "x/p/1", seq),
        ]
        rows += [datagram("b", second, "a/p/1", seq), datagram("b", second, "c/p/1", seq)]
        rows += [datagram("a", second, "c/p/1", seq), datagram("y", second, "x/p/1", seq)]
    return rows


def test_deaf_host_loses_and_other_segment_does_not(made: Made) -> None:
    assert made.counts("deaf") == {
        ("a", "b"): (200, 0), ("a", "c"): (200, 200), ("c", "a"): (200, 0), ("c", "b"): (200, 0),
        ("x", "y"): (200, 0),
    }  # fmt: skip


def other_key() -> Rows:
    rows = [row for host in "abk" for row in recording(host, 0, 100)]
    address = {"a": "10.0.0.1:5400", "b": "10.0.0.2:5400", "k": "10.0.0.3:5400"}
    for seq in range(100):
        for sender in "abk":
            src, second = f"{sender}/p/1", 20 + seq / 10
            rows += [sent(sender, second, src, seq)]
            rows += [
                datagram(sender, second, src, seq, direction="echo", verdict="own", peer=address[sender])
            ]
            for host in {*"abk"} - {sender}:
                if "k" in (sender, host):
                    rows += [datagram(host, second, None, None, verdict="hmac", peer=address[sender])]
                else:
                    rows += [datagram(host, second, src, seq, peer=address[sender])]
    return rows


def test_host_with_another_key_is_in_the_matrix(made: Made) -> None:
    assert made.counts("key") == {
        ("a", "b"): (100, 0), ("b", "a"): (100, 0), ("a", "k"): (100, 100), ("b", "k"): (100, 100),
        ("k", "a"): (100, 100), ("k", "b"): (100, 100),
    }  # fmt: skip


def late() -> Rows:
    rows = [*recording("a", 0, 100), *recording("b", 0, 100)]
    rows += [sent("a", 20 + seq / 10, "a/p/1", seq) for seq in range(200)]
    verdicts = {40: "duplicate", 50: "late", 60: "new", 70: "restarted", 80: "replayed"}
    rows += [
        datagram("b", 20 + seq / 10, "a/p/1", seq, verdict=verdicts.get(seq, "ok"))
        for seq in range(200)
        if seq != 90
    ]
    return [*rows, datagram("b", 30, "a/p/1", 50, verdict="duplicate")]


def test_late_messages_are_lost_to_the_subscribers(made: Made) -> None:
    (row,) = made.by_minute["late"]
    # 40 and 50 came too late; 80 was not delivered either, and 90 did not come.
    assert (row.sent, row.lost, row.late) == (200, 4, 2)


def repaired() -> Rows:
    rows = [row for host in "abc" for row in recording(host, 0, 100)]
    rows += [sent("a", 20 + seq / 10, "a/p/1", seq) for seq in range(200)]
    for seq in range(200):
        at_once, again = 20 + seq / 10, 20.05 + seq / 10
        # b loses one in ten, of which one is not kept any more; c has those that came twice.
        if seq % 10 == 0 and seq != 50:
            rows.append(datagram("b", again, "a/p/1", seq, verdict="repaired"))
        elif seq != 50:
            rows.append(datagram("b", at_once, "a/p/1", seq))
        rows.append(datagram("c", at_once, "a/p/1", seq))
        if seq % 10 == 0 and seq != 50:
            rows.append(datagram("c", again, "a/p/1", seq, verdict="duplicate"))
        # Nobody records d.
        if seq % 20 == 0 and seq != 100:
            rows.append(datagram("b", again, "d/p/1", seq, verdict="repaired"))
        elif seq != 100:
            rows.append(datagram("b", at_once, "d/p/1", seq))
    return rows


def test_what_was_repaired_was_lost_on_the_way(made: Made) -> None:
    counts = ("sent", "lost", "repaired", "rows")
    found = {
        receiver: tuple(sum(row[name] for row in made.by_minute["repaired"] if row.receiver == receiver)
                        for name in counts)
        for receiver in "bc"
    }  # fmt: skip
    assert found == {"b": (200, 1, 19, 180), "c": (200, 0, 0, 200)}
    assert {row.receiver for row in made.by_minute["repaired"]} == {"b", "c"}
    guessed = made.guessed["repaired"]
    # Before 0 and after 180 nothing of d was lost that came.
    assert {row.sender for row in guessed} == {"d"}
    assert [sum(row[name] for row in guessed) for name in counts[:3]] == [200, 1, 9]
    by_source = [row for row in made.by_source["repaired"] if row.receiver == "b"]
    assert {(row.src, row.sent, row.lost, row.repaired) for row in by_source} == {
        ("a/p/1", 200, 1, 19), ("d/p/1", 200, 1, 9),
    }  # fmt: skip
    paths = made.delivery["repaired"]
    assert {(row.sender, row.receiver): (row.received, row.lost, row.repaired) for row in paths} == {
        ("a", "b"): (199, 1, 19), ("a", "c"): (200, 0, 0), ("d", "b"): (199, 1, 9),
    }  # fmt: skip


def holes() -> Rows:
    rows = [
        *recording("a", 0, 200),
        *recording("b", 0, 65),
        *recording("b", 95, 200),
        mark("b", 155, "unrecorded", 1),
    ]
    rows += [sent("a", second, "a/p/1", second) for second in range(10, 190)]
    return rows + [datagram("b", second, "a/p/1", second) for second in range(20, 50)]


def test_slot_counts_only_if_the_receiver_recorded_all_of_it(made: Made) -> None:
    # From 10 to 60, 100 to 150 and 160 to 190; of these 20 to 50 arrived.
    assert made.counts("holes") == {("a", "b"): (130, 100)}
    lengths = sorted(row.length for row in made.bursts["holes"])
    assert lengths == [10, 10, 30, 50]


def reused() -> Rows:
    rows = [*recording("a", 0, 2000), *recording("b", 0, 2000)]
    for seq in range(1, 2001):
        rows += [sent("a", 100 + seq / 100, "a/p/1", seq), sent("a", 1000 + seq / 100, "a/p/1", seq)]
        if seq > 500:
            rows.append(datagram("b", 100 + seq / 100, "a/p/1", seq))
        if seq <= 1990:
            rows.append(datagram("b", 1000 + seq / 100, "a/p/1", seq))
    return rows


def test_reused_numbers_belong_to_the_nearest_epoch(made: Made) -> None:
    assert made.counts("reused") == {("a", "b"): (4000, 510)}
    lost = made.bursts["reused"]
    assert [(row.minute, row.length) for row in lost] == [(at(60), 500), (at(960), 10)]


def clock_off() -> Rows:
    # By its clock, 5 s ahead, b records until 103; that is 98 by the clock of a.
    rows = [*recording("a", 0, 200), *recording("b", 0, 103)]
    for second in range(10, 190):
        rows.append(sent("a", second, "a/p/1", second))
        if second < 98:
            rows.append(datagram("b", second + 5, "a/p/1", second))
    return rows


def test_clock_that_is_off_invents_no_loss(made: Made) -> None:
    assert made.counts("corrected") == {("a", "b"): (80, 0)}
    assert made.counts("uncorrected") == {("a", "b"): (90, 2)}


def everywhere() -> Rows:
    rows = [row for host in "abcd" for row in recording(host, 0, 100)]
    for seq in range(400):
        second = 20 + seq / 10
        rows += [sent("a", second, "a/p/1", seq), sent("b", second, "b/p/1", seq)]
        if not seq % 20 and seq % 40:  # half of it comes again, to everybody who missed it
            rows += [datagram(host, second, "a/p/1", seq, verdict="repaired") for host in "bc"]
        # Of a, b and c lack the same; of b, a and c lack others. d hears nothing, and so says nothing.
        rows += [datagram(host, second, "a/p/1", seq) for host in "bc" if seq % 20]
        rows += [
            datagram(host, second, "b/p/1", seq) for place, host in enumerate("ac") if (seq + place) % 20
        ]
    return rows


def test_same_numbers_missing_everywhere_are_told_from_others(made: Made) -> None:
    found = {
        row.sender: (row.lost, row.lost_everywhere, row.missed, row.missed_everywhere)
        for row in made.senders["everywhere"]
    }
    assert found == {"a": (20, 20, 40, 40), "b": (40, 0, 40, 0)}
    assert made.counts("everywhere")["a", "d"] == (400, 400)
    by_source = made.by_source["everywhere"]
    assert {(row.src, row.receiver, row.sent, row.lost) for row in by_source if row.receiver == "c"} == {
        ("a/p/1", "c", 400, 10), ("b/p/1", "c", 400, 20),
    }  # fmt: skip


def bursts() -> Rows:
    rows = [*recording("a", 0, 100), *recording("b", 0, 100)]
    for seq in range(400):
        second = 20 + seq / 10
        rows.append(sent("a", second, "a/p/1", seq))
        if not (100 <= seq < 103 or 250 <= seq < 330 or seq == 7):
            rows.append(datagram("b", second, "a/p/1", seq))
    return rows


def test_bursts_have_the_times_of_their_numbers(made: Made) -> None:
    assert [(row.from_ns, row.until_ns, row.length) for row in made.bursts["bursts"]] == [
        (ns(20.7), ns(20.7), 1), (ns(30.0), ns(30.2), 3), (ns(45.0), ns(52.9), 80),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def made(spark: SparkSession) -> Made:
    cases = {
        "deaf": deaf(), "key": other_key(), "late": late(), "repaired": repaired(), "holes": holes(),
        "reused": reused(), "corrected": clock_off(), "uncorrected": clock_off(), "everywhere": everywhere(),
        "bursts": bursts(),
    }  # fmt: skip
    return Made(spark, cases, {"corrected": {("a", "b"): 5}})


def test_bursts_of_several_sources_are_one_outage(spark: SparkSession) -> None:
    bursts = [
        ("a", "b", "s1", 10.0, 10.3, 30), ("a", "b", "s2", 10.1, 10.2, 3), ("a", "b", "s2", 10.29, 10.4, 2),
        ("a", "b", "s1", 10.5, 10.5, 1), ("a", "c", "s1", 10.0, 10.3, 9),
    ]  # fmt: skip
    found = delivery.outages(
        frame(spark, [(*row[:3], at(0), ns(row[3]), ns(row[4]), row[5]) for row in bursts], BURSTS)
    )
    assert {tuple(row) for row in found.collect()} == {
        ("a", "b", at(0), ns(10), ns(10.4), 35), ("a", "b", at(0), ns(10.5), ns(10.5), 1),
        ("a", "c", at(0), ns(10), ns(10.3), 9),
    }  # fmt: skip


def test_consecutive_minutes_with_loss_are_one_episode(spark: SparkSession) -> None:
    losses = {0: 0, 1: 45, 2: 0, 3: 15, 4: 0, 5: 0, 6: 0, 7: 1}
    minutes = frame(
        spark,
        [("a", "b", at(60 * minute), 100, lost) for minute, lost in losses.items()],
        "sender string, receiver string, minute timestamp, sent bigint, lost bigint",
    )
    # Most messages were lost in few outages, though most outages are of one.
    singles = [("a", "b", at(60), ns(60 + second), ns(60 + second), 1) for second in range(1, 8)]
    large = [("a", "b", at(60), ns(60 + second), ns(60 + second + 0.3), 19) for second in (10, 20)]
    outages = frame(
        spark,
        [
            *singles, *large, ("a", "b", at(180), ns(190), ns(190.4), 15),
            ("a", "b", at(420), ns(420), ns(420), 1),
        ],
        "sender string, receiver string, minute timestamp, from_ns bigint, until_ns bigint, lost bigint",
    )  # fmt: skip
    found = delivery.episodes(minutes, outages).orderBy("from").collect()
    assert [tuple(row) for row in found] == [
        ("a", "b", at(60), at(240), 300, 60, 0.2, 19, 3, 0.3, [at(70), at(80), at(190)]),
        ("a", "b", at(420), at(480), 100, 1, 0.01, 1, 0, 0.0, None),
    ]
