"""The layout of recorded files: their columns, the marks among the rows, folders and names.

    <output>/date=YYYY-MM-DD/host=<host>/<opened, Unix ns>-<8 hex digits>.parquet

Rules
- A file appears under its name when it is whole, and never changes. Until then its name begins with a dot.
- The date is the UTC date of the file's ``opened``. No file spans midnight.
- The first row is the mark ``opened``, the last the mark ``closed``: between these times the file is the host's whole
  record. While recording goes on, a file opens at the very time at which the one before it closed. The time
  from a ``closed`` to a later ``opened`` was not recorded: messages that are missing there do not count as lost.
- A mark ``unrecorded`` stands where the recorder itself lost messages; its ``size`` is their number.
- The other marks say what the daemon says of itself (``account``), what is said of links to other segments
  (``links``), and how a connection to the daemon ended. Their ``payload`` is a JSON object. All stand between
  ``opened`` and ``closed``, so a reader that knows only these loses nothing.
- The file's own metadata name the host under HOST_KEY, for who has the file without its path.
- A datagram whose header is malformed has no source, number, channel or mode, and its payload is all of it.
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa

DAY_NS = 86_400 * 10**9
SUFFIX = ".parquet"
# The key in a file's own metadata that names the host.
HOST_KEY = "bccnd.host"
# The suffix of an unfinished file, whose name begins with a dot.
UNFINISHED = ".partial"


class Direction(StrEnum):
    """``echo``: a datagram of this host that came back from the segment. A mark has no direction."""

    IN = "in"
    OUT = "out"
    LOCAL = "local"
    ECHO = "echo"
    MARK = ""


class Mark(StrEnum):
    """The verdicts of rows that are not datagrams."""

    OPENED = "opened"
    CLOSED = "closed"
    UNRECORDED = "unrecorded"
    # What the daemon is, and what it has counted: ``bccnd.recorder.account``.
    DAEMON = "daemon"
    COUNTERS = "counters"
    # What is said of links to other segments: ``bccnd.recorder.links``.
    RELAYED = "relayed"
    LINK = "link"
    # How a connection to the daemon ended: it said that it stops, it was gone without a word, or it said something
    # else, such as ``slow``. After that, the daemon is back.
    STOPPED = "stopped"
    DISAPPEARED = "disappeared"
    DISCONNECTED = "disconnected"
    RETURNED = "returned"


# A dictionary in memory, a plain string in the file.
WORD = pa.dictionary(pa.int32(), pa.string())

SCHEMA = pa.schema(
    [
        pa.field("time_ns", pa.int64(), nullable=False),  # Unix time when the daemon read it
        pa.field("interface", WORD),  # null for what a client of this host sent
        pa.field("direction", WORD, nullable=False),
        pa.field("verdict", WORD, nullable=False),  # bccnd.wire.verdict, or a mark
        pa.field("mode", WORD),  # none, crc32 or hmac
        pa.field("peer", WORD),  # ip:port, null for a client of this host
        pa.field("src", WORD),
        pa.field("seq", pa.uint64()),
        pa.field("channel", WORD),
        pa.field("payload", pa.binary()),
        pa.field("size", pa.int32(), nullable=False),  # bytes of the datagram; for ``unrecorded`` messages
    ]
)


def mark(kind: Mark, time_ns: int, size: int = 0, payload: bytes | None = None) -> pa.RecordBatch:
    """One row that is a mark."""
    values = {
        "time_ns": time_ns,
        "direction": Direction.MARK.value,
        "verdict": kind.value,
        "payload": payload,
        "size": size,
    }
    arrays = [pa.array([values.get(field.name)], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def day_of(time_ns: int) -> int:
    """Days since 1970, UTC."""
    return time_ns // DAY_NS


def folder_of(host: str, day: int) -> Path:
    """The folder below the output. Host names are escaped as Spark escapes values in folders, and more."""
    date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
    return Path(f"date={date:%Y-%m-%d}") / host_folder(host)


def host_folder(host: str) -> str:
    return f"host={quote(host, safe='')}"


def host_of(folder: str) -> str:
    """The host that a ``host=`` folder is named after."""
    return unquote(folder.removeprefix("host="))


def name_of(opened_ns: int, tag: str) -> str:
    """``tag``: 8 random hex digits, so that no two files get the same name, whatever the clock does."""
    return f"{opened_ns}-{tag}{SUFFIX}"
