"""Recorded files: written under another name, renamed when whole, one after the other without a gap.

Rules
- ``Recording`` is the one writer in its place (``Place``), which says how files are called and how many are kept. It
  does not know where rows come from, and it does not wait: time is an argument.
- Only ``Sink`` writes to the disk, and keeps in memory what the disk does not take. ``backlog`` is how much that is;
  the owner bounds it.
- A file that cannot be finished (the disk fails to sync, or is full when the recorder stops) is removed, and its
  rows are counted as lost.
- Each file says by itself whose record it is, and what the daemon was (``describe``): files are read, collected and
  removed one by one.
- Rows go into the file in groups of GROUP_ROWS or ``group_bytes``, whichever comes first; memory holds one group.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog

from bccnd.recorder.layout import DAY_NS, HOST_KEY, SCHEMA, Mark, day_of, mark
from bccnd.recorder.sink import Sink

GROUP_ROWS = 65_536
GROUP_BYTES = 16 << 20
DICTIONARIES = [field.name for field in SCHEMA if pa.types.is_dictionary(field.type)]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Limits:
    """``rotate_*``: when a file is finished; ``keep_*``: how much is kept. ``empty_files``: whether one is finished
    that says only that nothing happened, and how much later.
    """

    rotate_seconds: float = 30.0
    rotate_bytes: int = 128 << 20
    keep_bytes: int = 10 << 30
    keep_days: int = 7
    group_bytes: int = GROUP_BYTES
    empty_files: bool = True


@dataclass(slots=True)
class Counts:
    """Since the start. ``rows``: written, in finished files or not; ``size``: bytes of finished files.

    ``lost``: rows of files that could not be finished.
    """

    rows: int = 0
    size: int = 0
    files: int = 0
    removed: int = 0
    disk_errors: int = 0
    lost: int = 0


class Place(Protocol):
    """Where the files of a recording lie.

    ``host``: whose record they are; ``makes_folders``: whether a folder that is missing is made.
    """

    host: str
    makes_folders: bool

    @property
    def kept(self) -> int:
        """Bytes of whole files."""

    def begin(self, opened_ns: int) -> Path:
        """The path at which a file that opens then is written. Its name begins with a dot."""

    def displaced(self, writing: Path, size: int, /) -> int:
        """How many messages go unread with older files, once this one of ``size`` bytes is whole."""

    def final(self, writing: Path, messages: int, /) -> Path:
        """The path of the file when it is whole."""

    def finished(self, writing: Path, path: Path, size: int, /) -> None:
        """Take note of a whole file."""

    def given_up(self, writing: Path, /) -> None:
        """Take note that this file will not be whole."""

    def remove_oldest(self, writing: Path | None, size: int) -> int:
        """Remove files that are too old or too many beside the one being written; returns how many."""

    def close(self) -> None:
        """Let others write here."""


class _File:
    """A file that is being written."""

    def __init__(self, place: Place, opened_ns: int, now: float, group_bytes: int) -> None:
        self.path = place.begin(opened_ns)
        self.day = day_of(opened_ns)
        self.begun = now
        # The latest time in the file.
        self.until = opened_ns
        self.rows = 0
        # Whether it says no more than that nothing happened.
        self.empty = True
        self.sink = Sink(self.path, make_folder=place.makes_folders)
        self._writer = pq.ParquetWriter(
            self.sink,
            SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=DICTIONARIES,
            # zstd as Arrow writes it has no checksum: without these a damaged page can be read as other values.
            write_page_checksum=True,
            # Words are dictionaries in memory only: readers get strings.
            store_schema=False,
        )
        self._writer.add_key_value_metadata({HOST_KEY: place.host})
        self._group_bytes = group_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_size = 0

    @property
    def size(self) -> int:
        """Bytes so far, roughly: rows in memory count with their size there."""
        return self.sink.tell() + self._waiting_size

    @property
    def backlog(self) -> int:
        """Bytes in memory that the disk does not take."""
        return self.sink.backlog + self._waiting_size if self.sink.error else 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += len(batch)
        self._waiting_size += batch.get_total_buffer_size()
        if self._waiting_rows >= GROUP_ROWS or self._waiting_size >= self._group_bytes:
            self._flush()

    def complete(self) -> None:
        """Write the last group and the footer."""
        self._flush()
        self._writer.close()
        self.sink.close()

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, SCHEMA).unify_dictionaries()
            self._writer.write_table(table, row_group_size=len(table))
            self._waiting.clear()
            self._waiting_rows = self._waiting_size = 0


class Recording:
    """The files in ``place``; ``counts`` goes on where another left off."""

    def __init__(self, place: Place, limits: Limits, counts: Counts | None = None) -> None:
        self._place = place
        self._limits = limits
        self.counts = counts or Counts()
        self._file: _File | None = None
        # Complete, waiting for the disk.
        self._whole: deque[_File] = deque()
        self._disk_error_reported = False
        # The payload of the mark that stands behind ``opened`` in every file.
        self._about: bytes | None = None

    def __str__(self) -> str:
        return str(self._place)

    @property
    def kept(self) -> int:
        """Bytes of whole files."""
        return self._place.kept

    @property
    def unfinished(self) -> bool:
        """Whether a closed file still waits for the disk."""
        return bool(self._whole)

    @property
    def backlog(self) -> int:
        """Bytes that wait for the disk in memory."""
        files = [*self._whole, self._file] if self._file else self._whole
        return sum([file.backlog for file in files])

    @property
    def disk_error(self) -> OSError | None:
        files = [*self._whole, self._file] if self._file else self._whole
        return next((file.sink.error for file in files if file.sink.error), None)

    def open(self, time_ns: int, now: float) -> None:
        """Begin a file: everything from ``time_ns`` on is recorded. ``now``: monotonic seconds."""
        self._file = _File(self._place, time_ns, now, self._limits.group_bytes)
        self._file.write(mark(Mark.OPENED, time_ns))
        if self._about is not None:
            self._file.write(mark(Mark.DAEMON, time_ns, payload=self._about))

    def close(self, time_ns: int, now: float) -> None:
        """End the file: everything up to ``time_ns`` was recorded."""
        file, self._file = self._file, None
        if file is not None and file.empty and not self._limits.empty_files:
            self._discard(file)
        elif file is not None:
            if displaced := self._place.displaced(file.path, file.size):
                file.write(mark(Mark.UNRECORDED, time_ns, displaced))
            file.write(mark(Mark.CLOSED, time_ns))
            file.complete()
            self._whole.append(file)
        self.tick(now)

    def write(self, batch: pa.RecordBatch, now: float) -> None:
        """Write rows in the order in which they came. A new day begins a new file."""
        for day, part in _by_day(batch):
            times = pc.min_max(part.column("time_ns"))
            self._turn(day, times["min"].as_py(), now)
            assert self._file is not None  # noqa: S101 - open comes first
            self._file.write(part)
            self._file.until = max(self._file.until, times["max"].as_py())
            self._file.rows += len(part)
            self._file.empty = False
            self.counts.rows += len(part)

    def describe(self, about: bytes | None) -> None:
        """Set what the mark ``daemon`` says in each file that begins from now on; None: nothing is known."""
        self._about = about

    def mark(
        self, kind: Mark, time_ns: int, now: float, *, size: int = 0, payload: bytes | None = None
    ) -> None:
        """Write a mark of any kind but ``opened`` and ``closed``. A new day begins a new file."""
        self._turn(day_of(time_ns), time_ns, now)
        if self._file is not None:
            self._file.write(mark(kind, time_ns, size, payload))
            self._file.until = max(self._file.until, time_ns)
            self._file.empty &= kind is Mark.DAEMON

    def rotate_if_due(self, time_ns: int, now: float) -> None:
        """Begin a new file if it is time. ``time_ns``: everything before it has been written."""
        file = self._file
        if file is None:
            return
        if day_of(time_ns) > file.day:
            self._turn(day_of(time_ns), time_ns, now)
        elif file.empty and not self._limits.empty_files:
            return
        elif now - file.begun >= self._limits.rotate_seconds or file.size >= self._limits.rotate_bytes:
            self.close(time_ns, now)
            self.open(time_ns, now)

    def tick(self, now: float) -> None:
        """Write what waits for the disk, finish whole files, and remove files that are too old or too many."""
        if self._file is not None and self._file.sink.error is not None:
            self._file.sink.retry(now)
        while self._whole and (self._whole[0].sink.error is None or self._whole[0].sink.retry(now)):
            self._finish(self._whole.popleft())
        self._report_disk()
        writing = (self._file.path, self._file.size) if self._file else (None, 0)
        self.counts.removed += self._place.remove_oldest(*writing)

    def end(self) -> None:
        """Make the last call: files that still wait for the disk are removed and reported as lost."""
        for file in self._whole:
            self._give_up(file, file.sink.error)
        self._whole.clear()
        if self._file is not None:
            self._give_up(self._file, self._file.sink.error)
            self._file = None
        self._place.close()

    def _turn(self, day: int, first_ns: int, now: float) -> None:
        """Begin the file of another day: at midnight, or at its first row where the clock was set back."""
        file = self._file
        if file is None or file.day == day:
            return
        forward = day > file.day
        self.close((file.day + 1) * DAY_NS if forward else file.until, now)
        self.open(day * DAY_NS if forward else first_ns, now)

    def _finish(self, file: _File) -> None:
        path = self._place.final(file.path, file.rows)
        try:
            file.sink.finish(path)
        except OSError as error:
            self.counts.disk_errors += 1
            self._give_up(file, error)
            return
        size = file.sink.tell()
        self.counts.files += 1
        self.counts.size += size
        self.counts.disk_errors += file.sink.errors
        self._place.finished(file.path, path, size)

    def _give_up(self, file: _File, error: OSError | None) -> None:
        self._discard(file)
        self.counts.lost += file.rows
        why = error.strerror if error else "it was not finished"
        path = self._place.final(file.path, file.rows)
        log.error("lost a recorded file", file=str(path), rows=file.rows, error=why)

    def _discard(self, file: _File) -> None:
        file.sink.discard()
        self.counts.disk_errors += file.sink.errors
        self._place.given_up(file.path)

    def _report_disk(self) -> None:
        error = self.disk_error
        if error is not None and not self._disk_error_reported:
            self._disk_error_reported = True
            remedy = "make room, or lower --keep-bytes"
            log.error(
                "cannot write, trying again", output=str(self._place), error=error.strerror, remedy=remedy
            )
        elif error is None and self._disk_error_reported:
            self._disk_error_reported = False
            log.info("writing again", output=str(self._place))


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows, cut wherever the day changes."""
    times = batch.column("time_ns")
    first, last = (day_of(times[at].as_py()) for at in (0, len(times) - 1))
    bounds = pc.min_max(times).as_py()
    if first == last == day_of(bounds["min"]) == day_of(bounds["max"]):
        yield first, batch
        return
    begin = 0
    days = [day_of(time) for time in times.to_pylist()]
    for at in range(1, len(days) + 1):
        if at == len(days) or days[at] != days[begin]:
            yield days[begin], batch.slice(begin, at - begin)
            begin = at
