"""Rows as messages: all are published, or the task fails and names the row."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import bccn
from bccnd.errors import ConfigError, RefusedError, UnavailableError
from bccnd.pipeline.source.publish import WINDOW, Target
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE


def batches(*rows: tuple[Any, Any]) -> Iterator[pa.RecordBatch]:
    channels, payloads = zip(*rows, strict=True)
    yield pa.record_batch({"channel": pa.array(channels, pa.string()), "payload": pa.array(payloads)})


def received(bus: bccn.Client, count: int) -> list[tuple[str, bytes]]:
    found = []
    while len(found) < count and (message := bus.receive(PATIENCE)):
        found.append((message.channel, message.payload))
    return found


def target(daemon: DaemonProcess) -> Target:
    return Target(str(daemon.socket), 5.0)


def test_all_rows_are_published_in_order(daemon: DaemonProcess) -> None:
    with bccn.Client(str(daemon.socket), pack=True) as bus:
        bus.subscribe("local/>")
        count = 2 * WINDOW + 7
        rows = [(f"local/{number % 3}", b"%d" % number) for number in range(count)]
        assert target(daemon).publish(batches(*rows)).messages == count
        assert received(bus, count) == rows
        assert target(daemon).publish(batches(("local/text", "ü"), ("local/null", None))).messages == 2
        assert received(bus, 2) == [("local/text", "ü".encode()), ("local/null", b"")]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (("far/x", b"x" * 1500), r"row 1030 of the frame: MSG far/x: .* at most 1400 .*\(too-large\)"),
        (("white space", b""), r"row 1030 of the frame: .*bad-channel"),
        (("ü", b""), "row 1030 of the frame: channel 'ü': must be ASCII"),
        (("a\0b", b""), "row 1030 of the frame: .*must not contain NUL"),
        ((None, b""), "row 1030 of the frame: its channel is null"),
    ],
)
def test_a_row_that_cannot_be_published_is_named(
    daemon: DaemonProcess, wrong: tuple[Any, bytes], reason: str
) -> None:
    rows: list[tuple[Any, bytes]] = [("far/x", b"small")] * 1030
    with pytest.raises(ConfigError, match=reason):
        target(daemon).publish(batches(*rows, wrong, *rows[:10]))


def test_a_missing_or_refusing_daemon_fails_the_task(tmp_path: Path, loopback_port: int) -> None:
    away = Target(str(tmp_path / "none"), 0.1)
    with pytest.raises(UnavailableError, match="0 rows of the frame were published"):
        away.publish(batches(("a", b"")))
    settings = tmp_path / "bccnd.toml"
    settings.write_text('[[rights]]\npublish = ["a"]\n')
    flags = ["--config", str(settings), "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    with (
        DaemonProcess(tmp_path, *flags) as daemon,
        pytest.raises(RefusedError, match="row 1 of the frame: MSG b:"),
    ):
        target(daemon).publish(batches(("a", b""), ("b", b"")))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            bccn.RejectedError("limit", "too many are open"),
            r"bccn: too many are open \(limit\); end some programs",
        ),
        (bccn.RefusedError("refused", "not you"), r"bccn: not you \(refused\); the group of the socket"),
    ],
)
def test_a_door_that_lets_nobody_in_is_told_with_a_remedy(
    error: bccn.RejectedError, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turned_away(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(bccn, "Client", turned_away)
    with pytest.raises(RefusedError, match=told):
        Target("unix:door", PATIENCE).publish(batches(("a", b"")))


@pytest.mark.parametrize(
    ("columns", "options", "overwrite", "reason"),
    [
        ("channel string", {}, False, "the columns channel"),
        ("channel string, payload int", {}, False, "the columns channel"),
        ("channel string, payload string, id string", {}, False, "and no others"),
        ("channel string, payload string", {}, True, "append"),
        ("channel string, payload binary", {"timeout": "soon"}, False, "timeout soon"),
    ],
)
def test_wrong_columns_and_options_fail_before_a_task_starts(
    spark: SparkSession, columns: str, options: dict[str, str], overwrite: bool, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        Target.of(options, StructType.fromDDL(columns), overwrite=overwrite)


def test_a_frame_is_written_from_its_partitions(spark: SparkSession, daemon: DaemonProcess) -> None:
    frame = spark.range(0, 1000, 1, 3).selectExpr(
        "concat('local/', id % 2) as channel", "cast(id as string) as payload"
    )
    with bccn.Client(str(daemon.socket), pack=True) as bus:
        bus.subscribe("local/>")
        frame.write.format("bccn").option("socket", str(daemon.socket)).mode("append").save()
        assert sorted(int(payload) for _, payload in received(bus, 1000)) == [*range(1000)]
    large = spark.sql("select 'far/x' as channel, repeat('x', 3000) as payload")
    with pytest.raises(PySparkException, match=r"row 0 of partition 0: MSG far/x: .*too-large"):
        large.write.format("bccn").option("socket", str(daemon.socket)).mode("append").save()
