"""The memory and processor time of a process and of all that it starts.

The children of a process that has ended cannot be attributed, so samples are taken while it lives. Sampling a JVM
with its hundred threads takes milliseconds: the longer a program runs, the further apart the samples are, up to
APART_SECONDS. What a process uses after the last sample is missing.

Memory counts once. A child that runs its parent's program shares what the parent had when it was forked: of such a
one only what is its own counts, and nothing before the second sample, as most begin another program at once.
"""

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.machine import TICKS, resident_kib
from tests.bench.programs import MeasurementError
from tests.daemon_process import die_with_parent

FIRST_SECONDS, APART_SECONDS = 0.05, 0.5


@dataclass(frozen=True)
class Usage:
    """``peak_mb``: the most that was resident at once; ``busy_seconds``: of processor time; ``said``: its stderr."""

    seconds: float
    peak_mb: float
    busy_seconds: float
    descendants_busy_seconds: float
    said: str


def run(command: Sequence[str], said: Path) -> Usage:
    """Run it to its end. MeasurementError if it fails, with its last line."""
    begun = time.monotonic()
    peak, busy = 0.0, dict[int, float]()
    seen: set[int] = set()
    over = threading.Event()
    with said.open("wb") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log, preexec_fn=die_with_parent)

    def look() -> None:
        nonlocal peak, seen
        apart = FIRST_SECONDS
        while not over.wait(apart):
            apart = min(1.1 * apart, APART_SECONDS)
            resident, alive = 0, with_descendants(process.pid)
            for pid, parent in alive.items():
                try:
                    busy[pid] = _busy_seconds(pid)
                    resident += own_kib(pid, parent) if pid in seen else 0
                except (ProcessLookupError, FileNotFoundError):
                    continue  # it has just ended
            peak, seen = max(peak, resident / 1024), set(alive)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        process.wait()
    finally:
        process.kill()
        over.set()
        looking.join()
    text = said.read_text(errors="replace")
    if process.returncode:
        last = (text.strip().splitlines() or [""])[-1]
        raise MeasurementError(f"{' '.join(command[:3])} ended with {process.returncode}: {last}")
    others = sum(seconds for pid, seconds in busy.items() if pid != process.pid)
    return Usage(time.monotonic() - begun, peak, sum(busy.values()), others, text)


def with_descendants(pid: int) -> dict[int, int]:
    """The parent of each, of ``pid`` 0. While threads end, a child may be listed under two of them."""
    found = {pid: 0}
    parents = [pid]
    for parent in parents:  # it grows
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                for child in map(int, Path(f"/proc/{parent}/task/{task}/children").read_text().split()):
                    if child not in found:
                        found[child] = parent
                        parents.append(child)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def own_kib(pid: int, parent: int) -> int:
    """What is resident of a process, less what it shares with its parent since it was forked."""
    if not parent or _program(pid) != _program(parent):
        return resident_kib(pid)
    # As vfork and posix_spawn leave it until the other program begins: it has no memory of its own.
    if _kib(pid, "status", "VmSize", "VmRSS") == _kib(parent, "status", "VmSize", "VmRSS"):
        return 0
    return sum(_kib(pid, "smaps_rollup", "Private_Clean", "Private_Dirty"))


def _program(pid: int) -> tuple[str, bytes]:
    return os.readlink(f"/proc/{pid}/exe"), Path(f"/proc/{pid}/cmdline").read_bytes()


def _kib(pid: int, file: str, *names: str) -> list[int]:
    rows = [line.split() for line in Path(f"/proc/{pid}/{file}").read_text().splitlines()]
    return [int(row[1]) for row in rows if row[0].removesuffix(":") in names]


def _busy_seconds(pid: int) -> float:
    """User and system, of all threads, those that have ended, too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
