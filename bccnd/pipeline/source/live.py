"""``readStream.format("bccn")``: the bus, live, each message in exactly one batch, whatever process is killed.

    spark.readStream.format("bccn").option("spool", "/var/spool/bccn-query").load()

    spool      a directory for this query alone, kept as long as its checkpoint (``spool_files``); executors on other
               hosts must see it, too
    socket     the daemon's socket; default as for ``bccn``
    channels   patterns, separated by white space; without them everything is tapped, as the recorder does, which
               needs the right to tap
    max_rows   the most rows in a batch, but at least one spool file, about a second of traffic; default: all there is
    bytes      the most that the spool may take, default 1 GiB; ``seconds``: of traffic in a spool file, default 1
    linger     seconds that the spooler goes on when no query reads, default 600

Rows are as recorded (``rows``), marks included, in the order in which they came: the spooler is a recorder. An
``unrecorded`` row also counts messages that the spool had no room for, or that were in a damaged spool file.

Rules
- The offset is the number of a spool file. A batch is the files between two offsets, so a repeated batch is the
  same.
- A planned file that is gone was removed to make room. Its messages have been counted, so it is passed over.
- The reader holds the lock of ``<spool>/reader``: a spool gives each message to one query. If nobody holds the lock
  of ``<spool>/spooler``, the reader takes it and starts a spooler that goes on holding it. It looks at the start
  and whenever it asks for more.
- Locks are taken when they are needed, because Spark pickles this object and sends it about. Only the process in
  which Spark asks for offsets holds any, and it ends with the query or with the driver.
"""

import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from bccnd.errors import ConfigError, UnavailableError
from bccnd.pipeline.source import rows, spool_files
from bccnd.pipeline.source import spool as spooler
from bccnd.pipeline.source.rows import mark
from bccnd.recorder.layout import HOST_KEY, Direction, Mark

FORMAT = "bccn"
# Spool files that one task reads, one after the other.
PARTITION_FILES = 8
# Seconds in which a spooler has its connection, or says why not.
START_SECONDS = 10.0

Offset = dict[str, int]


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """The options, checked."""

    spool: str
    socket: str | None = None
    channels: tuple[str, ...] = ()
    max_rows: int = 0
    bytes: int = spooler.SPOOL_BYTES
    seconds: float = spooler.SECONDS
    linger: float = spooler.LINGER

    @classmethod
    def of(cls, options: Any) -> "LiveOptions":
        """From Spark's own mapping, whose keys ignore case. Raises ``ConfigError``."""
        folder = options.get("spool", options.get("path", ""))
        if not folder:
            raise ConfigError(f'{FORMAT}: no spool: set .option("spool", DIR), where messages wait')
        return cls(
            str(Path(folder).absolute()),
            options.get("socket"),
            tuple(options.get("channels", "").split()),
            int(_number(options, "max_rows", 0)),
            int(_number(options, "bytes", spooler.SPOOL_BYTES)),
            _number(options, "seconds", spooler.SECONDS),
            _number(options, "linger", spooler.LINGER),
        )

    def command(self, lock: int) -> list[str]:
        """The command that starts the spooler. ``lock``: the descriptor that holds its lock."""
        values = {"bytes": self.bytes, "seconds": self.seconds, "linger": self.linger, "lock": lock}
        flags = [f"--{name}={value}" for name, value in values.items()]
        if self.socket:
            flags.append(f"--socket={self.socket}")
        channels = ["--channels", *self.channels] if self.channels else []
        return [sys.executable, "-m", "bccnd.pipeline.source.spool", self.spool, *flags, *channels]


def _number(options: Any, name: str, default: float) -> float:
    given = options.get(name, default)
    try:
        number = float(given)
    except ValueError:
        number = -1
    if not 0 <= number < 2**53:
        raise ConfigError(f"{FORMAT}: {name} {given}: must be a number, not below 0")
    return number


@dataclass(frozen=True)
class Partition(InputPartition):
    """The spool files of one task."""

    paths: tuple[str, ...]


class LiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: LiveOptions, columns_wanted: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns_wanted)
        # The newest file that Trigger.AvailableNow reads.
        self._target: int | None = None
        self._lock: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lock": None}

    # These run where Spark asks for offsets.

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"segment": 0}  # before all files that wait

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._claim_spool()
        there = spool_files.listed(self._options.spool)
        self._target = there[-1].number if there else 0

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_rows) if self._options.max_rows else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        self._claim_spool()
        there = spool_files.listed(self._options.spool)
        first = start["segment"]
        if there and there[-1].number < first:
            raise ConfigError(
                f"{self._options.spool}: its newest file is {there[-1].number}, the checkpoint is at {first}: "
                "this is another query's spool"
            )
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        last, messages = first, 0
        for each in there:
            if each.number <= first or (self._target is not None and each.number > self._target):
                continue
            messages += each.messages
            if most is not None and messages > most and last != first:
                break
            last = each.number
        return {"segment": last}

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        there = spool_files.listed(self._options.spool)
        return {"segment": there[-1].number} if there else None

    def partitions(self, start: Offset, end: Offset) -> list[Partition]:
        paths = [
            each.path
            for each in spool_files.listed(self._options.spool)
            if start["segment"] < each.number <= end["segment"]
        ]
        return [
            Partition(tuple(paths[at : at + PARTITION_FILES])) for at in range(0, len(paths), PARTITION_FILES)
        ]

    def commit(self, end: Offset) -> None:
        spool_files.remove_through(self._options.spool, end["segment"])

    def stop(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _claim_spool(self) -> None:
        """Hold the reader's lock, and start a spooler if none runs."""
        if self._lock is None:
            self._lock = spooler.locked(self._options.spool, spooler.READER, spooler.LOCK_SECONDS)
            if self._lock is None:
                raise UnavailableError(
                    f"{self._options.spool}: another query reads this spool: each needs its own"
                )
        lock = spooler.locked(self._options.spool, spooler.SPOOLER)
        if lock is not None:
            try:
                _start(self._options, lock)
            finally:
                os.close(lock)

    # This runs where Spark wants rows.

    def read(self, partition: Partition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        for path in partition.paths:
            for batch in read_file(path):
                yield batch.select(self._columns)


def read_file(path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a spool file; none if it was removed.

    Of a damaged file the messages that cannot be read are counted by a mark ``unrecorded``, whose payload says why.
    The file is as damaged when the batch is repeated.
    """
    datagrams, host = 0, ""
    try:
        time_ns = Path(path).stat().st_mtime_ns
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            host = (file.metadata.metadata or {}).get(HOST_KEY.encode(), b"").decode()
            for batch in file.iter_batches(rows.BATCH_ROWS, use_threads=False):
                made = rows.of_recorded(batch, host)
                time_ns = made["time_ns"][-1].as_py()
                datagrams += pc.sum(pc.not_equal(made["direction"], Direction.MARK.value)).as_py()
                yield made
    except FileNotFoundError:
        if Path(path).parent.is_dir():
            return
        raise ConfigError(
            f"{Path(path).parent}: not on this executor: a spool must be where all executors see it"
        ) from None
    except (OSError, pa.ArrowException) as error:
        missing = max(0, spool_files.messages_of(path) - datagrams)
        reason = f"{path}: {error}".encode()
        yield rows.batch_of([mark(time_ns, host, Mark.UNRECORDED, missing, reason)])


def _start(options: LiveOptions, lock: int) -> None:
    """Start a spooler that outlives this process, and return once it reads the bus.

    Raises ``UnavailableError`` with the spooler's own words.
    """
    with (Path(options.spool) / "log").open("wb") as log:
        process = subprocess.Popen(
            options.command(lock),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=[lock],
            start_new_session=True,
        )
    assert process.stdout is not None  # noqa: S101
    with process.stdout as stdout:
        readable, _, _ = select.select([stdout], [], [], START_SECONDS)
        output = os.read(stdout.fileno(), len(spooler.READY)) if readable else b""
    if output == spooler.READY:
        return
    if not readable:
        process.kill()
    process.wait()
    reason = (Path(options.spool) / "log").read_text(errors="replace").strip().splitlines()
    raise UnavailableError(reason[-1] if reason else f"{FORMAT}: the spooler does not start")
