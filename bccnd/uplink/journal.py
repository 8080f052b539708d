"""The state that an uplink keeps over a restart: what waits to be published, what came lately, and how far it was.

    outbox    link number -> channel, messages: until it is published
    archive   position -> link datagram: what came lately, for carriers whose clients repair each other
    state     instance, next link number, position, the next number of each link that is heard, and siblings

One SQLite file in WAL mode, or none: then all is in memory. Writes are gathered, and ``commit`` writes them at once.

Rules
- Look-ups find gathered writes as if they were written.
- A commit does not wait for the disk: it writes into the page cache. After CHECKPOINT_BYTES a thread syncs to the
  disk; meanwhile writes are gathered.
- A link number is never used twice. After a kill the numbers used since the last commit are unknown, so numbers go on
  RESTART_JUMP higher: a jump that receivers do not count as loss. The disk records from the start that the journal is
  in use, so that a power cut has the same effect.
- A disk that takes nothing stops nothing: ``fault`` says so, and gathered writes stay in memory, bounded, until the
  disk takes them. A damaged file is set aside as ``<file>.damaged``, and a new one starts with what is known.
- ``<file>.lock`` is locked while an uplink uses the file.
- Time bounds are counted from the start of the program: a clock that jumps makes nothing old.
"""

import json
import os
import secrets
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from bccnd.errors import BccndError, ConfigError
from bccnd.uplink.journal_file import APPLICATION, check_is_ours, locked, opened, remedy, sync
from bccnd.wire.link import INSTANCE_DIGITS

FORMAT = 1
# Numbers to skip: more than are used between two commits, or while a disk is full for months.
RESTART_JUMP = 1 << 40
# Bytes that a row takes in addition to its content, on the disk and in memory.
ROW_BYTES = 128
# Bytes of a commit in addition to its rows: a few pages of the tables.
COMMIT_BYTES = 16 << 10
# SQLite's own default: the log does not grow much beyond it.
CHECKPOINT_BYTES = 4 << 20
# Seconds after which a disk that failed is tried again.
RETRY_SECONDS = 1.0
# Seconds for which a look-up may wait for the thread; a commit does not wait, since it comes after the thread.
BUSY_SECONDS = 0.2
# Rows that one look-up returns at most: more than anybody asks for at once.
KEPT_LIMIT = 1024
# Parts in which the archive is dropped, and parts that one commit drops.
ARCHIVE_STEPS = 256
STEPS_AT_ONCE = 8
# SQLite has no larger integers.
_INTEGER_LIMIT = 1 << 63
# No link has as many restarts.
_NEXT_LIMIT = 1 << 62

_SCHEMA = """
CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY, channel BLOB NOT NULL, messages BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS archive (position INTEGER PRIMARY KEY, datagram BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS state (one INTEGER PRIMARY KEY CHECK (one = 1), content TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """``memory_bytes``: bytes of outbox, and of archive, that may be gathered while the disk fails."""

    outbox_bytes: int = 256 << 20
    outbox_seconds: float = 86_400.0
    archive_bytes: int = 256 << 20
    archive_seconds: float = 3_600.0
    memory_bytes: int = 32 << 20


class Row(NamedTuple):
    """One row of the outbox."""

    number: int
    channel: bytes
    messages: bytes

    @property
    def bytes(self) -> int:
        return ROW_BYTES + len(self.channel) + len(self.messages)


class _Mark(NamedTuple):
    """A part of the archive that was written in one step."""

    at: float
    highest: int
    bytes: int


class Journal:
    """``path``: the file, or None. Call ``open`` first. ``limits`` may be replaced at any time."""

    def __init__(
        self, path: Path | None, limits: Limits | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits or Limits()
        # Why nothing is written now, or empty; and what became of a damaged file.
        self.fault = ""
        self.replaced = ""
        # The state. ``next`` and ``floor`` are for the outbound side to keep.
        self.instance = secrets.token_hex(INSTANCE_DIGITS // 2).encode()
        self.next = 1
        self.floor = 1
        self.position = 0
        # For a carrier with a stream: when that was made, and the position of its number 0.
        self.stream = "", 0
        self.links: dict[bytes, int] = {}
        self.siblings: tuple[bytes, ...] = ()  # links of this segment's other uplinks
        self._path = path
        self._now = now
        self._lock = -1
        self._database: sqlite3.Connection | None = None
        self._syncing: Thread | None = None
        self._unsynced_bytes = 0
        self._retry_at = self._read_at = 0.0  # when to write again after a failure, and to read
        self._written = ""  # the state as it is on the disk
        # What is gathered.
        self._outbox: dict[int, Row] = {}
        self._outbox_bytes = 0
        self._archive: dict[int, bytes] = {}
        self._archive_bytes = 0
        # What of the archive is on the disk.
        self._marks: deque[_Mark] = deque()
        self._written_bytes = 0
        self._highest = -1

    # -- open and close

    def open(self) -> None:
        """Raises ``ConfigError``, ``RefusedError`` or ``UnavailableError`` if the file cannot be used at all."""
        if self._path is None:
            self._connect()
            return
        self._lock = locked(self._path)
        try:
            check_is_ours(self._path)
            self._connect()
        except sqlite3.OperationalError as error:
            self.close()
            raise ConfigError(f"{self._path}: {error}{remedy(self._path, error)}") from None
        except BccndError:
            self.close()
            raise
        except (sqlite3.DatabaseError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._replace(str(error) or type(error).__name__)

    def close(self) -> None:
        """Write everything that is gathered, so that the next start goes on exactly here."""
        if self._database is not None:
            self._wait_for_sync()
            self._write(clean=True)
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _connect(self) -> None:
        database = sqlite3.connect(self._path or ":memory:", timeout=BUSY_SECONDS)
        try:
            self._check_format(database)
            database.execute("PRAGMA journal_mode=WAL").fetchone()
            database.execute("PRAGMA synchronous=NORMAL")
            database.execute("PRAGMA wal_autocheckpoint=0")
            marks = f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={FORMAT};"
            database.executescript(_SCHEMA + marks)
            self._read(database)
        except BaseException:
            database.close()
            raise
        self._database = database
        self._write(clean=False)
        if self.fault:  # a number could be used twice: after a kill nobody would know that there was one
            raise ConfigError(self.fault)
        # A power cut may restore what the disk had before, which must not be the state of an orderly end.
        database.execute("PRAGMA wal_checkpoint(FULL)").fetchone()

    def _check_format(self, database: sqlite3.Connection) -> None:
        application, version, tables = (
            database.execute(query).fetchone()[0]
            for query in (
                "PRAGMA application_id",
                "PRAGMA user_version",
                "SELECT COUNT(*) FROM sqlite_master",
            )
        )
        if application != APPLICATION and (application or version or tables):
            raise ConfigError(f"{self._path}: is the database of another program")
        if version not in (0, FORMAT):
            raise ConfigError(f"{self._path}: was made by another version of the uplink")

    def _read(self, database: sqlite3.Connection) -> None:
        found = database.execute("SELECT content FROM state").fetchone()
        last = database.execute("SELECT COALESCE(MAX(number), 0) FROM outbox").fetchone()[0]
        size, highest = database.execute(
            "SELECT COALESCE(SUM(LENGTH(datagram) + ?), 0), COALESCE(MAX(position), -1) FROM archive",
            (ROW_BYTES,),
        ).fetchone()
        if found:
            self._restore(json.loads(found[0]))
        self.next = max(self.next, last + 1)
        self._written_bytes, self._highest = size, highest
        self._marks = deque([_Mark(self._now(), highest, size)] if size else [])

    def _restore(self, state: Mapping[str, Any]) -> None:
        following, floor, position = int(state["next"]), int(state["floor"]), int(state["position"])
        if not 0 < floor <= following < _NEXT_LIMIT or position < 0:
            raise ValueError(f"next {following}, floor {floor}, position {position}")
        links = {src.encode(): int(number) for src, number in state["links"].items()}
        made, base = state.get("stream", ("", 0))  # an older uplink wrote none
        self.stream = str(made), int(base)
        self.siblings = tuple(src.encode() for src in state["siblings"])
        self.instance = bytes.fromhex(state["instance"]).hex().encode()
        self.next = following if state["clean"] else following + RESTART_JUMP
        self.floor, self.position, self.links = floor, position, links

    # -- the outbox

    def add(self, row: Row) -> list[Row]:
        """Keep a row until the floor passes it. Returns the rows forgotten for it, if the disk takes nothing."""
        self._outbox[row.number] = row
        self._outbox_bytes += row.bytes
        forgotten = []
        while self._outbox_bytes > self.limits.memory_bytes and len(self._outbox) > 1:
            if not self._write_now() and self._outbox:  # it may have been written, and the archive not
                oldest = self._outbox.pop(next(iter(self._outbox)))
                self._outbox_bytes -= oldest.bytes
                forgotten.append(oldest)
        return forgotten

    def published(self, number: int) -> None:
        """A row was published: if it is not written yet, it need not be."""
        row = self._outbox.pop(number, None)
        if row is not None:
            self._outbox_bytes -= row.bytes

    def waiting(self, number: int, limit: int) -> list[Row] | None:
        """The first rows of the outbox from ``number`` on, at most ``limit``. None while the disk fails, which may
        hold them.
        """
        found = self._found(
            "SELECT number, channel, messages FROM outbox WHERE number >= ? ORDER BY number LIMIT ?",
            (min(number, _INTEGER_LIMIT - 1), limit),
        )
        if found is None:
            return None
        rows = [Row(*each) for each in found]
        for row in self._outbox.values():
            if len(rows) >= limit:
                break
            if row.number >= number and (not rows or row.number > rows[-1].number):
                rows.append(row)
        return rows

    def outbox_size(self) -> tuple[int, int]:
        """The number of rows at the start, and their bytes."""
        size = "SELECT COUNT(*), COALESCE(SUM(LENGTH(channel) + LENGTH(messages) + ?), 0) FROM outbox"
        ((count, total),) = self._found(size, (ROW_BYTES,)) or [(0, 0)]
        return count, total

    # -- the archive

    def keep(self, position: int, datagram: bytes) -> None:
        if position >= _INTEGER_LIMIT or position in self._archive:
            return
        self._archive[position] = datagram
        self._archive_bytes += ROW_BYTES + len(datagram)
        while self._archive_bytes > min(self.limits.memory_bytes, self.limits.archive_bytes):
            if not self._write_now():
                self._archive_bytes -= ROW_BYTES + len(self._archive.pop(next(iter(self._archive))))

    def kept(self, first: int, last: int) -> list[tuple[int, bytes]]:
        """The first datagrams between two positions, KEPT_LIMIT at most."""
        found = (
            self._found(
                "SELECT position, datagram FROM archive WHERE position BETWEEN ? AND ? ORDER BY position LIMIT ?",
                (min(first, _INTEGER_LIMIT - 1), min(last, _INTEGER_LIMIT - 1), KEPT_LIMIT),
            )
            or []
        )
        gathered = self._archive
        among: Iterable[int] = range(first, last + 1) if last - first < len(gathered) else gathered
        found += [(each, gathered[each]) for each in among if first <= each <= last and each in gathered]
        return sorted(dict(found).items())[:KEPT_LIMIT]

    # -- the state

    def note(self, position: int, links: Mapping[bytes, int]) -> None:
        """Everything below ``position``, and below the numbers of the links, has reached the segment."""
        self.position, self.links = position, dict(links)

    # -- writing

    def commit(self) -> None:
        """Write what is gathered, unless the disk is busy or has just failed."""
        syncing = self._syncing is not None and self._syncing.is_alive()
        if not syncing and not (self.fault and self._now() < self._retry_at):
            self._write_now()

    def _write_now(self) -> bool:
        """Write what is gathered. Whether that was possible."""
        if self.fault and self._now() < self._retry_at:
            return False
        if self._database is None:
            if self._lock < 0:
                return False  # closed
            self._replace("before")
        self._wait_for_sync()
        self._write(clean=False)
        return not self.fault

    def _write(self, *, clean: bool) -> None:
        database = self._database
        if database is None:
            return
        try:
            self._write_rows(database, self._archive, clean=clean)
        except sqlite3.OperationalError as error:
            with suppress(sqlite3.Error):  # what this uplink needs itself takes less room
                self._write_rows(database, {}, clean=clean)
            self._failed(error)
        except sqlite3.DatabaseError as error:
            if self._database is database:
                self._failed(error)
        else:
            self.fault = ""

    def _write_rows(self, database: sqlite3.Connection, archive: dict[int, bytes], *, clean: bool) -> None:
        content = self._content(clean=clean)
        steps = self._steps_to_drop()
        new = [each for each in archive.items() if each[0] > self._highest or not self._is_written(each[0])]
        with database:
            if self._outbox:
                database.executemany("INSERT OR REPLACE INTO outbox VALUES (?, ?, ?)", self._outbox.values())
            if steps:
                highest = max(mark.highest for mark in steps)
                database.execute("DELETE FROM archive WHERE position <= ?", (highest,))
            if new:
                database.executemany("INSERT OR IGNORE INTO archive VALUES (?, ?)", new)
            if content != self._written:
                database.execute(
                    "DELETE FROM outbox WHERE number < ?", (min(self.floor, _INTEGER_LIMIT - 1),)
                )
                database.execute("INSERT OR REPLACE INTO state VALUES (1, ?)", (content,))
        self._written = content
        for mark in steps:
            self._marks.popleft()
            self._written_bytes -= mark.bytes
        size = sum(ROW_BYTES + len(datagram) for _, datagram in new)
        if new:
            self._mark(max(new)[0], size)
        if archive:
            archive.clear()
            self._archive_bytes = 0
        size += COMMIT_BYTES + self._outbox_bytes
        self._outbox.clear()
        self._outbox_bytes = 0
        self._sync_soon(size)

    def _content(self, *, clean: bool) -> str:
        return json.dumps(
            {
                "instance": self.instance.decode(),
                "next": self.next,
                "floor": self.floor,
                "position": self.position,
                "stream": self.stream,
                "links": {src.decode(): number for src, number in self.links.items()},
                "siblings": [src.decode() for src in self.siblings],
                "clean": clean,
            }
        )

    def _is_written(self, position: int) -> bool:
        return bool(self._found("SELECT 1 FROM archive WHERE position = ?", (position,)))

    def _mark(self, highest: int, size: int) -> None:
        self._written_bytes += size
        self._highest = max(self._highest, highest)
        now, limits = self._now(), self.limits
        last = self._marks[-1] if self._marks else None
        if (
            last is not None
            and last.bytes < limits.archive_bytes // ARCHIVE_STEPS
            and now - last.at < limits.archive_seconds / ARCHIVE_STEPS
        ):
            self._marks[-1] = _Mark(last.at, max(last.highest, highest), last.bytes + size)
        else:
            self._marks.append(_Mark(now, highest, size))

    def _steps_to_drop(self) -> list[_Mark]:
        """The oldest parts of the archive that exceed its bounds."""
        steps: list[_Mark] = []
        size = self._written_bytes + self._archive_bytes
        since = self._now() - self.limits.archive_seconds
        for mark in self._marks:
            if (size <= self.limits.archive_bytes and mark.at >= since) or len(steps) == STEPS_AT_ONCE:
                break
            steps.append(mark)
            size -= mark.bytes
        return steps

    # -- the disk

    def _sync_soon(self, size: int) -> None:
        self._unsynced_bytes += size
        if self._path is not None and self._unsynced_bytes >= CHECKPOINT_BYTES:
            self._unsynced_bytes = 0
            self._syncing = Thread(target=sync, args=(self._path,), name="journal")
            self._syncing.start()

    def _wait_for_sync(self) -> None:
        if self._syncing is not None:
            self._syncing.join()
            self._syncing = None

    def _found(self, query: str, arguments: tuple[int, ...]) -> list[Any] | None:
        """The rows of a look-up; None if the disk fails, and for RETRY_SECONDS after that."""
        if self._database is None:
            return []
        if self._now() < self._read_at:
            return None
        try:
            return self._database.execute(query, arguments).fetchall()
        except sqlite3.Error as error:
            self._read_at = self._now() + RETRY_SECONDS
            self._failed(error)
            return None

    def _failed(self, error: sqlite3.Error) -> None:
        self._retry_at = self._now() + RETRY_SECONDS
        if isinstance(error, sqlite3.OperationalError) or self._path is None:
            self.fault = f"{self._path or 'memory'}: {error}{remedy(self._path, error)}"
            self._wait_for_sync()
            self._sync_soon(CHECKPOINT_BYTES)  # emptying the log may free enough room
        else:
            self._replace(str(error))

    def _replace(self, why: str) -> None:
        """Set a damaged file aside and begin a new one, with what is known."""
        assert self._path is not None  # noqa: S101
        self._wait_for_sync()
        if self._database is not None:
            self._database.close()
            self._database = None
        aside = Path(f"{self._path}.damaged")
        self._written, self._written_bytes, self._highest = "", 0, -1
        self._marks.clear()
        try:
            if self._path.exists():
                self._path.replace(aside)
            for end in ("-wal", "-shm"):
                Path(f"{self._path}{end}").unlink(missing_ok=True)
            os.close(opened(self._path))
            self._connect()
        except (OSError, BccndError, sqlite3.Error) as error:
            self.fault = f"{self._path}: is damaged ({why}), and cannot be replaced: {error}"
            self._retry_at = self._now() + RETRY_SECONDS
            return
        self._read_at = 0.0
        self.replaced = f"{self._path}: was damaged ({why}) and is begun anew; what it held is in {aside}"
