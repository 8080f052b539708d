"""The spool's directory: what came from the bus, in numbered files that never change, until a query has it for good.

    <spool>/<number, 17 digits>-<messages>.segment    packets as the daemon sent them, behind a header
    <spool>/.<...>                                    not yet whole, of no meaning

A segment is a line of JSON (``Header``) and then, per packet, its length (u32, big-endian) and its bytes.

Rules
- A segment is there whole or not at all: written under another name, synced, renamed, its directory synced. From then
  on it survives whatever is killed. It is never changed, and read by its number again as often as a query repeats.
- A number is never used twice: the next is one above the newest, which is therefore never removed. The first of an
  empty directory is the time in microseconds, above whatever was there before it was emptied.
- Files are removed in two ways: by the query that has them (``remove_through``), and, oldest first, by the spooler
  to keep within its bounds. What it has to remove unread it counts in the header of a later segment, beforehand.
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

SEGMENT_BYTES = 8 << 20  # read as a whole by a task: a few times that is its memory
HEADER_LIMIT = 1 << 20  # bytes; patterns of local channels are most of it

_NAME = re.compile(r"([0-9]{17})-([0-9]+)\.segment")


class Segment(NamedTuple):
    number: int
    messages: int
    path: str
    size: int  # bytes of the file


@dataclass(frozen=True, slots=True)
class Header:
    """``opened``, ``closed``: from when to when this is all that came, Unix ns; a segment that goes on where the one
    before it ends has its ``closed`` as ``opened``. ``local``: patterns of the channels that stay on the host.
    ``removed``: from when on how many messages had to go, with their segments, before anybody read them.
    """

    host: str
    opened: int
    closed: int
    local: list[str] = field(default_factory=list)
    removed: tuple[int, int] | None = None


def listed(spool: str) -> list[Segment]:
    """All that are whole, oldest first. Raises ``FileNotFoundError`` without a directory."""
    found = []
    with os.scandir(spool) as entries:
        for entry in entries:
            if name := _NAME.fullmatch(entry.name):
                try:
                    size = entry.stat().st_size
                except FileNotFoundError:  # removed meanwhile
                    continue
                found.append(Segment(int(name[1]), int(name[2]), entry.path, size))
    return sorted(found)


def next_number(spool: str) -> int:
    """Of one process, the one that holds the spool's lock."""
    segments = listed(spool)
    return segments[-1].number + 1 if segments else time.time_ns() // 1000


def write(spool: str, number: int, messages: int, header: Header, frames: memoryview) -> Segment:
    """Returns once it is there for good. Raises ``OSError`` and leaves nothing but a dot-file that the next
    attempt replaces."""
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
    return Segment(number, messages, path, len(head) + len(frames))


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
    """The header, all bytes, and where in them the packets begin and end."""
    with Path(path).open("rb") as file:
        content = mmap(file.fileno(), 0, access=ACCESS_COPY)  # writable, as the compiled functions want it
    at = content.find(b"\n", 0, HEADER_LIMIT) + 1
    header = _header(path, content[:at])
    starts, ends = [], []
    for start, end in places(content, at):
        starts.append(start)
        ends.append(end)
    return header, content, starts, ends


def places(frames: mmap | memoryview, at: int = 0) -> Iterator[tuple[int, int]]:
    """Where the packets are between their lengths."""
    end = len(frames)
    while at < end:
        start = at + LENGTH.size
        at = start + LENGTH.unpack_from(frames, at)[0] if start <= end else end + 1
        if at > end:
            raise ProtocolError("a segment that ends in the middle of a packet: the disk has lost part of it")
        yield start, at


def remove_through(spool: str, number: int) -> None:
    """All segments up to this one, but for the newest."""
    for segment in listed(spool)[:-1]:
        if segment.number > number:
            return
        Path(segment.path).unlink(missing_ok=True)


def _header(path: str, line: bytes) -> Header:
    try:
        told = json.loads(line)
        return Header(**told | {"removed": tuple(told["removed"]) if told["removed"] else None})
    except (ValueError, TypeError, LookupError):
        raise ProtocolError(f"{path}: no segment of a spool: {line[:40]!r}") from None
