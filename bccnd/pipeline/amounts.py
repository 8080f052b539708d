"""Counts how much there is to read: for the first line that a user sees, and for the settings of Spark.

Only directories of this machine are looked at; nothing is known about others before Spark starts.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bccnd.recorder.layout import SUFFIX

_CAPTURE = ".pcap"
# How the names of directories begin that hold such files, from the top: no others are looked into.
_FOLDERS = ("batch=", "date=", "host=")


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
    sizes = list(_sizes(os.fspath(directory), _FOLDERS))
    return Amount(len(sizes), sum(sizes))


def _sizes(directory: str, folders: tuple[str, ...]) -> Iterator[int]:
    """``folders``: how the names begin of those that are looked into, of each only once on the way down."""
    try:
        entries = list(os.scandir(directory))
    except OSError:  # what is wrong, ``preconditions`` says
        return
    for entry in entries:
        kind = entry.name.partition("=")[0] + "="
        if kind in folders:
            yield from _sizes(entry.path, folders[folders.index(kind) + 1 :])
        elif entry.name[0] not in "._" and (entry.name.endswith(SUFFIX) or _CAPTURE in entry.name):
            try:
                there = entry.stat()
            except OSError:  # removed meanwhile, as recorders and ``maintain`` do with what is old
                continue
            if stat.S_ISREG(there.st_mode):
                yield there.st_size
