"""Keeps across restarts how far sequence numbers have come, so that they go forward even when the clock does not.

Rules:

1. The file holds one number in decimal digits: nothing at or above it was ever used. It is written before numbers
   come near, RESERVE ahead of use, so that a crash leaves a gap and never a repetition. An orderly end writes how
   far they really came, so that restarts do not drift away from the clock.
2. It is replaced as a whole and not synced: what the system may still lose in a power failure is younger than
   RESERVE numbers of a clock of microseconds.
3. A file that is missing begins with nothing. One that cannot be read, or holds anything else, is worth a warning
   and then as good as missing: numbers begin at the clock, which is what they did before there was a file.
4. A file that cannot be written is worth one warning an episode and stops nobody; it is tried again each second.
5. Without a path nothing is kept.
"""

import contextlib
import os
from pathlib import Path

import structlog

RESERVE = 600 * 10**6  # ten minutes of a clock of microseconds: the file is written about as often
MARGIN = 60 * 10**6  # many times what all clients can use between two looks
LINE_LIMIT = 64  # bytes read; a number has 19
LIMIT = 2**62  # beyond it a number is no clock's and leaves too little room below 2**64

log = structlog.get_logger()


class SequenceFile:
    """``first``: nothing from here on was used before; 0 when that is not known."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._bound = 0  # what the file holds
        self._failing = False
        self.first = self._read() if path else 0

    def cover(self, seq: int) -> None:
        """Numbers up to ``seq``, and soon those after it, are about to be used."""
        if seq + MARGIN > self._bound and not self._failing:
            self._write(seq + RESERVE)

    def tick(self, seq: int) -> None:
        """To be called about once a second with the next number to be used."""
        if seq + MARGIN > self._bound:
            self._write(seq + RESERVE)

    def close(self, seq: int) -> None:
        """An orderly end: nothing from ``seq`` on was used."""
        self._write(seq)

    def _read(self) -> int:
        try:
            with open(self._path or "", "rb", opener=_open) as stream:
                text = stream.read(LINE_LIMIT).strip()
            if not text.isdigit() or int(text) >= LIMIT:
                raise ValueError(f"holds {text[:32]!r}, which is no sequence number of ours")
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            log.warning("numbers of the last run not known", file=str(self._path), error=_reason(error))
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
    """Neither through a link that somebody left there nor waiting for the writer of a FIFO; for us alone to read."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
