"""``bccnd/pipeline/delivery.py``: pairs, epochs, the time that counts; test_analyse has a whole network."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bccnd.pipeline import coverage, delivery, segments, words
from tests.pipeline.rows import at, datagram, frame, mark, recording, sent, traffic

SLOT_NS = 10**10


def matched(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    all_rows = traffic(spark, rows)
    numbers = words.of(all_rows, SLOT_NS)
    sources = delivery.present(numbers)
    owned = delivery.owners(sources)
    stretches = coverage.stretches(all_rows, coverage.coverage(all_rows))
    heard = segments.heard(all_rows)
    hosts = [row.host for row in stretches.select("host").collect()]
    found = segments.segments(segments.edges(heard, owned, segments.addresses(heard, owned)), hosts)
    receivers = delivery.pairs(owned, segments.frame(all_rows, found), stretches)
    out = delivery.sent(numbers, owned)
    return delivery.matched(out, delivery.received(numbers, out), receivers, SLOT_NS).persist()


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
    verdicts = {50: "late", 60: "new", 70: "restarted", 80: "replayed"}
    rows += [
        datagram("b", 20 + seq / 10, "a/p/1", seq, verdict=verdicts.get(seq, "ok"))
        for seq in range(200)
        if seq != 90
    ]
    rows += [datagram("b", 30, "a/p/1", 50, verdict="duplicate")]
    (row,) = delivery.by_minute(matched(spark, rows), SLOT_NS).collect()
    # 80 was not delivered either, and 90 did not come.
    assert (row.sent, row.lost, row.late) == (200, 3, 1)


def test_slot_counts_only_if_the_receiver_recorded_all_of_it(spark: SparkSession) -> None:
    rows = [
        *recording("a", 0, 200),
        *recording("b", 0, 65),
        *recording("b", 95, 200),
        mark("b", 155, "unrecorded", 1),
    ]
    rows += [sent("a", second, "a/p/1", second) for second in range(10, 190)]
    rows += [datagram("b", second, "a/p/1", second) for second in range(20, 50)]
    found = matched(spark, rows)
    # From 10 to 60, 100 to 150 and 160 to 190; of these 20 to 50 arrived.
    assert counts(found) == {("a", "b"): (130, 100)}
    lengths = sorted(row.length for row in delivery.bursts(found, SLOT_NS).collect())
    assert lengths == [10, 10, 30, 50]


def test_reused_numbers_belong_to_the_nearest_epoch(spark: SparkSession) -> None:
    rows = [*recording("a", 0, 2000), *recording("b", 0, 2000)]
    for seq in range(1, 2001):
        rows += [sent("a", 100 + seq / 100, "a/p/1", seq), sent("a", 1000 + seq / 100, "a/p/1", seq)]
        if seq > 500:
            rows.append(datagram("b", 100 + seq / 100, "a/p/1", seq))
        if seq <= 1990:
            rows.append(datagram("b", 1000 + seq / 100, "a/p/1", seq))
    found = matched(spark, rows)
    assert counts(found) == {("a", "b"): (4000, 510)}
    lost = delivery.bursts(found, SLOT_NS).orderBy("minute").collect()
    assert [(row.minute, row.length) for row in lost] == [(at(60), 500), (at(960), 10)]


def test_consecutive_minutes_with_loss_are_one_episode(spark: SparkSession) -> None:
    losses = {0: 0, 1: 5, 2: 0, 3: 15, 4: 0, 5: 0, 6: 0, 7: 1}
    minutes = frame(
        spark,
        [("a", "b", at(60 * minute), 100, lost) for minute, lost in losses.items()],
        "sender string, receiver string, minute timestamp, sent bigint, lost bigint",
    )
    bursts = frame(
        spark,
        [("a", "b", at(60), 5), ("a", "b", at(180), 15), ("a", "b", at(420), 1)],
        "sender string, receiver string, minute timestamp, length bigint",
    )
    found = delivery.episodes(minutes, bursts).orderBy("from").collect()
    assert [tuple(row) for row in found] == [
        ("a", "b", at(60), at(240), 300, 20, 20 / 300, 5),
        ("a", "b", at(420), at(480), 100, 1, 0.01, 1),
    ]
