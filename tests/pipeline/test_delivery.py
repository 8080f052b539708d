"""``bccnd/pipeline/delivery.py``: pairs, epochs, the time that counts; test_analyse has a whole network."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import coverage, delivery, guesses, latency, loss, segments, words
from bccnd.pipeline.analyse import Keeping
from tests.pipeline.rows import at, datagram, frame, mark, ns, recording, sent, traffic

SLOT_NS = 10**10


BURSTS = (
    "sender string, receiver string, src string, minute timestamp, from_ns bigint, until_ns bigint, "
    "length bigint"
)
DELAYS = "sender string, receiver string, hour timestamp, repaired boolean, delay_ns bigint"
FASTEST = "sender string, receiver string, hour timestamp, there bigint, offset double"
OFFSETS = "sender string, receiver string, least_ns bigint, most_ns bigint"


class Made:
    """What the record says of the pairs; ``ahead`` are clocks, as seconds by which a receiver's is ahead.

    What ``analyse`` keeps is kept here: of frames that are made of one another Spark would plan all again and again.
    """

    def __init__(
        self,
        spark: SparkSession,
        rows: list[tuple[Any, ...]],
        ahead: dict[tuple[str, str], int] | None = None,
    ) -> None:
        keep = Keeping(spark)
        all_rows = traffic(spark, rows)
        numbers = keep.placed(words.of(words.digest(all_rows), SLOT_NS))
        owned = keep(delivery.owners(delivery.present(numbers)))
        stretches = keep(coverage.stretches(all_rows, keep(coverage.coverage(all_rows))))
        clocks = [(*pair, seconds * 10**9, seconds * 10**9) for pair, seconds in (ahead or {}).items()]
        offsets = frame(spark, clocks, OFFSETS)
        heard = keep(segments.heard(segments.digest(all_rows)))
        hosts = [row.host for row in stretches.select("host").collect()]
        found = segments.segments(segments.whom(heard, owned)[1], hosts)
        receivers = keep(delivery.pairs(owned, segments.frame(all_rows, found), stretches, offsets))
        self.sent = keep(delivery.sent(numbers, owned))
        received = delivery.received(numbers, self.sent)
        self.matched = keep(delivery.matched(self.sent, received, receivers, SLOT_NS))
        gaps = keep(loss.gaps(keep(loss.seen(numbers)), stretches))
        self.guessed = keep(guesses.by_gaps(gaps, self.sent, owned, stretches, offsets))

    def counts(self) -> DataFrame:
        sums = ("sent", "lost", "repaired", "rows")
        by_minute = delivery.by_minute(self.matched, SLOT_NS)
        return by_minute.groupBy("receiver").agg(*(F.sum(name).alias(name) for name in sums))

    def bursts(self) -> DataFrame:
        return delivery.bursts(self.matched, self.sent, SLOT_NS)


def matched(
    spark: SparkSession, rows: list[tuple[Any, ...]], ahead: dict[tuple[str, str], int] | None = None
) -> DataFrame:
    return Made(spark, rows, ahead).matched


def counts(rows: DataFrame) -> dict[tuple[str, str], tuple[int, int]]:
    sums = delivery.by_minute(rows, SLOT_NS).groupBy("sender", "receiver").sum("sent", "lost").collect()
    return {(row[0], row[1]): (row[2], row[3]) for row in sums}


def test_deaf_host_loses_and_other_segment_does_not(spark: SparkSession) -> None:
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
    assert counts(matched(spark, rows)) == {
        ("a", "b"): (200, 0), ("a", "c"): (200, 200), ("c", "a"): (200, 0), ("c", "b"): (200, 0),
        ("x", "y"): (200, 0),
    }  # fmt: skip


def test_host_with_another_key_is_in_the_matrix(spark: SparkSession) -> None:
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
    assert counts(matched(spark, rows)) == {
        ("a", "b"): (100, 0), ("b", "a"): (100, 0), ("a", "k"): (100, 100), ("b", "k"): (100, 100),
        ("k", "a"): (100, 100), ("k", "b"): (100, 100),
    }  # fmt: skip


def test_late_messages_are_lost_to_the_subscribers(spark: SparkSession) -> None:
    rows = [*recording("a", 0, 100), *recording("b", 0, 100)]
    rows += [sent("a", 20 + seq / 10, "a/p/1", seq) for seq in range(200)]
    verdicts = {40: "duplicate", 50: "late", 60: "new", 70: "restarted", 80: "replayed"}
    rows += [
        datagram("b", 20 + seq / 10, "a/p/1", seq, verdict=verdicts.get(seq, "ok"))
        for seq in range(200)
        if seq != 90
    ]
    rows += [datagram("b", 30, "a/p/1", 50, verdict="duplicate")]
    (row,) = delivery.by_minute(matched(spark, rows), SLOT_NS).collect()
    # 40 and 50 came too late; 80 was not delivered either, and 90 did not come.
    assert (row.sent, row.lost, row.late) == (200, 4, 2)


def test_what_was_repaired_was_lost_on_the_way(spark: SparkSession) -> None:
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
    made = Made(spark, rows)
    found = {row.receiver: row for row in made.counts().collect()}
    assert [(row.sent, row.lost, row.repaired, row.rows) for row in (found["b"], found["c"])] == [
        (200, 1, 19, 180), (200, 0, 0, 200),
    ]  # fmt: skip
    guessed = made.guessed.groupBy("sender").sum("sent", "lost", "repaired").collect()
    # Before 0 and after 180 nothing of d was lost that came.
    assert [tuple(row) for row in guessed] == [("d", 200, 1, 9)]
    by_source = (
        delivery.by_source(delivery.sums(made.matched, SLOT_NS), made.guessed)
        .where("receiver = 'b'")
        .collect()
    )
    assert {(row.src, row.sent, row.lost, row.repaired) for row in by_source} == {
        ("a/p/1", 200, 1, 19), ("d/p/1", 200, 1, 9),
    }  # fmt: skip
    minutes = delivery.counted(delivery.by_minute(made.matched, SLOT_NS), made.guessed)
    empty = latency.latency(frame(spark, [], DELAYS), frame(spark, [], FASTEST))
    paths = delivery.delivery(minutes, made.bursts(), empty).collect()
    assert {(row.sender, row.receiver): (row.received, row.lost, row.repaired) for row in paths} == {
        ("a", "b"): (199, 1, 19), ("a", "c"): (200, 0, 0), ("d", "b"): (199, 1, 9),
    }  # fmt: skip


def test_slot_counts_only_if_the_receiver_recorded_all_of_it(spark: SparkSession) -> None:
    rows = [
        *recording("a", 0, 200),
        *recording("b", 0, 65),
        *recording("b", 95, 200),
        mark("b", 155, "unrecorded", 1),
    ]
    rows += [sent("a", second, "a/p/1", second) for second in range(10, 190)]
    rows += [datagram("b", second, "a/p/1", second) for second in range(20, 50)]
    made = Made(spark, rows)
    # From 10 to 60, 100 to 150 and 160 to 190; of these 20 to 50 arrived.
    assert counts(made.matched) == {("a", "b"): (130, 100)}
    lengths = sorted(row.length for row in made.bursts().collect())
    assert lengths == [10, 10, 30, 50]


def test_reused_numbers_belong_to_the_nearest_epoch(spark: SparkSession) -> None:
    rows = [*recording("a", 0, 2000), *recording("b", 0, 2000)]
    for seq in range(1, 2001):
        rows += [sent("a", 100 + seq / 100, "a/p/1", seq), sent("a", 1000 + seq / 100, "a/p/1", seq)]
        if seq > 500:
            rows.append(datagram("b", 100 + seq / 100, "a/p/1", seq))
        if seq <= 1990:
            rows.append(datagram("b", 1000 + seq / 100, "a/p/1", seq))
    made = Made(spark, rows)
    assert counts(made.matched) == {("a", "b"): (4000, 510)}
    lost = made.bursts().orderBy("minute").collect()
    assert [(row.minute, row.length) for row in lost] == [(at(60), 500), (at(960), 10)]


def test_clock_that_is_off_invents_no_loss(spark: SparkSession) -> None:
    # By its clock, 5 s ahead, b records until 103; that is 98 by the clock of a.
    rows = [*recording("a", 0, 200), *recording("b", 0, 103)]
    for second in range(10, 190):
        rows.append(sent("a", second, "a/p/1", second))
        if second < 98:
            rows.append(datagram("b", second + 5, "a/p/1", second))
    assert counts(matched(spark, rows, {("a", "b"): 5})) == {("a", "b"): (80, 0)}
    assert counts(matched(spark, rows)) == {("a", "b"): (90, 2)}


def test_same_numbers_missing_everywhere_are_told_from_others(spark: SparkSession) -> None:
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
    made = Made(spark, rows)
    found = {
        row.sender: (row.lost, row.lost_everywhere, row.missed, row.missed_everywhere)
        for row in delivery.senders(made.matched, SLOT_NS).collect()
    }
    assert found == {"a": (20, 20, 40, 40), "b": (40, 0, 40, 0)}
    by_source = delivery.by_source(delivery.sums(made.matched, SLOT_NS), made.guessed).collect()
    assert {(row.src, row.receiver, row.sent, row.lost) for row in by_source if row.receiver == "c"} == {
        ("a/p/1", "c", 400, 10), ("b/p/1", "c", 400, 20),
    }  # fmt: skip


def test_bursts_have_the_times_of_their_numbers(spark: SparkSession) -> None:
    rows = [*recording("a", 0, 100), *recording("b", 0, 100)]
    for seq in range(400):
        second = 20 + seq / 10
        rows.append(sent("a", second, "a/p/1", seq))
        if not (100 <= seq < 103 or 250 <= seq < 330 or seq == 7):
            rows.append(datagram("b", second, "a/p/1", seq))
    found = Made(spark, rows).bursts().orderBy("from_ns").collect()
    assert [(row.from_ns, row.until_ns, row.length) for row in found] == [
        (ns(20.7), ns(20.7), 1), (ns(30.0), ns(30.2), 3), (ns(45.0), ns(52.9), 80),
    ]  # fmt: skip


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
