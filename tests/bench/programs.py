"""The load programs: how they are compiled from ``load/``, started, read and ended.

The head of each C file describes its arguments and roles. A program prints its figures as one line of JSON.
"""

import json
import select
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.daemon_process import die_with_parent

SOURCES = Path(__file__).parent / "load"
PATIENCE = 120.0  # seconds for one line of a program; each of its own system calls has less
LEAVE_SECONDS = 10.0  # to end after SIGTERM


class MeasurementError(Exception):
    """A run that gives no figure: something was lost, refused or stood still."""


@dataclass(frozen=True)
class Programs:
    load: Path
    limit: Path
    bare: Path


@dataclass(frozen=True)
class Tally:
    """What publishers or subscribers saw; ``first`` and ``last`` in seconds of CLOCK_MONOTONIC."""

    count: int
    dropped: int
    first: float
    last: float


def build(folder: Path) -> Programs:
    """Compiles the programs into ``folder``."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise MeasurementError("there is no C compiler (package gcc)")
    folder.mkdir(parents=True, exist_ok=True)
    programs = Programs(folder / "load", folder / "limit", folder / "bare")
    alone = [SOURCES / f"{program.name}.c" for program in (programs.limit, programs.bare)]
    load = sorted({*SOURCES.glob("*.c")} - {*alone})
    for sources, program in ((load, programs.load), *(([path], folder / path.stem) for path in alone)):
        command = [compiler, "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", str(program)]
        result = subprocess.run(
            [*command, *map(str, sources)], capture_output=True, text=True, timeout=120, check=False
        )
        if result.returncode:
            raise MeasurementError(f"{program.name} does not compile:\n{result.stderr}")
    return programs


class LoadProcess:
    """One running load program; a context manager that ends it, whatever has happened."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self.process = subprocess.Popen(
            command,
            bufsize=0,  # or poll would not see what a buffer already holds
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )

    def await_ready(self) -> None:
        line = self._line()
        if line != "ready":
            raise MeasurementError(f"not ready but {line!r}")

    def tally(self) -> Tally:
        report = self.report()
        return Tally(report["count"], report["dropped"], report["first"] / 1e9, report["last"] / 1e9)

    def report(self) -> dict[str, Any]:
        return dict(json.loads(self._line()))

    def _line(self) -> str:
        assert self.process.stdout is not None
        poll = select.poll()  # select(2) knows descriptors up to 1023
        poll.register(self.process.stdout)
        if not poll.poll(PATIENCE * 1000):
            raise MeasurementError(f"nothing from a load program within {PATIENCE:g} s")
        line: bytes = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            raise MeasurementError(self.process.stderr.read().decode().strip() or "a load program has ended")
        return line.decode().removesuffix("\n")

    def go(self) -> None:
        """A line, for a program that waits for one after it was ready."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    def end(self) -> None:
        """Closes its input, which is what it waits for, or ends it if it waits for something else."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def terminate(self) -> None:
        self.process.terminate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self.process:
            self.end()
            if kind is not None:
                self.process.kill()
            try:
                self.process.wait(LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise MeasurementError("a load program did not end") from None


def words(role: str, **values: object) -> list[str]:
    """The command line of a role, behind the program's name."""
    return [
        role,
        *(
            f"{name}={value:d}" if isinstance(value, int) else f"{name}={value}"
            for name, value in values.items()
        ),
    ]
