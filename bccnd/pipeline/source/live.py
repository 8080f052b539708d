"""``readStream.format("bccn")``: the bus, live, each message in exactly one batch whatever is killed on the way.

    spark.readStream.format("bccn").option("spool", "/var/spool/bccn-query").load()

    spool      directory of its own for this query, kept as long as its checkpoint (``segments``); executors on other
               hosts must see it, too
    socket     of the daemon, default as for ``bccn``
    channels   patterns, separated by white space; without them everything is tapped, as the recorder does, which
               needs the right to
    max_rows   at most in a batch (a segment, about a second of traffic, is the least); default: all there is
    bytes      the most that the spool may take, default 1 GiB; ``seconds``: of traffic in a segment, default 1
    linger     seconds that the spooler goes on when no query reads, default 600

Rows are as recorded (``rows``), in the order of their coming within a segment, each segment between ``opened`` and
``closed``. What the daemon could not hand over in time, or did not fit the spool, is an ``unrecorded`` row.

Rules
- The offset is the number of a segment. A batch is the segments between two, so it is the same when it is repeated.
- A number that is planned and gone was removed for want of room: that was counted, so it is passed over.
- The reader holds the lock of ``<spool>/reader``: a spool gives each message to one query. If nobody holds the
  spooler's, it takes it and starts one that goes on holding it, at the beginning and whenever it looks for more.
- What is held (locks) is taken when it is needed: this object is pickled and sent about. Only the process in which
  Spark asks for offsets holds anything, and it ends with the query, or with the driver.
"""

import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from bccnd.errors import ConfigError, UnavailableError
from bccnd.pipeline.source import rows, segments
from bccnd.pipeline.source import spool as spooler
from bccnd.pipeline.source.rows import mark
from bccnd.recorder.layout import Mark

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "bccn"
PARTITION_SEGMENTS = 8  # read by one task, one after the other
START_SECONDS = 10.0  # until a spooler has its connection, or says why not

Offset = dict[str, int]


@dataclass(frozen=True, slots=True)
class Settings:
    """The options, checked."""

    spool: str
    socket: str | None = None
    channels: tuple[str, ...] = ()
    max_rows: int = 0
    bytes: int = spooler.SPOOL_BYTES
    seconds: float = spooler.SECONDS
    linger: float = spooler.LINGER

    @classmethod
    def of(cls, options: Any) -> "Settings":
        """From Spark's own mapping, whose keys know no case. Raises ``ConfigError``."""
        folder = options.get("spool", options.get("path", ""))
        if not folder:
            raise ConfigError(f'{FORMAT}: no spool: .option("spool", DIR) says where messages wait')
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
        """What starts the spooler."""
        told = {"bytes": self.bytes, "seconds": self.seconds, "linger": self.linger, "lock": lock}
        flags = [f"--{name}={value}" for name, value in told.items()]
        if self.socket:
            flags.append(f"--socket={self.socket}")
        channels = ["--channels", *self.channels] if self.channels else []
        return [sys.executable, "-m", "bccnd.pipeline.source.spool", self.spool, *flags, *channels]


def _number(options: Any, name: str, default: float) -> float:
    told = options.get(name, default)
    try:
        number = float(told)
    except ValueError:
        number = -1
    if not 0 <= number < 2**53:
        raise ConfigError(f"{FORMAT}: {name} {told}: must be a number, not below 0")
    return number


@dataclass(frozen=True)
class Span(InputPartition):
    """Segments of one task."""

    paths: tuple[str, ...]


class LiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, settings: Settings, columns_wanted: Sequence[str]) -> None:
        self._settings = settings
        self._columns = list(columns_wanted)
        self._target: int | None = None  # of Trigger.AvailableNow: nothing newer
        self._lock: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lock": None}

    # --- where Spark asks for offsets ---

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"segment": 0}  # all that waits

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._attend()
        there = segments.listed(self._settings.spool)
        self._target = there[-1].number if there else 0

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._settings.max_rows) if self._settings.max_rows else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        self._attend()
        there = segments.listed(self._settings.spool)
        first = start["segment"]
        if there and there[-1].number < first:
            raise ConfigError(
                f"{self._settings.spool}: its newest segment is {there[-1].number}, the checkpoint is at {first}: "
                "this is another query's spool"
            )
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        last, messages = first, 0
        for segment in there:
            if segment.number <= first or (self._target is not None and segment.number > self._target):
                continue
            messages += segment.messages
            if most is not None and messages > most and last != first:
                break
            last = segment.number
        return {"segment": last}

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        there = segments.listed(self._settings.spool)
        return {"segment": there[-1].number} if there else None

    def partitions(self, start: Offset, end: Offset) -> list[Span]:
        paths = [
            segment.path
            for segment in segments.listed(self._settings.spool)
            if start["segment"] < segment.number <= end["segment"]
        ]
        return [
            Span(tuple(paths[at : at + PARTITION_SEGMENTS]))
            for at in range(0, len(paths), PARTITION_SEGMENTS)
        ]

    def commit(self, end: Offset) -> None:
        segments.remove_through(self._settings.spool, end["segment"])

    def stop(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _attend(self) -> None:
        """Have the spool to ourselves, and somebody who fills it."""
        if self._lock is None:
            self._lock = spooler.locked(self._settings.spool, spooler.READER, spooler.LOCK_SECONDS)
            if self._lock is None:
                raise UnavailableError(
                    f"{self._settings.spool}: another query reads this spool: each needs its own"
                )
        lock = spooler.locked(self._settings.spool, spooler.SPOOLER)
        if lock is not None:
            try:
                _start(self._settings, lock)
            finally:
                os.close(lock)

    # --- where Spark wants rows ---

    def read(self, partition: Span) -> Iterator["pa.RecordBatch"]:  # type: ignore[override]
        for path in partition.paths:
            for batch in read_segment(path):
                yield batch.select(self._columns)


def read_segment(path: str) -> Iterator["pa.RecordBatch"]:
    """The rows of a segment between its marks; none if it had to go."""
    try:
        header, content, starts, ends = segments.read(path)
    except FileNotFoundError:
        if Path(path).parent.is_dir():
            return
        raise ConfigError(
            f"{Path(path).parent}: not on this executor: a spool must be where all of them see it"
        ) from None
    host = header.host
    opened = [mark(header.opened, host, Mark.OPENED)]
    if header.removed:
        time_ns, messages = header.removed
        opened.append(mark(time_ns, host, Mark.UNRECORDED, messages))
    yield rows.batch_of(opened)
    yield from rows.Tapped(host, header.local).batches(content, starts, ends, header.opened)
    yield rows.batch_of([mark(header.closed, host, Mark.CLOSED)])


def _start(settings: Settings, lock: int) -> None:
    """A spooler that outlives us, once it reads the bus. Raises ``ConfigError`` with its own words."""
    with (Path(settings.spool) / "log").open("wb") as log:
        process = subprocess.Popen(
            settings.command(lock),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=[lock],
            start_new_session=True,
        )
    assert process.stdout is not None  # noqa: S101
    with process.stdout as stdout:
        readable, _, _ = select.select([stdout], [], [], START_SECONDS)
        said = os.read(stdout.fileno(), len(spooler.READY)) if readable else b""
    if said == spooler.READY:
        return
    if not readable:
        process.kill()
    process.wait()
    reason = (Path(settings.spool) / "log").read_text(errors="replace").strip().splitlines()
    raise UnavailableError(reason[-1] if reason else f"{FORMAT}: the spooler does not start")
