"""A real recorder in a process of its own, and what it has recorded."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.daemon_process import ServiceProcess
from tests.packet_client import PATIENCE

# The marks between ``opened`` and ``closed``.
INNER = {
    "unrecorded", "daemon", "counters", "relayed", "link", "stopped", "disappeared", "disconnected", "returned",
}  # fmt: skip


class RecorderProcess(ServiceProcess):
    """``bccnd-record`` with its log and its files in `folder`."""

    patience = 3 * PATIENCE  # it writes what it holds first
    serving = "recording"

    def __init__(
        self,
        folder: Path,
        socket: Path,
        *flags: str,
        output: Path | None = None,
        environ: Mapping[str, str] = {},
    ) -> None:
        self.output = output or folder / "recorded"
        paths = ["--socket", str(socket), "--output", str(self.output)]
        command = [sys.executable, "-m", "bccnd.recorder", *paths, *flags]
        super().__init__(command, folder / "recorder.log", environ)

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
