"""``bccnd/pipeline/copies.py``."""

from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from bccnd.pipeline import copies
from tests.pipeline.rows import at, frame, table


def test_second_copies_save_what_single_copies_would_lose(spark: SparkSession) -> None:
    minutes = frame(
        spark,
        [
            ("a", "b", at(60), 600, 6, 0, 1080),
            ("a", "b", at(120), 400, 4, 0, 720),  # 2000 copies, 200 of them lost
            ("a", "c", at(60), 1000, 100, 0, 901),  # one copy, a duplicate
            ("a", "d", at(60), 1000, 1000, 0, 0),  # nothing came: nothing is known
            ("a", "e", at(60), 1000, 1000, 0, 900),  # all that came was late
            ("a", "f", at(60), 1000, 1, 9, 1800),  # 10 that both copies of were lost, 9 of them repaired
        ],
        "sender string, receiver string, minute timestamp, sent bigint, lost bigint, repaired bigint, rows bigint",
    )
    expected = [
        ("a", "b", at(0), 2, 1000, 10, 100.0, 90.0),
        ("a", "c", at(0), 1, 1000, 100, 99.0, 0.0),
        ("a", "f", at(0), 2, 1000, 10, 100.0, 90.0),
    ]
    assertDataFrameEqual(copies.copies(minutes), table(spark, "copies", expected), ignoreNullable=True)
