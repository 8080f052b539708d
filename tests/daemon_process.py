"""A real daemon, or another service, in a process of its own."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests import prepared
from tests.packet_client import PATIENCE, PacketClient, wait_until

LOOPBACK_BROADCAST = "127.255.255.255"
BCCND = [sys.executable, "-m", "bccnd.daemon"]
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """For ``preexec_fn``: ends the process when the test run is killed."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def mortal(command: Sequence[str | Path]) -> list[str | Path]:
    """The same as a command. It takes 2 ms of processor time; ``preexec_fn`` copies the test run, which takes 20."""
    return ["setpriv", "--pdeathsig", "KILL", *command]


def runs(pid: int) -> bool:
    """Whether there is such a process. A zombie does not run."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def answers(name: Path | str) -> bool:
    """Whether a daemon answers behind this socket. One that is not there, does not listen yet, or lets nobody in does
    not."""
    try:
        with PacketClient(name) as client:
            client.send(b"CMSG ping\0there")
            return client.receive() == b"CMSG pong\0there"
    except (FileNotFoundError, ConnectionError):
        return False


def log_lines(log: str, event: str = "") -> list[dict[str, Any]]:
    """The JSON lines of a log, of this event if one is named. A line that is still being written is none yet."""
    whole = log[: log.rfind("\n") + 1]
    lines = [json.loads(line) for line in whole.split("\n") if line.startswith("{")]
    return [line for line in lines if not event or line["event"] == event]


class ServiceProcess:
    """A program that serves until it is told to leave, with its log in a file; a context manager that ends it.

    At its end it asserts that the program leaves by itself on SIGTERM, with code 0 and no traceback in its log.
    """

    patience = PATIENCE  # seconds until a program that does not leave is given up
    serving = "serving"  # the line of its log by which it says that it serves

    def __init__(self, command: Sequence[str], log_file: Path, environ: Mapping[str, str]) -> None:
        self.log_file = log_file
        self._command = list(command)
        self._environ = {**os.environ, **environ}
        self.process: subprocess.Popen[bytes] | prepared.Copy

    def start(self) -> None:
        """Starts or restarts it. Returns once it serves."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        with self.log_file.open("ab") as log:
            self._log_before = log.tell()
            copy = prepared.start(self._command, log, self._environ)
            self.process = copy or subprocess.Popen(mortal(self._command), stderr=log, env=self._environ)

    def wait_until_ready(self) -> None:
        wait_until(self._is_ready, f"the line {self.serving!r} in {self.log_file}")

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log
        since = self.log_file.read_bytes()[self._log_before :].decode(errors="replace")
        return bool(log_lines(since, self.serving))

    @property
    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines of this event."""
        return log_lines(self.log, event)

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(self.patience)

    def kill(self) -> None:
        """SIGKILL: nothing is tidied up."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        code = self.terminate() if self.process.poll() is None else self.process.returncode
        if kind is None:
            assert "Traceback" not in self.log, self.log
            assert code in (0, -signal.SIGKILL), self.log


class DaemonProcess(ServiceProcess):
    """``bccnd`` with its socket and its log in `folder`."""

    def __init__(
        self, folder: Path, *flags: str, prefix: Sequence[str] = (), environ: Mapping[str, str] = {}
    ) -> None:
        self.socket = folder / "bus.sock"
        command = [*prefix, *BCCND, "--socket", str(self.socket), *flags]
        super().__init__(command, folder / "log", environ)
        self._environ.setdefault("BCCND_HEARTBEAT__SECONDS", "0")

    def wait_until_ready(self) -> None:
        wait_until(self.answers, "an answer of the daemon")

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log
        return answers(self.socket)
