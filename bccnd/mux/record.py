"""The record of a host, read file by file in portions (``bccnd/recorder/layout.py``). It blocks: a thread calls it.

Rules
- Files are read in the order in which they were opened. Of the files before the span only the last one is read, and
  of each file only the row groups that can reach into the span.
- A replay has what a subscriber would have got: what was delivered, from the segment or this host.
- The channels of a row group are read first, and payloads only where a channel matches. Memory holds some pages of
  columns and the rows of one portion, never a file.
- A file that is damaged, or removed before it is read, is skipped, and its time is reported as missing. So is all
  time between two files, and what the recorder says it lost.
- An open file stays readable when the recorder removes it. Only plain files are opened: another kind could make the
  thread wait for a writer.
- The times of rows are read, not their statistics in the footer: Arrow aborts the process when it is asked for the
  statistics of a damaged footer.
"""

import os
import stat
from collections import deque
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import bccn
from bccnd.mux import limits
from bccnd.mux.portion import NoRecordError, Portion, recv, unrecorded
from bccnd.mux.span import LATEST_NS, SECOND_NS, Span
from bccnd.recorder.layout import SUFFIX, UNFINISHED, Direction, Mark, host_folder

DATE = "date="
# The columns that tell whether a row is wanted, and those with its content.
JUDGED = ["time_ns", "direction", "verdict", "channel", "size"]
SAID = ["time_ns", "direction", "peer", "src", "seq", "channel", "payload", "size"]
WORDS = ["direction", "verdict", "channel", "peer", "src"]
GOES = pa.array([Direction.IN, Direction.OUT, Direction.LOCAL], pa.string())
DELIVERED = pa.array(["ok", "repaired"], pa.string())

# A time of opening, and a name, before those of all files.
FIRST = -1, ""
# Rows of a row group, whose channels are read as a whole: sixteen times what the recorder writes.
GROUP_ROWS = 1 << 20
# Bytes of a time.
DIGITS = len(str(LATEST_NS))
# Channels for which the result of matching is cached.
CHANNELS = 65_536

NOTHING = "nothing was recorded"
REMOVED = "a file was removed before it was read"
# All that reading a damaged file can raise.
DAMAGE = (
    pa.ArrowException, OSError, ValueError, LookupError, ArithmeticError, TypeError, AttributeError, MemoryError,
)  # fmt: skip


class Record:
    """The record of ``host`` below ``folder``. ``next`` gives portions, at the end last ones for ever."""

    def __init__(self, folder: Path, host: str, span: Span) -> None:
        self._folder, self._host, self._span = folder, host, span
        self._reached = span.from_ns
        self._why = NOTHING  # is missing from there to the next file
        self._last = FIRST
        self._files: deque[tuple[int, Path]] = deque()
        self._is_written = False
        self._matches: dict[str, bool] = {}
        self._portions = self._read()

    def next(self) -> Portion:
        """Raises ``NoRecordError``."""
        portion = next(self._portions)
        portion.reached_ns = self._reached
        return portion

    def close(self) -> None:
        self._portions.close()

    def _read(self) -> Generator[Portion, None, None]:
        span = self._span
        while True:
            if not self._files:
                self._look()
            # A file may begin at the very time that ends the span.
            if not self._files or (self._reached, self._files[0][0]) > (span.until_ns, span.until_ns):
                yield Portion(is_last=True, is_written=self._is_written)
                continue
            opened, path = self._files.popleft()
            self._last = opened, path.name
            if opened > span.until_ns:
                yield self._skip_to(span.until_ns)
                continue
            yield from self._file(opened, path)

    def _skip_to(self, time_ns: int) -> Portion:
        """A portion that says that the time up to there is missing."""
        items = [unrecorded(self._reached, time_ns, self._why)] if time_ns > self._reached else []
        self._reached, self._why = max(self._reached, time_ns), NOTHING
        return Portion(items)

    # --- files ---

    def _look(self) -> None:
        """Find the files after the last one: those of the first day that has some."""
        is_first = self._last == FIRST
        start = _date(self._span.from_ns if is_first else self._last[0])
        self._is_written = False
        for folder in self._folders(is_first):
            if folder.parent.name < start:
                continue
            names = _names(folder)
            self._is_written |= any(name.endswith(UNFINISHED) for name in names)
            found = sorted(each for each in map(_opened, names) if each is not None and each > self._last)
            if is_first:  # a file ends before the next one is opened
                while len(found) > 1 and found[1][0] <= self._span.from_ns:
                    del found[0]
            if found:
                self._files.extend((opened, folder / name) for opened, name in found)
                break

    def _folders(self, is_first: bool) -> list[Path]:
        """The folders of the host, one a day."""
        try:
            days = sorted(name for name in os.listdir(self._folder) if name.startswith(DATE))  # noqa: PTH208 - names
        except OSError as error:
            raise NoRecordError(f"unavailable no record in {self._folder}: {error.strerror}") from None
        folders = [self._folder / day / host_folder(self._host) for day in days]
        if is_first and not any(folder.is_dir() for folder in folders):
            raise NoRecordError(f"unavailable there is no record of {self._host} in {self._folder}")
        return folders

    def _file(self, opened: int, path: Path) -> Iterator[Portion]:
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise OSError(f"{path} is no plain file")
            file = pq.ParquetFile(path, read_dictionary=WORDS, page_checksum_verification=True)
            _check(file)
        except FileNotFoundError:
            self._why = REMOVED
            return
        except DAMAGE:
            self._why = f"{path.name} cannot be read"
            return
        with file:
            yield self._skip_to(opened)
            try:
                for group in range(file.num_row_groups):
                    least, most = _times(file, group)
                    if least <= self._span.until_ns and most >= self._span.from_ns:
                        yield from self._group(file, group)
                    self._reached = max(self._reached, min(most, self._span.until_ns))
            except DAMAGE:
                self._why = f"{path.name} is damaged"

    # --- rows ---

    def _group(self, file: pq.ParquetFile, group: int) -> Iterator[Portion]:
        wanted = self._wanted(file.read_row_group(group, JUDGED, use_threads=False))
        if not pc.any(wanted).as_py():
            yield Portion()
            return
        about = file.metadata.row_group(group)
        fit = limits.PORTION_BYTES * about.num_rows // max(1, about.total_byte_size)
        rows = min(max(1, fit), limits.PORTION_ROWS)
        at = empty = 0
        for batch in file.iter_batches(rows, row_groups=[group], columns=SAID, use_threads=False):
            part = wanted.slice(at, len(batch))
            at += len(batch)
            if pc.any(part).as_py():
                yield Portion(_items(batch.filter(part)))
            elif (empty := empty + 1) % limits.EMPTY_PORTIONS == 0:
                yield Portion()

    def _wanted(self, rows: pa.Table) -> pa.BooleanArray:
        time, direction, verdict = (_array(rows, name) for name in JUDGED[:3])
        in_span = pc.and_(
            pc.greater_equal(time, pa.scalar(self._span.from_ns)),
            pc.less_equal(time, pa.scalar(self._span.until_ns)),
        )
        went = pc.and_(_is_in(direction, GOES), _is_in(verdict, DELIVERED))
        lost = pc.and_(
            _is_in(direction, pa.array([Direction.MARK], pa.string())),
            _is_in(verdict, pa.array([Mark.UNRECORDED], pa.string())),
        )
        channel = _array(rows, "channel")
        hits = pa.array([self._hits(word) for word in channel.dictionary.to_pylist()], pa.bool_())
        hit = pc.fill_null(hits.take(channel.indices), False)
        return pc.and_(in_span, pc.or_(pc.and_(went, hit), lost))

    def _hits(self, channel: str) -> bool:
        known = self._matches.get(channel)
        if known is None:
            if len(self._matches) >= CHANNELS:
                self._matches.clear()
            known = self._matches[channel] = bccn.matches(self._span.pattern, channel)
        return known


def _times(file: pq.ParquetFile, group: int) -> tuple[int, int]:
    """The first and the last time of a row group. Raises one of DAMAGE."""
    times = pc.min_max(file.read_row_group(group, ["time_ns"], use_threads=False).column("time_ns")).as_py()
    return int(times["min"]), int(times["max"])


def _array(rows: pa.Table, name: str) -> Any:
    column = rows.column(name).unify_dictionaries()
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _is_in(words: pa.DictionaryArray, wanted: pa.Array) -> pa.Array:
    return pc.fill_null(pc.is_in(words.dictionary, value_set=wanted).take(words.indices), False)


def _items(rows: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
    items, bare, bare_ns = [], 0, 0
    columns = [rows.column(name).to_pylist() for name in SAID]
    for time_ns, direction, peer, src, seq, channel, payload, size in zip(*columns, strict=True):
        if direction == Direction.MARK:
            items.append(unrecorded(time_ns, time_ns, f"the recorder lost {size} messages, of any channel"))
        elif payload is None:
            bare, bare_ns = bare + 1, bare_ns or time_ns
        else:
            items.append(recv(time_ns, peer, src, seq, channel, payload))
    if bare:
        items.append(unrecorded(bare_ns, time_ns, f"{bare} messages were recorded without their payloads"))
    return items


def _check(file: pq.ParquetFile) -> None:
    """Raises ``ValueError`` for a row group that no recorder writes."""
    if any(file.metadata.row_group(each).num_rows > GROUP_ROWS for each in range(file.num_row_groups)):
        raise ValueError(f"a row group of more than {GROUP_ROWS} rows")


def _date(time_ns: int) -> str:
    return f"{DATE}{datetime.fromtimestamp(time_ns // SECOND_NS, UTC):%Y-%m-%d}"


def _names(folder: Path) -> list[str]:
    """The names in a folder. Empty if there is no folder: a day may lack the host, or go with its last file."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return []


def _opened(name: str) -> tuple[int, str] | None:
    """When the file was opened, by its name, and the name; None if it is not complete, or not the recorder's."""
    opened = name.partition("-")[0]
    is_time = opened.isascii() and opened.isdigit() and len(opened) <= DIGITS and int(opened) <= LATEST_NS
    return (int(opened), name) if name.endswith(SUFFIX) and is_time else None
