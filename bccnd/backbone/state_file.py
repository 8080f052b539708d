"""Keeps the bound of the sequence numbers on the disk, so that no restart repeats one.

Rules
- The file holds one decimal number and the end of its line. No sequence number at or above it has been used.
- It is written whole and synced, with its folder, before any number below it is used: so it survives a power failure.
- A file that holds anything else is a fault that ends the program: a guess could repeat numbers.
- ``<file>.lock`` is locked while a backbone uses the file, so two can never give the same numbers.
- Without a path nothing is kept.
"""

import fcntl
import os
import re
from errno import EACCES, ENOENT, ENOSPC, EROFS
from pathlib import Path

from bccnd.errors import BccndError, ConfigError, RefusedError, UnavailableError
from bccnd.wire.fyrehose import SEQ_LIMIT

# 2^48 has 15 digits.
_CONTENT = re.compile(rb"([0-9]{1,15})\n")

# What to do about a file that cannot be opened or written, as the end of a line that says so.
_REMEDIES = {
    EACCES: "; the backbone's user must own it and its folder",
    ENOENT: "; make its folder first",
    EROFS: "; the state needs a disk that can be written",
    ENOSPC: "; make room on its disk",
}


class StateFile:
    """The file at ``path``, or none; ``lock``: the descriptor of a predecessor's lock."""

    def __init__(self, path: Path | None, lock: int = -1) -> None:
        self._path = path
        self.lock = lock
        if path is not None and lock < 0:
            self.lock = _locked(path)

    def read(self) -> int:
        """Returns the lowest number that has not been used; 1 if there is no file yet.

        Raises ``ConfigError`` for a damaged file, and if all numbers are used.
        """
        if self._path is None:
            return 1
        try:
            with open(self._path, "rb", opener=_open) as stream:
                content = stream.read(64)
        except FileNotFoundError:
            return 1
        except OSError as error:
            raise _failed(self._path, error) from None
        found = _CONTENT.fullmatch(content)
        if not found or not int(found[1]):
            raise ConfigError(
                f"{self._path}: is damaged, it holds {content[:24]!r}; write a number into it that is above every "
                "sequence number that was used, and the end of the line"
            )
        if int(found[1]) >= SEQ_LIMIT:
            raise ConfigError(
                f"{self._path}: all sequence numbers are used up; remove it, and start every client anew"
            )
        return int(found[1])

    def write(self, bound: int) -> None:
        """Store that no number from ``bound`` on has been used. Raises ``BccndError`` if that is not possible."""
        if self._path is None:
            return
        new = Path(f"{self._path}.new")
        try:
            with open(new, "wb", opener=_open) as stream:
                stream.write(b"%d\n" % bound)
                stream.flush()
                os.fsync(stream.fileno())
            new.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise _failed(self._path, error) from None

    def close(self) -> None:
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def _locked(path: Path) -> int:
    name = f"{path}.lock"
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _failed(Path(name), error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise UnavailableError(f"{path}: another backbone uses it") from None
    return descriptor


def _failed(path: Path, error: OSError) -> BccndError:
    kind = RefusedError if isinstance(error, PermissionError) else ConfigError
    return kind(f"{path}: {error.strerror}{_REMEDIES.get(error.errno or 0, '')}")


def _open(path: str, flags: int) -> int:
    """An opener that follows no symbolic link, waits for no writer of a FIFO, and lets nobody else read."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
