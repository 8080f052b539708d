"""The rows of Spark's sources: one per datagram, as recorded, and marks between them.

The columns are those of recorded files (``bccnd.recorder.layout``) as Spark reads them: seq as decimal(20,0), so that
numbers from 2^63 on survive, and ``host``, which recorded files have in their path. Marks are those of recorded files
and, only from captures, ``broken`` (``payload``: the reason).
"""

from mmap import mmap
from sys import byteorder
from typing import Any

import pyarrow as pa

from bccnd.errors import WireError
from bccnd.recorder.layout import Direction
from bccnd.wire.bccn1 import Integrity
from bccnd.wire.columns import columns
from bccnd.wire.verdict import Verdict

ROWS = (
    "time_ns bigint, host string, interface string, direction string, verdict string, mode string, peer string, "
    "src string, seq decimal(20,0), channel string, payload binary, size int"
)
SEQ = pa.decimal128(20, 0)
SCHEMA = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("host", pa.string()),
        ("interface", pa.string()),
        ("direction", pa.string()),
        ("verdict", pa.string()),
        ("mode", pa.string()),
        ("peer", pa.string()),
        ("src", pa.string()),
        ("seq", SEQ),
        ("channel", pa.string()),
        ("payload", pa.binary()),
        ("size", pa.int32()),
    ]
)

# The mode of a datagram without integrity value.
NO_SUM = "none"
# The verdict of the mark after what can be read of a damaged capture.
BROKEN = "broken"

# Rows of one Arrow batch: some MB with the largest payloads.
BATCH_ROWS = 16_384
# Of the column ``size``.
SIZE_LIMIT = 2**31 - 1

Row = tuple[Any, ...]
# Mode, src, seq, channel, payload.
Parts = tuple[str | None, str | None, int | None, str | None, bytes | None]


def mark(time_ns: int, host: str, verdict: str, size: int = 0, payload: bytes | None = None) -> Row:
    """A row in the order of ``SCHEMA`` that is no datagram."""
    nothing = (None,) * 5
    return (time_ns, host, None, Direction.MARK.value, verdict, *nothing, payload, min(size, SIZE_LIMIT))


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    """At least one row, in the order of ``SCHEMA``, as a batch."""
    columns = []
    for field, values in zip(SCHEMA, zip(*rows, strict=True), strict=True):
        if field.name == "seq":
            columns.append(pa.array(values, pa.uint64()).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def parts_of(datagram: bytes, integrity: Integrity) -> tuple[str, Parts]:
    """The verdict of ``integrity`` on a datagram, and its parts; of a rejected datagram those that can be read."""
    try:
        src, seq, channel, _, payload_at = integrity.open(datagram)
    except WireError as error:
        return str(error.verdict), _readable(datagram)
    bracket = datagram[: datagram.find(b"]")]
    mode = NO_SUM if b":" not in bracket else "hmac" if b":hmac=" in bracket else "crc32"
    return Verdict.OK, (mode, src.decode(), seq, channel.decode(), datagram[payload_at:])


def _readable(datagram: bytes) -> Parts:
    """The parts as the recorder reads them: without a sound header, all of the datagram is payload."""
    packet = b"RECV - 0 -\0" + datagram
    with mmap(-1, len(packet)) as memory:
        memory[:] = packet
        parts = columns(memory, [0], [len(packet)])
    if not parts.sound[0]:
        return None, None, None, None, datagram
    mode, src, chan = (words[1][0].decode() for words in (parts.mode, parts.src, parts.chan))
    return mode or NO_SUM, src, int.from_bytes(parts.seq, byteorder), chan, parts.payload


def of_recorded(batch: pa.RecordBatch, host: str) -> pa.RecordBatch:
    """Rows of a recorded file of the host (``bccnd.recorder.layout``) as ``SCHEMA``."""
    columns = {name: batch[name].cast(SCHEMA.field(name).type) for name in batch.schema.names}
    columns["host"] = pa.repeat(host, len(batch))
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)
