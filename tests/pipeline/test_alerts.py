"""``bccnd/pipeline/alerts.py``: which loss is an alert, what it says, and that it is published."""

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

import bccn
from bccnd.pipeline.alerts import CHANNEL, alerting, losses, of_minutes, publishing
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE
from tests.pipeline.rows import at, frame, mark, recording, traffic
from tests.pipeline.rows import datagram as came

LOSSES = (
    "sender string, src string, receiver string, `from` timestamp, until timestamp, sent bigint, lost bigint"
)


def lossy(spark: SparkSession) -> DataFrame:
    """A quarter of a/x/1 is missing in the first minute; b/x/1 loses nothing, and restarts in the second."""
    rows = recording("here", 0, 200)
    rows += [came("here", number / 10, "a/x/1", 1000 + number) for number in range(401) if number % 4 != 1]
    rows += [came("here", number / 10, "b/x/1", number) for number in range(700)]
    rows += [came("here", 70 + number / 10, "b/x/1", 2**40 + number) for number in range(100)]
    rows += [
        came("here", 1, "a/x/1", 1004, verdict="duplicate"),
        came("here", 2, "?", 9),
        came("here", 2, "a/bccnd/7/repair", 1),
        came("here", 3, "a/bccnd/7/repair", 90),
        mark("here", 199, "closed"),
    ]
    return traffic(spark, rows)


def test_loss_of_a_source_is_counted_by_window(spark: SparkSession) -> None:
    expected = frame(
        spark,
        [
            ("a", "a/x/1", "here", at(0), at(60), 401, 100),
            ("b", "b/x/1", "here", at(0), at(60), 600, 0),
            ("b", "b/x/1", "here", at(60), at(120), 100, 0),
            ("b", "b/x/1", "here", at(60), at(120), 100, 0),
        ],
        LOSSES,
    )
    assertDataFrameEqual(losses(lossy(spark)), expected)


def test_only_loss_above_the_threshold_is_an_alert(spark: SparkSession) -> None:
    found = frame(
        spark,
        [
            ("a", "a/1", "b", at(0), at(60), sent, lost)
            for sent, lost in ((1000, 10), (1000, 11), (90, 9), (100, 10))
        ],
        LOSSES,
    )
    alerts = [json.loads(row["payload"]) for row in alerting(found).collect()]
    assert [(one["sent"], one["lost"]) for one in alerts] == [(1000, 11), (100, 10)]
    assert [
        one["lost"] for one in [json.loads(row["payload"]) for row in alerting(found, 0.2).collect()]
    ] == []


def test_alert_names_pair_time_and_loss(spark: SparkSession) -> None:
    minutes = frame(
        spark,
        [("a", "b", at(60), 1000, 31)],
        "sender string, receiver string, minute timestamp, sent bigint, lost bigint",
    )
    [row] = alerting(of_minutes(minutes)).collect()
    message = json.loads(row["payload"])
    assert row["channel"] == CHANNEL
    assert len(message.pop("id")) == 16
    assert message == {
        "sender": "a", "receiver": "b", "from": "2026-01-31T00:01:00.000Z", "until": "2026-01-31T00:02:00.000Z",
        "sent": 1000, "lost": 31, "loss": 0.031,
    }  # fmt: skip


def test_same_loss_has_the_same_id(spark: SparkSession) -> None:
    def ids(rows: list[tuple[object, ...]]) -> list[str]:
        return [json.loads(row["payload"])["id"] for row in alerting(frame(spark, rows, LOSSES)).collect()]

    one = ("a", "a/1", "b", at(0), at(60), 1000, 100)
    others = [(*one[:2], "c", *one[3:]), (*one[:3], at(60), at(120), *one[5:]), (*one[:5], 1001, 101)]
    first, *rest = ids([one, *others])
    assert ids([one]) == [first]
    assert [each == first for each in rest] == [False, False, True]


def test_stream_of_rows_publishes_its_losses(
    spark: SparkSession, daemon: DaemonProcess, tmp_path: Path
) -> None:
    lossy(spark).write.parquet(str(tmp_path / "rows"))
    rows = spark.readStream.schema(lossy(spark).schema).parquet(str(tmp_path / "rows"))
    with bccn.Client(str(daemon.socket)) as bus:
        bus.subscribe("bccn/alerts/>")
        query = publishing(losses(rows), str(tmp_path / "checkpoint"), str(daemon.socket))
        try:
            query.processAllAvailable()
            message = bus.receive(PATIENCE)
        finally:
            query.stop()
        assert message is not None
        assert message.channel == CHANNEL
        alert = json.loads(message.payload)
        assert (alert["sender"], alert["receiver"], alert["src"], alert["lost"]) == (
            "a",
            "here",
            "a/x/1",
            100,
        )
        assert bus.receive(0.1) is None
