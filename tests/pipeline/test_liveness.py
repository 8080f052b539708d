"""``bccnd/pipeline/liveness.py``."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from bccnd.pipeline import coverage, liveness
from bccnd.pipeline.analyse import Keeping
from tests.pipeline.rows import at, datagram, recording, table, traffic

Beats = list[tuple[object, ...]]


def beats(src: str, *seconds: float, observer: str = "c", **more: object) -> Beats:
    channel = f"heartbeat/{src}"
    return [
        datagram(observer, second, src, round(second * 10), channel=channel, **more) for second in seconds
    ]


def silences(spark: SparkSession, rows: Beats) -> DataFrame:
    keep = Keeping(spark)
    all_rows = traffic(spark, rows)
    stretches = keep(coverage.stretches(all_rows, keep(coverage.coverage(all_rows))))
    found = liveness.silences(keep(liveness.beats(liveness.digest(all_rows))), stretches, keep)
    return table(spark, "silences", []) if found is None else found


def test_three_missing_beats_are_a_silence(spark: SparkSession) -> None:
    rows = [
        *recording("c", 0, 200),
        *recording("c", 300, 400),
        # 25 s once; 15 s are only two missing beats
        *beats("a", 10, 15, 20, 25, 50, 55, 60, 75, 80),
        # silent while nothing was recorded, and almost until the end
        *beats("b", 190, 195, 305, 310, 395),
        *beats("d", 10, 15, 20, 25),
        *beats("d", 30, payload=b"leaving"),
        *beats("e", 10),
        datagram("c", 20, "f", 1, channel="heartbeat/g"),
        datagram("c", 60, "f", 2, channel="heartbeat/g"),
    ]
    found = silences(spark, rows)
    expected = [
        ("c", "a", at(25), at(50), 25.0, 5.0),
        ("c", "a", at(80), at(200), 120.0, 5.0),
        ("c", "b", at(310), at(395), 85.0, 5.0),
    ]
    assertDataFrameEqual(found, table(spark, "silences", expected), ignoreNullable=True)


def test_restart_under_another_name_is_no_silence(spark: SparkSession) -> None:
    rows = [
        *recording("c", 0, 200),
        *beats("a/bccnd/71", 10, 15, 20, 25),
        *beats("a/bccnd/72", 30, 35, 40, *range(45, 200, 5)),
        # Back after 55 s, and so silent for as long.
        *beats("b/bccnd/71", 10, 15, 20, 25),
        *beats("b/bccnd/72", *range(80, 200, 5)),
    ]
    (row,) = silences(spark, rows).collect()
    assert (row.src, row["from"], row.until) == ("b/bccnd/71", at(25), at(80))


def test_what_one_deaf_observer_misses_is_no_silence(spark: SparkSession) -> None:
    steady = range(10, 200, 5)
    rows = [row for host in "cde" for row in recording(host, 0, 200)]
    rows += beats("a/bccnd/71", *steady, observer="c") + beats("a/bccnd/71", *steady, observer="d")
    rows += beats("a/bccnd/71", 10, 15, 20, 25, 150, *range(155, 200, 5), observer="e")
    assert silences(spark, rows).collect() == []


def test_host_that_beats_by_its_own_record_is_not_silent(spark: SparkSession) -> None:
    rows = [*recording("c", 0, 200), *recording("a", 0, 120)]
    rows += beats("a/bccnd/71", 10, 15, 20, 25)
    rows += beats("a/bccnd/71", *range(10, 120, 5), observer="a", direction="out", peer=None)
    (row,) = silences(spark, rows).collect()
    # What c missed from 25 on was lost, until nobody knows any more what the host sent.
    assert (row.observer, row["from"], row.until) == ("c", at(120), at(200))


def test_silence_is_what_nearly_all_observers_miss(spark: SparkSession) -> None:
    hosts = [f"h{number:02}" for number in range(20)]
    rows = [row for host in hosts for row in recording(host, 0, 200)]
    for place, host in enumerate(hosts):
        delay, deaf = place / 1000, {0: 30, 1: 60}.get(place, 0)
        seconds = [
            at for at in range(10, 200, 5) if not 100 < at < 150 and not deaf < at < deaf + 20 * bool(deaf)
        ]
        rows += beats("a/bccnd/71", *(at + delay for at in seconds), observer=host)
    found = silences(spark, rows).collect()
    assert {row.observer for row in found} == {*hosts}
    assert {(row["from"].second, row.until.second) for row in found} == {(40, 30)}


def test_copies_of_a_beat_are_one(spark: SparkSession) -> None:
    rows = [*recording("c", 0, 100)]
    rows += beats("a/bccnd/71", *range(10, 100, 5)) + beats("a/bccnd/71", *range(10, 100, 5))
    assert silences(spark, rows).collect() == []
