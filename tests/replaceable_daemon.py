"""A real daemon that real successors replace. A test can give each of them code to run first."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until

ROOT = Path(__file__).parent.parent
# A test may be slow, and may be stopped in the middle: only what tests the limit of a hand-over sets one of its own.
LAUNCHER = """\
import sys, bccnd.restart
bccnd.restart.HANDOVER_SECONDS = 30.0
exec(open(sys.argv.pop(1)).read())
from bccnd.daemon import main
sys.exit(main())
"""
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None)


class ReplaceableDaemon(DaemonProcess):
    """``pid`` is that of the process that serves. ``begin_with``: Python that each start from now on runs first."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        prefix: Sequence[str] = (),
        environ: Mapping[str, str] = {},
        begin_with: str = "",
    ) -> None:
        super().__init__(folder, *flags, prefix=prefix, environ={"PYTHONPATH": str(ROOT), **environ})
        self.launcher = folder / "launcher.py"
        self.launcher.write_text(LAUNCHER)
        self._first = folder / "first.py"
        self.begin_with(begin_with)
        at = self._command.index("-m")
        self._command[at : at + 2] = [str(self.launcher), str(self._first)]
        self.pid = 0
        self._unreaped: set[int] = set()
        # Orphans of a predecessor become our children, so that we learn how they end.
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def begin_with(self, code: str) -> None:
        self._first.write_text(code)

    def launch(self) -> None:
        super().launch()
        self.pid = self.process.pid

    def signal(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def replace(self) -> int:
        """Send SIGUSR2. Returns the successor's pid once it serves and its predecessor has left."""
        self.signal(signal.SIGUSR2)
        return self.follow()

    def follow(self) -> int:
        """Wait until the process that serves has left. Returns the pid of the one that serves now."""
        with PacketClient(self.socket) as client:
            return self.follow_by(client)

    def follow_by(self, client: PacketClient) -> int:
        """The same, with a client that is connected already."""
        code = self.wait()
        assert code in (0, -signal.SIGKILL), self.log
        self.pid = client.status()["pid"]
        return self.pid

    def wait(self) -> int:
        """Wait until the process that serves has ended. Returns its exit code."""
        if self.pid == self.process.pid:
            return self.process.wait(PATIENCE)
        codes: list[int] = []

        def ended() -> bool:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                codes.append(os.waitstatus_to_exitcode(status))
            return bool(pid)

        wait_until(ended, f"the end of {self.pid}")
        return codes[0]

    def terminate(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def __exit__(self, kind: object, *_: object) -> None:
        code = -signal.SIGKILL
        try:
            if self._runs():
                code = self.terminate()
        finally:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                self.signal(signal.SIGKILL)
            if self.process.poll() is None:
                self.kill()
        if kind is None:
            assert code in (0, -signal.SIGKILL), self.log

    def _runs(self) -> bool:
        if self.pid == self.process.pid:
            return self.process.poll() is None
        return Path(f"/proc/{self.pid}").exists()

    def children(self) -> list[int]:
        """The children of the process that serves, dead ones included."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))
