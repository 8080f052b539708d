"""A serial device that is the other end of a pseudo-terminal; it can be unplugged, and plugged in again."""

import os
import pty
import select
import tempfile
import tty
from contextlib import suppress
from pathlib import Path
from typing import Self


class PseudoSerial:
    """``device``: a path that stays the same; what it is a link to comes and goes."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.device = str(Path(self._folder.name, "ttyTEST"))
        self.end = self._kept = -1
        self._seconds = 0.0
        self.plug()

    def plug(self) -> None:
        self.end, device = pty.openpty()
        tty.setraw(device)
        os.set_blocking(self.end, False)
        os.symlink(os.ttyname(device), self.device)
        self._kept = device  # without anybody who has it, the other end reads an error

    def unplug(self) -> None:
        os.unlink(self.device)
        os.close(self._kept)
        os.close(self.end)
        self.end = -1

    def write(self, data: bytes) -> None:
        os.write(self.end, data)

    def read(self) -> bytes:
        """What came, if anything did."""
        with suppress(BlockingIOError, OSError):
            return os.read(self.end, 65536)
        return b""

    # -- as the stream of a ``Robot``

    def settimeout(self, seconds: float) -> None:
        self._seconds = seconds

    def sendall(self, data: bytes) -> None:
        os.set_blocking(self.end, True)
        while data:
            data = data[os.write(self.end, data) :]
        os.set_blocking(self.end, False)

    def recv(self, most: int) -> bytes:
        readable, _, _ = select.select([self.end], [], [], self._seconds)
        assert readable, "nothing comes by the line"
        return os.read(self.end, most)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.end >= 0:
            self.unplug()
        self._folder.cleanup()
