"""Spool files: what came from the bus, in numbered files that never change, until a query has it for good.

    <spool>/<number, 17 digits>-<messages>.segment    packets as the daemon sent them, behind a header
    <spool>/.<...>                                    not whole yet, of no meaning

A spool file is a line of JSON (``Header``) and then, for each packet, its length (u32, big-endian) and its bytes.

Rules
- A file is there whole or not at all: it is written under another name, synced and renamed, and its directory is
  synced. From then on it survives any kill. It never changes, and a query that repeats a batch reads it again.
- No number is used twice: the next is one above the newest, so the newest is never removed. In an empty directory
  the first is the time in microseconds, which is above whatever was there before.
- Files are removed by the query that has them (``remove_through``), and by the spooler, oldest first, to keep
  within its bounds. Before the spooler removes a file that nobody has read, it counts its messages in the header of
  a later one.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import NamedTuple

from bccnd.errors import ProtocolError
from bccnd.wire.sbus import LENGTH

# A task reads a file as a whole, and needs a few times this much memory.
FILE_BYTES = 8 << 20
# The longest header. Patterns of local channels are most of it.
HEADER_LIMIT = 1 << 20

_NAME = re.compile(r"([0-9]{17})-([0-9]+)\.segment")


class SpoolFile(NamedTuple):
    number: int
    messages: int
    path: str
    size: int  # bytes of the file


@dataclass(frozen=True, slots=True)
class Header:
    """``opened``, ``closed``: the file has all that came between these times (Unix ns). A file that goes on where the
    one before it ends is ``opened`` when that one was ``closed``. ``local``: patterns of channels that stay on the
    host. ``removed``: the time of the first message that was removed before anybody read it, and how many were.
    """

    host: str
    opened: int
    closed: int
    local: list[str] = field(default_factory=list)
    removed: tuple[int, int] | None = None


def listed(spool: str) -> list[SpoolFile]:
    """All whole files, oldest first. Raises ``FileNotFoundError`` without a directory."""
    found = []
    with os.scandir(spool) as entries:
        for entry in entries:
            if name := _NAME.fullmatch(entry.name):
                try:
                    size = entry.stat().st_size
                except FileNotFoundError:
                    continue  # removed meanwhile
                found.append(SpoolFile(int(name[1]), int(name[2]), entry.path, size))
    return sorted(found)


def next_number(spool: str) -> int:
    """The next free number, for the one process that holds the spool's lock."""
    files = listed(spool)
    return files[-1].number + 1 if files else time.time_ns() // 1000


def write(spool: str, number: int, messages: int, header: Header, frames: memoryview) -> SpoolFile:
    """Write a file, and return once it is there for good. Raises ``OSError``, and leaves nothing but a dot-file that
    the next attempt replaces. ``frames``: the packets, each behind its length.
    """
    head = json.dumps(asdict(header)).encode() + b"\n"
    name = f"{number:017}-{messages}.segment"
    aside, path = os.path.join(spool, ".segment"), os.path.join(spool, name)  # noqa: PTH118
    with open(aside, "wb") as file:  # noqa: PTH123
        file.write(head)
        file.write(frames)
        file.flush()
        os.fsync(file.fileno())
    Path(aside).rename(path)
    sync(spool)
    return SpoolFile(number, messages, path, len(head) + len(frames))


def sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def header_of(path: str) -> Header:
    with Path(path).open("rb") as file:
        return _header(path, file.readline(HEADER_LIMIT))


def read(path: str) -> tuple[Header, mmap, list[int], list[int]]:
    """The header, the content of the file, and where in it the packets start and end."""
    with Path(path).open("rb") as file:
        # Writable, as the compiled functions want it.
        content = mmap(file.fileno(), 0, access=ACCESS_COPY)
    at = content.find(b"\n", 0, HEADER_LIMIT) + 1
    header = _header(path, content[:at])
    starts, ends = [], []
    for start, end in spans(content, at):
        starts.append(start)
        ends.append(end)
    return header, content, starts, ends


def spans(frames: mmap | memoryview, at: int = 0) -> Iterator[tuple[int, int]]:
    """Where the packets start and end, between their lengths."""
    end = len(frames)
    while at < end:
        start = at + LENGTH.size
        at = start + LENGTH.unpack_from(frames, at)[0] if start <= end else end + 1
        if at > end:
            raise ProtocolError("a spool file ends in the middle of a packet: the disk has lost part of it")
        yield start, at


def remove_through(spool: str, number: int) -> None:
    """Remove all files up to this number, except the newest."""
    for each in listed(spool)[:-1]:
        if each.number > number:
            return
        Path(each.path).unlink(missing_ok=True)


def _header(path: str, line: bytes) -> Header:
    try:
        fields = json.loads(line)
        return Header(**fields | {"removed": tuple(fields["removed"]) if fields["removed"] else None})
    except (ValueError, TypeError, LookupError):
        raise ProtocolError(f"{path}: not a spool file: {line[:40]!r}") from None
