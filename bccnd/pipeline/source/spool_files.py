"""Spool files: what came from the bus, in numbered files that never change, until a query has it for good.

    <spool>/<number, 17 digits>-<messages>.parquet    a recorded file (``bccnd.recorder.layout``)
    <spool>/.<...>                                    not whole yet, of no meaning

Rules
- The recorder writes them (``bccnd.recorder.files``): a file is there whole or not at all, and once it is there, it
  survives any kill. It never changes, and a query that repeats a batch reads it again.
- No number is used twice: the next is one above the newest, so the newest is never removed. In an empty directory
  the first is the time in microseconds, which is above whatever was there before.
- Files are removed by the query that has them (``remove_through``), and by the spooler, oldest first, to keep
  within its bounds. A file that nobody has read goes only when a later one, which counts its messages as
  ``unrecorded``, is there.
"""

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bccnd.errors import ConfigError
from bccnd.recorder.layout import SUFFIX, UNFINISHED, Mark

_NAME = re.compile(r"([0-9]{17})-([0-9]+)\.parquet")


class SpoolFile(NamedTuple):
    number: int
    messages: int
    path: str
    size: int  # bytes of the file


def listed(spool: str) -> list[SpoolFile]:
    """All whole files, oldest first. Raises ``FileNotFoundError`` without a directory."""
    found = []
    with os.scandir(spool) as entries:
        for entry in entries:
            if name := _NAME.fullmatch(entry.name):
                try:
                    size = entry.stat().st_size
                except FileNotFoundError:
                    continue  # removed meanwhile
                found.append(SpoolFile(int(name[1]), int(name[2]), entry.path, size))
    return sorted(found)


def next_number(spool: str) -> int:
    """The next free number, for the one process that holds the spool's lock."""
    files = listed(spool)
    return files[-1].number + 1 if files else time.time_ns() // 1000


def messages_of(path: str) -> int:
    """How many messages the file holds, by its name; 0 for another name."""
    name = _NAME.fullmatch(Path(path).name)
    return int(name[2]) if name else 0


def remove_through(spool: str, number: int) -> None:
    """Remove all files up to this number, except the newest."""
    for each in listed(spool)[:-1]:
        if each.number > number:
            return
        Path(each.path).unlink(missing_ok=True)


class Spool:
    """A ``Place`` (``bccnd.recorder.files``) for at most ``limit`` bytes of files. The caller holds the lock."""

    makes_folders = False

    def __init__(self, folder: str, host: str, limit: int) -> None:
        self.host = host
        self._folder = Path(folder)
        self._limit = limit
        self._number = next_number(folder)
        # Files that are complete and wait for the disk: their size, and the older ones that go when they are whole.
        self._coming: dict[Path, tuple[int, list[SpoolFile]]] = {}
        for path in self._folder.glob(f".*{UNFINISHED}"):
            path.unlink(missing_ok=True)

    def __str__(self) -> str:
        return str(self._folder)

    @property
    def kept(self) -> int:
        """Bytes of whole files."""
        return sum(each.size for each in listed(str(self._folder)))

    def begin(self, _opened_ns: int) -> Path:
        path = self._folder / f".{self._number:017}{SUFFIX}{UNFINISHED}"
        self._number += 1
        return path

    def displaced(self, writing: Path, size: int) -> int:
        """Messages of the oldest files, as many as must go for one more to stay within the limit; never the newest.

        ``size`` is without the footer, which is some kB. Raises ``ConfigError`` without a directory.
        """
        going = {each.path for _, files in self._coming.values() for each in files}
        try:
            there = [each for each in listed(str(self._folder)) if each.path not in going]
        except FileNotFoundError:
            raise ConfigError(f"{self._folder}: the directory is gone") from None
        total = sum(each.size for each in there) + size + sum(waiting for waiting, _ in self._coming.values())
        excess = []
        for each in there[:-1]:
            if total <= self._limit:
                break
            total -= each.size
            excess.append(each)
        self._coming[writing] = size, excess
        return sum(each.messages + _unrecorded(each.path) for each in excess)

    def final(self, writing: Path, messages: int) -> Path:
        number = writing.name.removeprefix(".").partition(".")[0]
        return self._folder / f"{number}-{messages}{SUFFIX}"

    def finished(self, writing: Path, _path: Path, _size: int) -> None:
        for each in self._coming.pop(writing)[1]:
            Path(each.path).unlink(missing_ok=True)

    def given_up(self, writing: Path) -> None:
        self._coming.pop(writing, None)

    def remove_oldest(self, _writing: Path | None, _size: int) -> int:
        """Nothing: ``finished`` does it."""
        return 0

    def close(self) -> None:
        """Nothing: the lock is the process's."""


def _unrecorded(path: str) -> int:
    """How many messages the file says are missing; 0 if it is damaged, or was removed meanwhile."""
    try:
        rows = pq.ParquetFile(path).read(columns=["direction", "verdict", "size"], use_threads=False)
    except (OSError, pa.ArrowException):
        return 0
    marks = rows.filter((pc.field("direction") == "") & (pc.field("verdict") == Mark.UNRECORDED))
    return sum(marks.column("size").to_pylist())
