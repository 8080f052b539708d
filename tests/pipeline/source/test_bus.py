"""The format ``bccn`` by its name: ``readStream`` reads what ``write`` published."""

from pathlib import Path

from pyspark.sql import SparkSession

from bccnd.pipeline.source.rows import ROWS
from tests.daemon_process import DaemonProcess
from tests.pipeline.source.spooling import await_messages, run_query, spooling


def test_a_stream_reads_what_a_frame_published(
    spark: SparkSession, daemon: DaemonProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "spool"
    with spooling(daemon, folder, "--seconds=0.1"):
        frame = spark.sql("select 'local/x' as channel, cast('hello' as binary) as payload")
        frame.write.format("bccn").option("socket", str(daemon.socket)).mode("append").save()
        await_messages(folder, 1)
        rows = spark.readStream.format("bccn").option("spool", str(folder)).load()
        assert rows.schema.simpleString() == spark.createDataFrame([], ROWS).schema.simpleString()
        found = rows.where("channel = 'local/x'").select("host", "direction", "verdict", "mode", "payload")
        run_query(found.writeStream.format("memory").queryName("found").trigger(availableNow=True))
    assert [tuple(row) for row in spark.table("found").collect()] == [
        ("here", "local", "ok", "none", b"hello")
    ]
