"""What is recorded: the columns, the marks among them, and where the files lie.

    <output>/date=YYYY-MM-DD/host=<host>/<opened, unix ns>-<8 hex digits>.parquet

Rules
- A file appears under its name when it is whole, and is never written again. What is not whole yet begins with a dot.
- The date is the UTC date of the file's ``opened``; no file spans midnight.
- The first row is the mark ``opened``, the last ``closed``: from when to when the file is the host's whole record.
  While recording goes on, a file opens at the very time at which the one before it closed. What lies between a
  ``closed`` and a later ``opened`` was not recorded, and nobody may be blamed for what is missing there.
- ``unrecorded`` marks stand where the recorder itself lost messages; ``size`` is how many.
- A datagram whose header cannot be read has neither source, number, channel nor mode, and its payload is all of it.
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa

DAY_NS = 86_400 * 10**9
SUFFIX = ".parquet"
UNFINISHED = ".partial"  # after a dot and the name


class Direction(StrEnum):
    """``echo``: a datagram of this host that came back from the segment. A mark has none."""

    IN = "in"
    OUT = "out"
    LOCAL = "local"
    ECHO = "echo"
    MARK = ""


class Mark(StrEnum):
    """The verdicts of rows that are no datagrams."""

    OPENED = "opened"
    CLOSED = "closed"
    UNRECORDED = "unrecorded"


WORD = pa.dictionary(pa.int32(), pa.string())  # in memory; a plain string in the file

SCHEMA = pa.schema(
    [
        pa.field("time_ns", pa.int64(), nullable=False),  # since 1970, UTC, when the daemon read it
        pa.field("interface", WORD),  # null for this host's own
        pa.field("direction", WORD, nullable=False),
        pa.field("verdict", WORD, nullable=False),  # ok, or why the daemon did not deliver it
        pa.field("mode", WORD),  # none, crc32 or hmac
        pa.field("peer", WORD),  # ip:port, null for this host
        pa.field("src", WORD),
        pa.field("seq", pa.uint64()),
        pa.field("channel", WORD),
        pa.field("payload", pa.binary()),
        pa.field("size", pa.int32(), nullable=False),  # bytes of the datagram; messages of an ``unrecorded``
    ]
)


def mark(kind: Mark, time_ns: int, size: int = 0) -> pa.RecordBatch:
    """One row that is no datagram."""
    values = {"time_ns": time_ns, "direction": Direction.MARK.value, "verdict": kind.value, "size": size}
    arrays = [pa.array([values.get(field.name)], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def day_of(time_ns: int) -> int:
    """Days since 1970, UTC."""
    return time_ns // DAY_NS


def folder_of(host: str, day: int) -> Path:
    """Relative to the output. Host names are escaped as Spark escapes values in folders, and more."""
    date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
    return Path(f"date={date:%Y-%m-%d}") / host_folder(host)


def host_folder(host: str) -> str:
    return f"host={quote(host, safe='')}"


def host_of(folder: str) -> str:
    """The host of a ``host=`` folder."""
    return unquote(folder.removeprefix("host="))


def name_of(opened_ns: int, tag: str) -> str:
    """``tag``: 8 random hex digits, so that no name comes twice, whatever the clock does."""
    return f"{opened_ns}-{tag}{SUFFIX}"
