"""How much there is to read: for the first line that a user sees, and for the settings of Spark.

Only directories of this machine are looked at; of others nothing is known before Spark starts.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bccnd.recorder.layout import SUFFIX

_CAPTURE = ".pcap"


class Amount(NamedTuple):
    """Recorded or ingested files, captures among them, and their bytes."""

    files: int = 0
    size: int = 0

    def __str__(self) -> str:
        several = "" if self.files == 1 else "s"
        size = f"{self.size / 1e6:,.1f} MB" if self.size >= 100_000 else f"{self.size / 1e3:,.1f} kB"
        return f"{self.files:,} file{several}, {size}"


def below(directory: Path) -> Amount:
    """What a directory holds; nothing if there is none."""
    sizes = [entry.stat(follow_symlinks=True).st_size for entry in _files(os.fspath(directory))]
    return Amount(len(sizes), sum(sizes))


def _files(directory: str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = list(os.scandir(directory))
    except OSError:  # what is wrong, ``preconditions`` says
        return
    for entry in entries:
        if entry.name[0] in "._":
            continue
        if entry.is_dir():
            yield from _files(entry.path)
        elif (entry.name.endswith(SUFFIX) or _CAPTURE in entry.name) and entry.is_file():
            yield entry
