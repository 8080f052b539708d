"""``bccnd/pipeline/coverage.py``."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.testing import assertDataFrameEqual

from bccnd.pipeline import coverage
from tests.pipeline.rows import captured, datagram, mark, ns, recording, table, traffic

ROWS = [
    *recording("a", 0, 60),
    *recording("a", 60, 100),  # goes on
    *recording("a", 90, 120),  # overlaps
    *recording("a", 130, 200),  # a file is missing between
    mark("a", 150, "unrecorded", 7),
    mark("a", 151, "unrecorded", 5),
    *recording("b", 10, 10),
    datagram("b", 300, "a/p/1", 1),  # no mark
]


def test_touching_and_overlapping_files_are_one_record(spark: SparkSession) -> None:
    expected = [
        ("a", ns(0), ns(120), 0, False, True),
        ("a", ns(130), ns(200), 12, False, True),
        ("b", ns(10), ns(10), 0, False, True),
    ]
    found = coverage.coverage(traffic(spark, ROWS)).drop("links")
    assertDataFrameEqual(found, table(spark, "coverage", expected), ignoreNullable=True)


def test_marks_that_tell_of_links_are_counted(spark: SparkSession) -> None:
    rows = [*recording("a", 0, 9), mark("a", 1, "relayed"), mark("a", 2, "link"), *recording("b", 0, 9)]
    found = coverage.coverage(traffic(spark, rows)).collect()
    assert {row.host: row.links for row in found} == {"a": 2, "b": 0}


def test_coverage_is_cut_to_the_time_asked_for(spark: SparkSession) -> None:
    found = coverage.coverage(traffic(spark, ROWS), ns(100), ns(140)).drop("links")
    expected = [("a", ns(100), ns(120), 0, False, True), ("a", ns(130), ns(140), 12, False, True)]
    assertDataFrameEqual(found, table(spark, "coverage", expected), ignoreNullable=True)


def test_unrecorded_messages_leave_a_hole(spark: SparkSession) -> None:
    rows = traffic(spark, ROWS)
    found = coverage.stretches(rows, coverage.coverage(rows)).orderBy("host").collect()
    assert [(row.host, [tuple(piece) for piece in row.stretches]) for row in found] == [
        ("a", [(ns(0), ns(120)), (ns(130), ns(148)), (ns(153), ns(200))]),
        ("b", [(ns(10), ns(10))]),
    ]


def test_stretches_of_times_and_slots(spark: SparkSession) -> None:
    rows = traffic(spark, ROWS)
    a = coverage.stretches(rows, coverage.coverage(rows)).where("host = 'a'")
    times = [-1, 0, 120, 125, 130, 150, 160, 201]
    slots = F.array(*(F.struct(F.lit(ns(second) // 10**10).alias("slot")) for second in range(-20, 220, 10)))
    row = a.withColumn("slots", slots).select(
        F.array(*(coverage.stretch_at(str(ns(second))) for second in times)).alias("places"),
        coverage.whole("slots", 10**10).alias("whole"),
    )
    found = row.first()
    assert found is not None
    assert found.places == [0, 1, 1, 2, 3, 4, 5, 6]
    begins = [(slot.slot * 10**10 - ns(0)) // 10**9 for slot in found.whole]
    assert begins == [*range(10, 110, 10), 160, 170, 180]
    one = coverage.stretches(rows, coverage.coverage(rows)).where("host = 'b'")
    at = [coverage.stretch_at(str(ns(second))) for second in (9, 10, 11)]
    assert one.select(*at).collect() == [(0, 1, 2)]


def test_capture_beside_a_recorder_is_not_counted(spark: SparkSession) -> None:
    rows = [*recording("a", 0, 60), *captured([*recording("a", 30, 90), mark("a", 40, "unrecorded", 7)])]
    rows += captured([*recording("b", 0, 60), datagram("b", 5, "a/p/1", 1), mark("b", 30, "unrecorded", 1)])
    rows += captured([datagram("a", 50, "b/p/1", 1)])
    all_rows = traffic(spark, rows)
    covered = coverage.coverage(all_rows)
    assert {(row.host, row.capture, row.counted) for row in covered.collect()} == {
        ("a", False, True), ("a", True, False), ("b", True, True),
    }  # fmt: skip
    assert coverage.captured_twice(covered) == ["a"]
    left = coverage.counted(all_rows, ["a"])
    assert left.where("host = 'a'").count() == 2
    found = {row.host: len(row.stretches) for row in coverage.stretches(left, covered).collect()}
    assert found == {"a": 1, "b": 2}
