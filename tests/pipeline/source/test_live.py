"""The live source: offsets, and a query that loses nothing and repeats nothing, whatever is killed."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import bccn
from bccnd.errors import ConfigError, UnavailableError
from bccnd.pipeline.source import spool, spool_files
from bccnd.pipeline.source.live import PARTITION_FILES, LiveOptions, LiveReader, read_file
from bccnd.pipeline.source.rows import SCHEMA
from bccnd.pipeline.source.spool_files import Spool
from bccnd.recorder.files import Limits, Recording
from bccnd.recorder.layout import SCHEMA as RECORDED
from bccnd.recorder.layout import Mark, mark
from tests.daemon_process import DaemonProcess, die_with_parent
from tests.packet_client import wait_until
from tests.pipeline.source.spooling import await_messages, publish, run_query, spooling

LONG = 300.0  # seconds: a driver starts on a busy machine
ALL = ReadAllAvailable()


def fill(folder: Path, messages: list[int], first: int = 1) -> None:
    """Spool files whose names say that they hold this many messages."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, count in enumerate(messages, first):
        marks = [mark(Mark.OPENED, number), mark(Mark.CLOSED, number + 1)]
        pq.write_table(pa.Table.from_batches(marks), folder / f"{number:017}-{count}.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A spool whose spooler seems to run: none is started."""
    lock = spool.locked(str(tmp_path / "spool"), spool.SPOOLER)
    assert lock is not None
    yield tmp_path / "spool"
    os.close(lock)


@contextmanager
def reading(folder: Path, **options: object) -> Iterator[LiveReader]:
    reader = LiveReader(LiveOptions.of({"spool": str(folder), **options}), SCHEMA.names)
    try:
        yield reader
    finally:
        reader.stop()


def test_an_offset_is_the_number_of_a_spool_file(folder: Path) -> None:
    with reading(folder) as reader:
        start = reader.initialOffset()
        assert reader.latestOffset(start, ALL) == start
        fill(folder, [1] * 20)
        end = reader.latestOffset(start, ALL)
        assert end == {"segment": 20}
        partitions = reader.partitions(start, end)
        assert [len(each.paths) for each in partitions] == [PARTITION_FILES, PARTITION_FILES, 4]
        assert reader.partitions(end, end) == []
        assert [
            Path(path).name for each in reader.partitions({"segment": 17}, end) for path in each.paths
        ] == [f"{number:017}-1.parquet" for number in (18, 19, 20)]


def test_a_batch_has_at_most_max_rows_but_at_least_a_file(folder: Path) -> None:
    fill(folder, [10, 10, 10, 50, 1])
    with reading(folder, max_rows="25") as reader:
        limit = reader.getDefaultReadLimit()
        assert limit == ReadMaxRows(25)
        seen = [reader.initialOffset()["segment"]]
        while (end := reader.latestOffset({"segment": seen[-1]}, limit)["segment"]) != seen[-1]:
            seen.append(end)
        assert seen == [0, 2, 3, 4, 5]


def test_available_now_ends_where_it_began_to_look(folder: Path) -> None:
    fill(folder, [1, 1])
    with reading(folder) as reader:
        reader.prepareForTriggerAvailableNow()
        fill(folder, [1], first=3)
        assert reader.latestOffset({"segment": 0}, ALL) == {"segment": 2}
        assert reader.reportLatestOffset() == {"segment": 3}


def test_a_commit_removes_files_except_the_newest(folder: Path) -> None:
    fill(folder, [1, 1, 1])
    with reading(folder) as reader:
        reader.commit({"segment": 2})
        assert [each.number for each in spool_files.listed(str(folder))] == [3]
        reader.commit({"segment": 3})
        assert spool_files.next_number(str(folder)) == 4


def test_a_planned_file_that_was_removed_is_passed_over(folder: Path) -> None:
    fill(folder, [1, 1])
    with reading(folder) as reader:
        [partition] = reader.partitions({"segment": 0}, {"segment": 2})
        Path(partition.paths[0]).unlink()
        batches = [row for batch in reader.read(partition) for row in batch.to_pylist()]
        assert [(row["verdict"], row["time_ns"]) for row in batches] == [("opened", 2), ("closed", 3)]
    with pytest.raises(ConfigError, match="not on this executor"):
        list(read_file("/nowhere/00000000000000001-1.parquet"))


def test_messages_of_a_damaged_file_are_counted(folder: Path) -> None:
    """Each time the same: those that cannot be read, or all if none can."""
    folder.mkdir(exist_ok=True)
    recording = Recording(Spool(str(folder), "here", 1 << 30), Limits(group_bytes=1))
    row = {"time_ns": 5, "direction": "in", "verdict": "ok", "payload": os.urandom(5000), "size": 1}
    recording.open(5, 0.0)
    for _ in range(2):
        recording.write(pa.RecordBatch.from_pylist([row] * 20_000, RECORDED), 0.0)
    recording.close(9, 0.0)
    [spooled] = spool_files.listed(str(folder))
    groups = pq.read_metadata(spooled.path)
    last = groups.row_group(groups.num_row_groups - 2).column(RECORDED.get_field_index("payload"))
    content = bytearray(Path(spooled.path).read_bytes())
    content[last.data_page_offset + last.total_compressed_size // 2] ^= 1
    Path(spooled.path).write_bytes(content)
    for _ in range(2):
        rows = [
            row for batch in read_file(spooled.path) for row in batch.select(["verdict", "size"]).to_pylist()
        ]
        assert rows[-1] == {"verdict": "unrecorded", "size": 40_000 - (len(rows) - 2)}
        assert len(rows) > 16_384
    Path(spooled.path).write_bytes(b"PAR1 damaged")
    [(row,)] = [batch.to_pylist() for batch in read_file(spooled.path)]
    assert (row["verdict"], row["size"]) == ("unrecorded", 40_000)
    assert spooled.path.encode() in row["payload"]


def test_a_spool_serves_one_query(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "LOCK_SECONDS", 0.05)
    fill(folder, [1])
    with reading(folder) as first, reading(folder) as second:
        first.latestOffset({"segment": 0}, ALL)
        with pytest.raises(UnavailableError, match="another query"):
            second.latestOffset({"segment": 0}, ALL)
        first.stop()
        assert second.latestOffset({"segment": 0}, ALL) == {"segment": 1}
        with pytest.raises(ConfigError, match="another query's spool"):
            second.latestOffset({"segment": 9}, ALL)


def test_a_pickled_reader_holds_no_lock(folder: Path) -> None:
    fill(folder, [1])
    with reading(folder) as reader:
        reader.latestOffset({"segment": 0}, ALL)
        copy = pickle.loads(pickle.dumps(reader))  # noqa: S301
        assert [
            batch.num_rows
            for each in copy.partitions({"segment": 0}, {"segment": 1})
            for batch in copy.read(each)
        ]
        copy.stop()
        assert spool.locked(str(folder), spool.READER) is None, "the reader itself still has it"


@pytest.mark.parametrize("options", [{}, {"spool": "x", "max_rows": "many"}, {"spool": "x", "bytes": "-1"}])
def test_wrong_options_are_named(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=[*options, "spool"][-1 if len(options) < 2 else 1]):
        LiveOptions.of(options)


def test_the_reason_why_no_spooler_starts_is_raised(tmp_path: Path) -> None:
    with (
        reading(tmp_path / "spool", socket=str(tmp_path / "none")) as reader,
        pytest.raises(UnavailableError, match="no daemon at"),
    ):
        reader.latestOffset({"segment": 0}, ALL)


def test_available_now_reads_each_message_once_with_spark(
    spark: SparkSession, daemon: DaemonProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "spool"
    seen: list[tuple[int, int]] = []

    def run() -> list[int]:
        rows = spark.readStream.format("bccn").options(spool=str(folder), max_rows=10).load()
        before = len(seen)
        sent = rows.where("direction = 'local'").selectExpr("cast(cast(payload as string) as int) as number")
        query = sent.writeStream.trigger(availableNow=True).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        run_query(
            query.foreachBatch(lambda batch, at: seen.extend((at, row["number"]) for row in batch.collect()))
        )
        return [number for _, number in seen[before:]]

    with spooling(daemon, folder, "--seconds=0.05"):
        for first in (0, 10, 20):
            publish(daemon, "local/x", range(first, first + 10))
            await_messages(folder, first + 10)
        assert run() == [*range(30)]
        assert len({batch for batch, _ in seen}) == 3
        read = spool_files.next_number(str(folder))
        publish(daemon, "local/x", range(30, 40))
        wait_until(
            lambda: (
                sum(each.messages for each in spool_files.listed(str(folder)) if each.number >= read) == 10
            ),
            "the last spool files",
        )
        assert run() == [*range(30, 40)]


class Publisher(threading.Thread):
    """Publishes numbers on ``local/x``, 1000 a second, until it is stopped.

    ``before_ns`` and ``after_ns``: times before and after the daemon got each number."""

    def __init__(self, socket: Path) -> None:
        super().__init__()
        self._socket = socket
        self._ends = threading.Event()
        self.before_ns: list[int] = []
        self.after_ns: list[int] = []

    def run(self) -> None:
        with bccn.Client(str(self._socket), pack=True) as bus:
            while not self._ends.wait(0.02):
                self.before_ns += [time.time_ns()] * 20
                count = len(self.before_ns)
                with bus.batch():
                    for number in range(count - 20, count):
                        bus.publish("local/x", str(number))
                bus.barrier()
                self.after_ns += [time.time_ns()] * 20

    def stop(self) -> None:
        self._ends.set()
        self.join()


class Driver:
    """``live_query.py`` and its JVM, in a session of their own."""

    def __init__(self, folder: Path, socket: Path) -> None:
        program = Path(__file__).with_name("live_query.py")
        with (folder / "driver").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(program), str(folder), str(socket)],
                stdout=log, stderr=log, start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip

    def kill(self) -> None:
        """Kill the driver and the JVM at once: neither can tidy up."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def test_kills_lose_nothing_and_repeat_nothing(daemon: DaemonProcess, tmp_path: Path) -> None:
    publisher = Publisher(daemon.socket)
    driver = Driver(tmp_path, daemon.socket)
    spooler = 0
    try:
        wait_until(lambda: _spooler(tmp_path), "a spooler", LONG)
        publisher.start()
        wait_until(lambda: _batches(tmp_path) >= 2, "a batch", LONG)
        driver.kill()
        driver = Driver(tmp_path, daemon.socket)
        before = _batches(tmp_path)
        wait_until(lambda: _batches(tmp_path) >= before + 2, "a batch of the second driver", LONG)
        spooler = _spooler(tmp_path)
        os.kill(spooler, signal.SIGKILL)
        wait_until(lambda: _spooler(tmp_path) not in (0, spooler), "another spooler", LONG)
        newest = spool_files.listed(str(tmp_path / "spool"))[-1].number
        wait_until(
            lambda: spool_files.listed(str(tmp_path / "spool"))[-1].number > newest + 2,
            "its spool files",
            LONG,
        )
        publisher.stop()
        count = len(publisher.before_ns)
        wait_until(lambda: count - 1 in _numbers(tmp_path), "the last message", LONG)
    finally:
        publisher.stop()
        driver.kill()
        if last := _spooler(tmp_path):
            os.kill(last, signal.SIGTERM)
    numbers = _numbers(tmp_path)
    assert len(numbers) == len(set(numbers)), "a message came twice"
    missing = sorted(set(range(count)) - set(numbers))
    # The spooler that was killed had a fraction of a second in its memory; the marks show it.
    marks = _rows(tmp_path, ds.field("direction") == "")
    opened = sorted(row["time_ns"] for row in marks if row["verdict"] == "opened")
    closed = sorted(row["time_ns"] for row in marks if row["verdict"] == "closed")
    gaps = [(end, begin) for end, begin in zip(closed, opened[1:], strict=False) if begin > end]
    assert len(gaps) == 1
    [(end, begin)] = gaps
    assert missing == [*range(missing[0], missing[-1] + 1)]
    assert end <= publisher.after_ns[missing[0]]
    assert publisher.before_ns[missing[-1]] < begin


def _spooler(folder: Path) -> int:
    try:
        return int((folder / "spool" / "spooler").read_text() or 0)
    except FileNotFoundError:
        return 0


def _batches(folder: Path) -> int:
    return len([*folder.glob("out/*/_SUCCESS")])


def _rows(folder: Path, which: ds.Expression) -> list[dict[str, object]]:
    files = [
        str(path) for success in folder.glob("out/*/_SUCCESS") for path in success.parent.glob("*.parquet")
    ]
    return ds.dataset(files, format="parquet").to_table(filter=which).to_pylist()


def _numbers(folder: Path) -> list[int]:
    return [int(row["payload"]) for row in _rows(folder, ds.field("channel") == "local/x")]  # type: ignore[call-overload]
