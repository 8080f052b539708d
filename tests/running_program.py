"""A program that a test talks with while it runs: lines in, output with a deadline."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Sequence

from tests.daemon_process import mortal
from tests.packet_client import PATIENCE


class RunningProgram:
    """What is typed goes in through a pseudo-terminal, as from a keyboard; what is shown comes by a pipe."""

    def __init__(self, command: Sequence[str]) -> None:
        self._keys, terminal = pty.openpty()
        self.process = subprocess.Popen(
            mortal(command),
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.close(terminal)
        assert self.process.stdout is not None
        self._output = self.process.stdout.fileno()
        self._shown = ""

    def type(self, line: str) -> None:
        os.write(self._keys, line.encode() + b"\n")

    def read_until(self, ending: str) -> str:
        """What it has shown since the last call, up to and including `ending`."""
        deadline = time.monotonic() + PATIENCE
        while ending not in self._shown:
            readable, _, _ = select.select([self._output], [], [], max(0, deadline - time.monotonic()))
            assert readable, f"no {ending!r} within {PATIENCE} s after {self._shown!r}"
            more = os.read(self._output, 65536)
            assert more, f"ended after {self._shown!r}"
            self._shown += more.decode("latin-1")
        end = self._shown.index(ending) + len(ending)
        read, self._shown = self._shown[:end], self._shown[end:]
        return read

    def read_line(self) -> str:
        return self.read_until("\n").removesuffix("\n")

    def close(self) -> None:
        """Ends the program and everything that it started."""
        os.close(self._keys)
        with self.process:
            if self.process.poll() is None:
                os.killpg(self.process.pid, 9)
