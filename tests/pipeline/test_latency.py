"""``bccnd/pipeline/latency.py``."""

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline import delivery, latency, words
from tests.pipeline.rows import datagram, sent, traffic


def test_clock_offset_needs_messages_in_both_directions(spark: SparkSession) -> None:
    rows = [
        *(sent("a", 10 + seq, "a/p/1", seq) for seq in range(5)),
        # b is 2 s ahead
        *(datagram("b", 10 + seq + 2 + 0.001 * (seq + 1), "a/p/1", seq) for seq in range(5)),
        datagram("b", 20, "a/p/1", 0, verdict="duplicate"),
        *(sent("b", 10 + seq, "b/p/1", seq) for seq in range(3)),
        *(datagram("a", 10 + seq - 2 + 0.001, "b/p/1", seq) for seq in range(3)),
        # c sends nothing
        *(datagram("c", 10 + seq + 0.5 + 0.001 * seq, "a/p/1", seq) for seq in range(5)),
        sent("d", 10, "d/p/1", 1),  # c is 9 s ahead of it: no network takes so long
        datagram("c", 19, "d/p/1", 1),
        sent("a", 100, "a/p/1", 2**30),
        sent("a", 300, "a/p/1", 2**30),  # used twice
        datagram("b", 102, "a/p/1", 2**30),
    ]
    all_rows = traffic(spark, rows)
    owned = delivery.owners(delivery.present(words.of(words.digest(all_rows), 10**10)))
    delayed = latency.delays(latency.sample(latency.digest(all_rows), len(rows)), owned).persist()
    fastest = latency.fastest(delayed)
    offsets = {
        (row.sender, row.receiver): (row.least_ns, row.most_ns) for row in latency.offsets(fastest).collect()
    }
    assert offsets == {
        ("a", "b"): (2 * 10**9, 2 * 10**9), ("b", "a"): (-2 * 10**9, -2 * 10**9), ("a", "c"): (0, 0),
        ("d", "c"): (9 * 10**9, 9 * 10**9),
    }  # fmt: skip
    found = latency.latency(delayed, fastest).collect()
    by_pair = {(row.sender, row.receiver): row for row in found}
    assert set(by_pair) == {("a", "b"), ("b", "a"), ("a", "c"), ("d", "c")}
    there = by_pair["a", "b"]
    assert there.latency_method == "both-ways"
    assert there.clock_offset_us == pytest.approx(2e6)
    assert (there.latency_p50_us, there.latency_max_us) == pytest.approx((3000, 5000))
    assert by_pair["b", "a"].clock_offset_us == pytest.approx(-2e6)
    alone = by_pair["a", "c"]
    assert (alone.latency_method, alone.clock_offset_us) == ("above-fastest", None)
    assert (alone.latency_p50_us, alone.latency_max_us) == pytest.approx((2000, 4000))


def test_what_came_by_repair_is_told_from_what_came_directly(spark: SparkSession) -> None:
    # Of ten messages one was repaired, and two waited for it.
    taken = {7: 0.030, 8: 0.028, 9: 0.026}
    rows = [sent("a", 10 + seq / 1000, "a/p/1", seq) for seq in range(10)]
    rows += [
        datagram(
            *("b", 10 + seq / 1000 + taken.get(seq, 0.002), "a/p/1", seq), verdict="repaired" if seq == 7 else "ok"
        )
        for seq in range(10)
    ]  # fmt: skip
    rows += [sent("b", 11, "b/p/1", 1), datagram("a", 11.002, "b/p/1", 1)]
    all_rows = traffic(spark, rows)
    owned = delivery.owners(delivery.present(words.of(words.digest(all_rows), 10**10)))
    delayed = latency.delays(latency.digest(all_rows), owned).persist()
    found = {row.receiver: row for row in latency.latency(delayed, latency.fastest(delayed)).collect()}
    there, back = found["b"], found["a"]
    assert (there.repaired_p50_us, there.repaired_p99_us) == pytest.approx((30_000, 30_000))
    assert (there.direct_p50_us, there.direct_p99_us) == pytest.approx((2000, 28_000))
    assert (there.latency_p50_us, there.latency_p99_us) == pytest.approx((2000, 30_000))
    # Nothing was repaired: nothing is known.
    assert (back.repaired_p50_us, back.repaired_p99_us) == (None, None)


def test_sample_has_the_same_words_on_all_hosts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "SAMPLED_ROWS", 1000)
    rows = [
        make(host, 10, "a/p/1", 64 * seq)
        for make, host in ((sent, "a"), (datagram, "b"))
        for seq in range(2000)
    ]
    chosen = latency.sample(latency.digest(traffic(spark, rows)), len(rows)).collect()
    assert 600 < len(chosen) < 1400
    assert {row.word for row in chosen if row.host == "a"} == {row.word for row in chosen if row.host == "b"}
