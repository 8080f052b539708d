"""A real recorder in a process of its own, and what it has recorded."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq

from tests.daemon_process import die_with_parent, log_lines
from tests.packet_client import PATIENCE, wait_until

# The marks between ``opened`` and ``closed``.
INNER = {"unrecorded", "daemon", "counters", "stopped", "disappeared", "disconnected", "returned"}


class RecorderProcess:
    """``bccnd-record`` with its log and its files in `folder`; a context manager that ends it.

    It must end on SIGTERM with code 0 and without a traceback in its log.
    """

    def __init__(
        self,
        folder: Path,
        socket: Path,
        *flags: str,
        output: Path | None = None,
        environ: Mapping[str, str] = {},
    ) -> None:
        self.output = output or folder / "recorded"
        self.log_file = folder / "recorder.log"
        paths = ["--socket", str(socket), "--output", str(self.output)]
        self._command = [sys.executable, "-m", "bccnd.recorder", *paths, *flags]
        self._environ = {**os.environ, **environ}
        self.process: subprocess.Popen[bytes]

    def launch(self) -> None:
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stderr=log, env=self._environ, preexec_fn=die_with_parent
            )

    def start(self) -> None:
        """Start it, for the first time or again, and return once it records."""
        before = len(self.logged("recording"))
        self.launch()
        wait_until(lambda: len(self.logged("recording")) > before or self._left(), "a recorder that records")
        assert self.process.poll() is None, self.log

    def _left(self) -> bool:
        return self.process.poll() is not None

    @property
    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines with this event."""
        return log_lines(self.log, event)

    def files(self) -> list[Path]:
        """The whole files, oldest first."""
        return sorted(self.output.glob("date=*/host=*/[0-9]*.parquet"), key=lambda path: path.name)

    def rows(self) -> list[dict[str, Any]]:
        """All rows of whole files, marks included, each with its ``file``."""
        return [row for path in self.files() for row in rows_of(path)]

    def marks(self, kind: str) -> list[dict[str, Any]]:
        """What the marks of this kind say, each with its ``time_ns``."""
        found = [row for row in self.rows() if not row["direction"] and row["verdict"] == kind]
        return [json.loads(row["payload"]) | {"time_ns": row["time_ns"]} for row in found]

    def datagrams(self) -> list[dict[str, Any]]:
        return [row for row in self.rows() if row["direction"]]

    def terminate(self) -> int:
        """Send SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(3 * PATIENCE)

    def kill(self) -> None:
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


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows = pq.ParquetFile(path, page_checksum_verification=True).read(use_threads=False).to_pylist()
    return [row | {"file": path.name} for row in rows]


def assert_well_kept(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Each file opens once and closes once, with everything between; returns these times of each file."""
    spans = []
    for name in dict.fromkeys(row["file"] for row in rows):
        inside = [row for row in rows if row["file"] == name]
        assert [row["verdict"] for row in (inside[0], inside[-1])] == ["opened", "closed"]
        assert not {row["verdict"] for row in inside[1:-1] if not row["direction"]} - INNER
        spans.append((inside[0]["time_ns"], inside[-1]["time_ns"]))
        assert name.startswith(f"{inside[0]['time_ns']}-")
        assert all(inside[0]["time_ns"] <= row["time_ns"] <= inside[-1]["time_ns"] for row in inside)
    return spans
