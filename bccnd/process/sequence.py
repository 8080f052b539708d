"""Remembers across restarts how far sequence numbers have come, so that they rise even when the clock has gone back.

Rules
- The file holds one decimal number. No sequence number at or above it has been used. It is written RESERVE ahead of
  use, so that a crash leaves a gap and never repeats a number. An orderly stop writes the number that was really
  reached, so that restarts do not run ahead of the clock.
- The file is replaced as a whole and not synced. A power failure can lose only the last writes, and RESERVE covers
  that.
- Without a file, numbers begin at the clock. If the file cannot be read, or holds anything but a number, they do so
  with a warning.
- If the file cannot be written, the daemon reports it once and goes on, and each tick tries again.
- Without a path nothing is kept.
"""

import contextlib
import os
from pathlib import Path

import structlog

# Ten minutes, as numbers are microseconds of a clock: the file is written about that often.
RESERVE = 600 * 10**6

# A minute: far more numbers than all clients together can use between two ticks.
MARGIN = 60 * 10**6

# Bytes read; a number has 19.
LINE_LIMIT = 64

# No clock reaches this number, and from a higher one there would be too little room below 2**64.
LIMIT = 2**62

log = structlog.get_logger()


class SequenceFile:
    """The file at ``path``. ``first``: no number from it on has been used; 0 when the file gives none."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._bound = 0  # the number in the file
        self._failing = False
        self.first = self._read() if path else 0

    def cover(self, seq: int) -> None:
        """Call this before numbers up to ``seq``, and those soon after it, are used."""
        if seq + MARGIN > self._bound and not self._failing:
            self._write(seq + RESERVE)

    def tick(self, seq: int) -> None:
        """Call this about once a second; ``seq`` is the next number to be used."""
        if seq + MARGIN > self._bound:
            self._write(seq + RESERVE)

    def close(self, seq: int) -> None:
        """Call this at an orderly stop: write that no number from ``seq`` on has been used."""
        self._write(seq)

    def _read(self) -> int:
        try:
            with open(self._path or "", "rb", opener=_open) as stream:
                text = stream.read(LINE_LIMIT).strip()
            if not text.isdigit() or int(text) >= LIMIT:
                raise ValueError(f"holds {text[:32]!r}, which is not a sequence number")
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            log.warning(
                "sequence numbers of the last run unknown", file=str(self._path), error=_reason(error)
            )
            return 0
        return int(text)

    def _write(self, bound: int) -> None:
        if self._path is None or bound >= LIMIT:
            return
        new = Path(f"{self._path}.new")
        try:
            with open(new, "wb", opener=_open) as stream:
                stream.write(b"%d\n" % bound)
            new.replace(self._path)
        except OSError as error:
            if not self._failing:
                log.warning("sequence numbers not kept", file=str(self._path), error=_reason(error))
            self._failing = True
            with contextlib.suppress(OSError):
                new.unlink()
        else:
            self._failing = False
            self._bound = bound


def _open(path: str, flags: int) -> int:
    """An opener that follows no symbolic link, waits for no writer of a FIFO, and lets nobody else read."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
