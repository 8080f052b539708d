"""``bccnd/pipeline/liveness.py``."""

from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from bccnd.pipeline import coverage, liveness
from tests.pipeline.rows import at, datagram, recording, table, traffic


def test_three_missing_beats_are_a_silence(spark: SparkSession) -> None:
    def beats(src: str, *seconds: float, payload: bytes = b"") -> list[tuple[object, ...]]:
        channel = f"heartbeat/{src}"
        return [
            datagram("c", second, src, at, channel=channel, payload=payload)
            for at, second in enumerate(seconds)
        ]

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
    all_rows = traffic(spark, rows)
    stretches = coverage.stretches(all_rows, coverage.coverage(all_rows))
    found = liveness.silences(liveness.beats(all_rows), stretches)
    expected = [
        ("c", "a", at(25), at(50), 25.0, 5.0),
        ("c", "a", at(80), at(200), 120.0, 5.0),
        ("c", "b", at(310), at(395), 85.0, 5.0),
    ]
    assertDataFrameEqual(found, table(spark, "silences", expected), ignoreNullable=True)
