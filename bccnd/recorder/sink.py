"""A file that is written as far as the disk takes it.

Rules
- What the disk does not take waits in memory, in order, and is tried again: a full disk leaves the file that is being
  written intact. ``backlog`` is how much waits; the owner bounds it.
- A file gets its name when it is synced, and the folder is synced then, too: from then on it survives any kill.
"""

import contextlib
import os
from collections import deque
from pathlib import Path

# Seconds between two attempts to write to a disk that takes nothing.
RETRY_SECONDS = 1.0


class Sink:
    """A file for pyarrow, written as far as the disk takes it; the rest waits in memory, in order.

    pyarrow needs ``write``, ``tell``, ``flush``, ``close`` and ``closed``. The folder of ``path`` is made if
    ``make_folder`` says so.
    """

    def __init__(self, path: Path, *, make_folder: bool = True) -> None:
        self.path = path
        self._make_folder = make_folder
        self.closed = False
        # Why the last attempt to write failed; None when the disk took everything.
        self.error: OSError | None = None
        self.errors = 0
        self.backlog = 0
        self._waiting: deque[bytes] = deque()
        self._written = 0
        self._descriptor = -1
        self._retry_at = 0.0
        self._discarded = False

    def write(self, data: bytes) -> int:
        if self._discarded:
            return len(data)
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
        """Remove the file. What pyarrow still writes when it notices is of no meaning."""
        self._discarded = True
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
            if self._make_folder:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o640)
