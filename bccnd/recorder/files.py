"""Recorded files: written under another name, renamed when whole, and removed when they are the oldest.

Rules
- ``Recording`` is the one writer of a host's files in a directory, and a lock file keeps others out. It does not
  know where rows come from, and it does not wait: time is an argument.
- Only ``Sink`` writes to the disk. What the disk does not take, it keeps in memory and tries again, so a full disk
  leaves the file that is being written intact. ``backlog`` is how much waits in memory; the owner bounds it.
- A file that cannot be finished (the disk fails to sync, or is full when the recorder stops) is removed, and its
  rows are counted as lost. The next start removes what a killed writer left behind.
- The files of this host, the unfinished one included, have at most ``keep_bytes``, and none is more than
  ``keep_days`` older than the newest. The oldest go first. Files of other hosts in the directory stay as they are.
- Each file says by itself what the daemon was (``describe``): files are read, collected and removed one by one.
- Rows go into the file in groups of GROUP_ROWS or ``group_bytes``, whichever comes first; memory holds one group.
"""

import contextlib
import fcntl
import os
import secrets
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog

from bccnd.errors import ConfigError, RefusedError, UnavailableError
from bccnd.recorder.layout import (
    DAY_NS,
    SCHEMA,
    SUFFIX,
    UNFINISHED,
    Mark,
    day_of,
    folder_of,
    host_folder,
    mark,
    name_of,
)

GROUP_ROWS = 65_536
GROUP_BYTES = 16 << 20
# Seconds between two attempts to write to a disk that takes nothing.
RETRY_SECONDS = 1.0
DICTIONARIES = [field.name for field in SCHEMA if pa.types.is_dictionary(field.type)]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Limits:
    """``rotate_*``: when a file is finished; ``keep_*``: how much is kept."""

    rotate_seconds: float = 30.0
    rotate_bytes: int = 128 << 20
    keep_bytes: int = 10 << 30
    keep_days: int = 7
    group_bytes: int = GROUP_BYTES


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


class Sink:
    """A file for pyarrow, written as far as the disk takes it; the rest waits in memory, in order.

    pyarrow needs ``write``, ``tell``, ``flush``, ``close`` and ``closed``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.closed = False
        # Why the last attempt to write failed; None when the disk took everything.
        self.error: OSError | None = None
        self.errors = 0
        self.backlog = 0
        self._waiting: deque[bytes] = deque()
        self._written = 0
        self._descriptor = -1
        self._retry_at = 0.0

    def write(self, data: bytes) -> int:
        # Copied: the buffer is Arrow's own. A disk that failed is not tried with every write, but by ``retry``.
        self._waiting.append(bytes(data))
        self.backlog += len(data)
        if self.error is None:
            self._push()
        return len(data)

    def tell(self) -> int:
        return self._written + self.backlog

    def flush(self) -> None:
        """Do nothing: only a whole file must be on the disk."""

    def close(self) -> None:
        """Note that pyarrow has written its last. ``finish`` or ``discard`` closes the file."""
        self.closed = True

    def retry(self, now: float) -> bool:
        """Try to write what waits, every RETRY_SECONDS; whether the disk has taken everything."""
        if self.error is not None and now >= self._retry_at:
            self._retry_at = now + RETRY_SECONDS
            self._push()
        return self.error is None

    def finish(self, path: Path) -> None:
        """Sync the file and give it this name. Raises ``OSError``: the file must be discarded."""
        self._open()
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        self.path.rename(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def discard(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._waiting.clear()
        self.backlog = 0
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _push(self) -> None:
        try:
            self._open()
            while self._waiting:
                data = self._waiting[0]
                went = os.write(self._descriptor, data)
                self._written += went
                self.backlog -= went
                if went == len(data):
                    self._waiting.popleft()
                else:
                    self._waiting[0] = data[went:]
            self.error = None
        except OSError as error:
            self.error = error
            self.errors += 1

    def _open(self) -> None:
        if self._descriptor < 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o640)


class _File:
    """A file that is being written."""

    def __init__(self, folder: Path, opened_ns: int, now: float, group_bytes: int) -> None:
        self.path = folder / name_of(opened_ns, secrets.token_hex(4))
        self.day = day_of(opened_ns)
        self.begun = now
        # The latest time in the file.
        self.until = opened_ns
        self.rows = 0
        self.sink = Sink(folder / f".{self.path.name}{UNFINISHED}")
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
    """The files of one host below ``output``; ``counts`` goes on where another left off.

    Raises ``UnavailableError`` when another process records the host there, ``ConfigError`` or ``RefusedError`` when
    the directory cannot be used.
    """

    def __init__(self, output: Path, host: str, limits: Limits, counts: Counts | None = None) -> None:
        self._output = output
        self._host = host
        self._limits = limits
        self.counts = counts or Counts()
        self._lock = _lock(output, host)
        self._file: _File | None = None
        # Complete, waiting for the disk.
        self._whole: deque[_File] = deque()
        self._disk_error_reported = False
        # The payload of the mark that stands behind ``opened`` in every file.
        self._about: bytes | None = None
        self._finished = deque(sorted(_finished(output, host)))
        self.kept = sum(size for _, _, size in self._finished)
        for path in _leftovers(output, host):
            path.unlink(missing_ok=True)
            log.warning("removed an unfinished file", file=str(path))

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
        folder = self._output / folder_of(self._host, day_of(time_ns))
        self._file = _File(folder, time_ns, now, self._limits.group_bytes)
        self._file.write(mark(Mark.OPENED, time_ns))
        if self._about is not None:
            self._file.write(mark(Mark.DAEMON, time_ns, payload=self._about))

    def close(self, time_ns: int, now: float) -> None:
        """End the file: everything up to ``time_ns`` was recorded."""
        if self._file is not None:
            self._file.write(mark(Mark.CLOSED, time_ns))
            self._file.complete()
            self._whole.append(self._file)
            self._file = None
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

    def rotate_if_due(self, time_ns: int, now: float) -> None:
        """Begin a new file if it is time. ``time_ns``: everything before it has been written."""
        file = self._file
        if file is None:
            return
        if day_of(time_ns) > file.day:
            self._turn(day_of(time_ns), time_ns, now)
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
        self._remove_oldest()

    def end(self) -> None:
        """Make the last call: files that still wait for the disk are removed and reported as lost."""
        for file in self._whole:
            self._give_up(file, file.sink.error)
        self._whole.clear()
        if self._file is not None:
            self._give_up(self._file, self._file.sink.error)
            self._file = None
        os.close(self._lock)

    def _turn(self, day: int, first_ns: int, now: float) -> None:
        """Begin the file of another day: at midnight, or at its first row where the clock was set back."""
        file = self._file
        if file is None or file.day == day:
            return
        forward = day > file.day
        self.close((file.day + 1) * DAY_NS if forward else file.until, now)
        self.open(day * DAY_NS if forward else first_ns, now)

    def _finish(self, file: _File) -> None:
        try:
            file.sink.finish(file.path)
        except OSError as error:
            self.counts.disk_errors += 1
            self._give_up(file, error)
            return
        size = file.sink.tell()
        self.counts.files += 1
        self.counts.size += size
        self.counts.disk_errors += file.sink.errors
        self._finished.append((_opened(file.path), file.path, size))
        self.kept += size

    def _give_up(self, file: _File, error: OSError | None) -> None:
        file.sink.discard()
        self.counts.lost += file.rows
        self.counts.disk_errors += file.sink.errors
        why = error.strerror if error else "it was not finished"
        log.error("lost a recorded file", file=str(file.path), rows=file.rows, error=why)

    def _report_disk(self) -> None:
        error = self.disk_error
        if error is not None and not self._disk_error_reported:
            self._disk_error_reported = True
            remedy = "make room, or lower --keep-bytes"
            log.error(
                "cannot write, trying again", output=str(self._output), error=error.strerror, remedy=remedy
            )
        elif error is None and self._disk_error_reported:
            self._disk_error_reported = False
            log.info("writing again", output=str(self._output))

    def _remove_oldest(self) -> None:
        newest = self._file.path if self._file else self._finished[-1][1] if self._finished else None
        if newest is None:
            return
        oldest_ns = _opened(newest) - self._limits.keep_days * DAY_NS
        writing = self._file.size if self._file else 0
        while self._finished and (
            self.kept + writing > self._limits.keep_bytes or self._finished[0][0] < oldest_ns
        ):
            _, path, size = self._finished.popleft()
            self.kept -= size
            self.counts.removed += 1
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                # Fails, as it should, unless this was the last file of its host and day.
                path.parent.rmdir()
                path.parent.parent.rmdir()


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


def _lock(output: Path, host: str) -> int:
    """A descriptor that holds the lock until it is closed."""
    path = output / f".{host_folder(host)}.lock"
    try:
        output.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except PermissionError as error:
        raise RefusedError(f"{error.filename}: permission denied; --output must be writable") from None
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}; --output must be a directory") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise UnavailableError(f"{output}: another process records host {host} there") from None
    return descriptor


def _folders(output: Path, host: str) -> Iterator[Path]:
    yield from output.glob(f"date=*/{host_folder(host)}")


def _finished(output: Path, host: str) -> Iterator[tuple[int, Path, int]]:
    for folder in _folders(output, host):
        for path in folder.glob(f"[0-9]*{SUFFIX}"):
            with contextlib.suppress(OSError, ValueError):
                yield _opened(path), path, path.stat().st_size


def _leftovers(output: Path, host: str) -> Iterator[Path]:
    for folder in _folders(output, host):
        yield from folder.glob(f".*{UNFINISHED}")


def _opened(path: Path) -> int:
    return int(path.name.partition("-")[0])
