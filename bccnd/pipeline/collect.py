"""The ``bccnd-collect`` command: fetches the files of bccnd-record from other hosts, within a quota for each host.

A host may lie about everything: it may send any names, sizes and times, links, endless files, and any number of them.

Rules
- Only a host's own files are taken: in the folders of its name and of OLDEST to NEWEST days from today, with names as
  recorders make them. rsync gets these as filters, and takes nothing else even from a host that lies (3.2.5 and
  later). It skips links and everything else that is no file.
- The quota is measured by the files that are here, not by what the host says: before, each LOOK_SECONDS, and at the
  end. rsync is ended where they exceed the quota. So a host has at most its quota and what it can send in that time.
- A file gets the time at which it came, so that it is removed in time, whatever the host says. It is not fetched
  again, since its day is no longer asked for then.
- What the host writes to stdout is dropped; the beginning of its stderr is kept.
"""

import argparse
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from bccnd.errors import BccndError, ConfigError, RefusedError, UnavailableError
from bccnd.process.standard_streams import CommandLine, complain, guarded
from bccnd.recorder.layout import SUFFIX, host_folder

PROGRAM = "bccnd-collect"
# Days from today, UTC. A recorder keeps its files for seven; the clock of a host may be ahead.
OLDEST, NEWEST = -7, 1
# Unix nanoseconds from 2001 to 2286, and the tag (recorder.layout.name_of).
NAME = "[0-9]" * 19 + "-" + "[0-9a-f]" * 8 + SUFFIX
# Twice what a recorder keeps, as files stay here for longer.
QUOTA = "20G"
# Three times what a recorder makes in nine days, one each 30 seconds. Small files cost more than their bytes.
MOST_FILES = 80_000
LOOK_SECONDS = 1.0
# Without a byte.
SILENT_SECONDS = 60
# Until rsync, which is to end, is killed.
END_SECONDS = 10.0
# Of what rsync, ssh and the host say.
SAID_BYTES, SAID_LINES = 2000, 5
PIPE_BYTES = 65536
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Held(NamedTuple):
    """What is here of a host."""

    size: int = 0
    files: int = 0

    def exceeds(self, quota: int) -> bool:
        return self.size > quota or self.files > MOST_FILES

    def __str__(self) -> str:
        return f"{self.files:,} file{'' if self.files == 1 else 's'}, {_mb(self.size)}"


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def size(text: str) -> int:
    """A number of bytes such as 500M or 20G."""
    if not (found := re.fullmatch("([0-9]{1,6})([KMGT]?)", text, re.ASCII)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes, such as 500M or 20G")
    return int(found[1]) * _UNITS[found[2]]


def held(output: Path, host: str) -> Held:
    """What is here of a host, with what rsync has not finished. Raises OSError if it cannot be read."""
    total = files = 0
    for folder in output.glob(f"date=*/{host_folder(host)}"):
        for path, _, names in os.walk(folder):
            for name in names:
                try:
                    there = os.lstat(f"{path}/{name}")
                except FileNotFoundError:  # rsync has just finished it
                    continue
                total += max(there.st_size, there.st_blocks * 512)
                files += 1
    return Held(total, files)


def command(source: str, host: str, output: Path, now: datetime) -> list[str]:
    """The rsync that fetches the files of a host."""
    folders = [
        f"/date={now + timedelta(days=day):%Y-%m-%d}/{below}"
        for day in range(OLDEST, NEWEST + 1)
        for below in ("", f"{host_folder(host)}/", f"{host_folder(host)}/{NAME}")
    ]
    return [
        "rsync", "--recursive", "--chmod=D0750,F0640", *(f"--include={folder}" for folder in folders),
        "--exclude=*", "--ignore-existing", "--prune-empty-dirs", f"--timeout={SILENT_SECONDS}",
        "--", source, f"{output}/",
    ]  # fmt: skip


def collect(source: str, host: str, output: Path, quota: int) -> None:
    """Fetch the files of ``host`` from ``source``, as rsync names it, into ``output``.

    Raises RefusedError if ``host`` has more than ``quota`` bytes here, ConfigError without rsync, UnavailableError if
    it fails.
    """
    _check(output, host, quota)
    try:
        ran = subprocess.Popen(
            command(source, host, output, datetime.now(UTC)),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    except FileNotFoundError:
        raise ConfigError("rsync is not installed") from None
    assert ran.stderr is not None  # noqa: S101 - a pipe
    said = bytearray()
    with ran.stderr:
        try:
            _watch(ran, ran.stderr.fileno(), said, lambda: _check(output, host, quota))
        finally:
            _end(ran)
    if ran.returncode:
        lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
        for line in lines[:SAID_LINES]:
            complain(PROGRAM, line)
        raise UnavailableError(f"{source}: rsync ended with code {ran.returncode}; what came whole stays")
    _check(output, host, quota)


def _watch(ran: subprocess.Popen[bytes], stderr: int, said: bytearray, check: Callable[[], None]) -> None:
    """Wait for its end; what it starts may keep ``stderr`` open for longer."""
    looked = time.monotonic()
    while ran.poll() is None:
        if select.select([stderr], [], [], LOOK_SECONDS)[0] and not _listen(stderr, said):
            with suppress(subprocess.TimeoutExpired):
                ran.wait(LOOK_SECONDS)
        if time.monotonic() - looked >= LOOK_SECONDS:
            check()
            looked = time.monotonic()
    if select.select([stderr], [], [], 0)[0]:
        _listen(stderr, said)


def _listen(stderr: int, said: bytearray) -> bool:
    """Read what there is, and keep some; False at its end."""
    part = os.read(stderr, PIPE_BYTES)
    said += part[: SAID_BYTES - len(said)]
    return bool(part)


def _end(ran: subprocess.Popen[bytes]) -> None:
    """End it, if it runs. It removes what it has not finished, unless it must be killed."""
    ran.terminate()
    try:
        ran.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        ran.kill()
        ran.wait()


def _check(output: Path, host: str, quota: int) -> None:
    if (found := held(output, host)).exceeds(quota):
        raise RefusedError(
            f"{host}: has {found} in {output}, beyond its quota of {_mb(quota)} and {MOST_FILES:,} files; "
            "nothing more is fetched until old ones are removed, or --quota is larger"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Fetch once; returns the exit code."""
    return guarded(PROGRAM, lambda: _start(sys.argv[1:] if argv is None else argv))


def _start(argv: Sequence[str]) -> int:
    top = CommandLine(prog=PROGRAM, description="Fetch what bccnd-record wrote on another host, with rsync.")
    top.add_argument(
        "source", metavar="FROM", help="where it is, as rsync names it: USER@HOST:/ or a folder/"
    )
    top.add_argument(
        "--host", required=True, help="the name that the host has for bccnd; only its files are taken"
    )
    top.add_argument(
        "--output", metavar="DIR", type=Path, required=True, help="where all hosts are collected"
    )
    top.add_argument(
        "--quota",
        metavar="BYTES",
        type=size,
        default=QUOTA,
        help="the most to have of this host; 20G by default",
    )
    given = top.parse_args(argv)
    try:
        collect(given.source, given.host, given.output, given.quota)
    except BccndError as error:
        complain(PROGRAM, str(error))
        return error.exit_code
    except OSError as error:
        complain(PROGRAM, f"{error.filename}: {error.strerror}")
        return RefusedError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
