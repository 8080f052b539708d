"""The file of a journal: its owner, its lock, and how it is synced.

Rules
- Only its owner can read it, and symbolic links are not followed.
- ``<file>.lock`` is locked while an uplink uses it.
- A file that is no journal is left alone, whatever the settings say.
"""

import fcntl
import os
import sqlite3
from contextlib import closing, suppress
from errno import EACCES, EDQUOT, ELOOP, ENOENT, ENOSPC, EROFS
from pathlib import Path

from bccnd.errors import ConfigError, RefusedError, UnavailableError

# The mark of a journal, where SQLite has room for one.
APPLICATION = int.from_bytes(b"BCCN", "big")
_APPLICATION_AT = 68
_MAGIC = b"SQLite format 3\0"

# What to do about a file that cannot be opened or written: the end of the error line.
_OWN, _WRITABLE, _ROOM = (
    "; the uplink's user must own it and its folder",
    "; the journal needs a disk that can be written",
    "; make room on its disk",
)
_REMEDIES = {
    EACCES: _OWN,
    ENOENT: "; make its folder first",
    EROFS: _WRITABLE,
    ENOSPC: _ROOM,
    EDQUOT: _ROOM,
    ELOOP: "; it must not be a symbolic link",
}
_SQLITE_REMEDIES = {
    sqlite3.SQLITE_FULL: _ROOM,
    sqlite3.SQLITE_IOERR: "; the journal needs a local disk that works: the kernel's log may say more",
    sqlite3.SQLITE_READONLY: _WRITABLE,
    sqlite3.SQLITE_CANTOPEN: _OWN,
    sqlite3.SQLITE_BUSY: "; end the program that reads it",
}
# Bytes below which a disk counts as full: SQLite then reports an I/O error of its index in memory.
_LEAST_ROOM = 1 << 20

# Seconds to wait for a look-up of the uplink.
BUSY_SECONDS = 5.0


def remedy(path: Path | None, error: sqlite3.Error) -> str:
    """What to do about an error of SQLite; empty if that is unknown."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the kind of an extended one
    if code == sqlite3.SQLITE_IOERR and path is not None:
        with suppress(OSError):
            disk = os.statvfs(path.parent)
            code = sqlite3.SQLITE_FULL if disk.f_bavail * disk.f_frsize < _LEAST_ROOM else code
    return _SQLITE_REMEDIES.get(code, "")


def opened(path: Path) -> int:
    """A descriptor of the file, which is made if missing. Raises ``RefusedError`` or ``ConfigError``."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        kind = RefusedError if isinstance(error, PermissionError) else ConfigError
        raise kind(f"{path}: {error.strerror}{_REMEDIES.get(error.errno or 0, '')}") from None


def locked(path: Path) -> int:
    """The descriptor that holds the lock. Raises ``UnavailableError`` while another uplink has it."""
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; name a file in it")
    descriptor = opened(Path(f"{path}.lock"))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise UnavailableError(f"{path}: another uplink uses it; each has a journal of its own") from None
    return descriptor


def check_is_ours(path: Path) -> None:
    """Make the file if it is missing. Raises ``ConfigError`` for one that never was a database."""
    with closing(os.fdopen(opened(path), "rb")) as stream:
        head = stream.read(_APPLICATION_AT + 4)
    if head and not head.startswith(_MAGIC) and head[_APPLICATION_AT:] != APPLICATION.to_bytes(4, "big"):
        raise ConfigError(f"{path}: is no journal of an uplink; name another file, or remove it")


def sync(path: Path) -> None:
    """Write the log to the disk. A failure here shows again at the next commit, which reports it."""
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as database:
            database.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    except sqlite3.Error:
        return
