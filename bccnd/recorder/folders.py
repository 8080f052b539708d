"""The files of one host below a directory: their folders and names, who may write there, and how many are kept.

Rules
- A lock file keeps other writers of the host out of the directory.
- The files of the host, the unfinished one included, have at most ``keep_bytes``, and none is more than ``keep_days``
  older than the newest. The oldest go first. Files of other hosts in the directory stay as they are.
- The next start removes what a killed writer left behind.
"""

import contextlib
import fcntl
import os
import secrets
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import structlog

from bccnd.errors import ConfigError, RefusedError, UnavailableError
from bccnd.recorder.files import Counts, Limits, Recording
from bccnd.recorder.layout import DAY_NS, SUFFIX, UNFINISHED, day_of, folder_of, host_folder, name_of

log = structlog.get_logger()


def recorded(output: Path, host: str, limits: Limits, counts: Counts | None = None) -> Recording:
    """The recording of a host below ``output``. Raises as ``HostFolders`` does."""
    return Recording(HostFolders(output, host, limits), limits, counts)


class HostFolders:
    """A ``Place`` for the files of ``host`` below ``output``.

    Raises ``UnavailableError`` when another process records the host there, ``ConfigError`` or ``RefusedError`` when
    the directory cannot be used.
    """

    makes_folders = True

    def __init__(self, output: Path, host: str, limits: Limits) -> None:
        self.host = host
        self._output = output
        self._limits = limits
        self._lock = _lock(output, host)
        self._finished = deque(sorted(_finished(output, host)))
        self.kept = sum(size for _, _, size in self._finished)
        for path in _leftovers(output, host):
            path.unlink(missing_ok=True)
            log.warning("removed an unfinished file", file=str(path))

    def __str__(self) -> str:
        return str(self._output)

    def begin(self, opened_ns: int) -> Path:
        folder = self._output / folder_of(self.host, day_of(opened_ns))
        return folder / f".{name_of(opened_ns, secrets.token_hex(4))}{UNFINISHED}"

    def displaced(self, _writing: Path, _size: int) -> int:
        return 0

    def final(self, writing: Path, _messages: int) -> Path:
        return writing.with_name(writing.name[1 : -len(UNFINISHED)])

    def finished(self, _writing: Path, path: Path, size: int) -> None:
        self._finished.append((_opened(path), path, size))
        self.kept += size

    def given_up(self, _writing: Path) -> None:
        """Nothing depends on it."""

    def remove_oldest(self, writing: Path | None, size: int) -> int:
        newest = self.final(writing, 0) if writing else self._finished[-1][1] if self._finished else None
        if newest is None:
            return 0
        oldest_ns = _opened(newest) - self._limits.keep_days * DAY_NS
        removed = 0
        while self._finished and (
            self.kept + size > self._limits.keep_bytes or self._finished[0][0] < oldest_ns
        ):
            _, path, freed = self._finished.popleft()
            self.kept -= freed
            removed += 1
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                # Fails, as it should, unless this was the last file of its host and day.
                path.parent.rmdir()
                path.parent.parent.rmdir()
        return removed

    def close(self) -> None:
        os.close(self._lock)


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
