"""The recorded layout as Spark's sources here give it: one row per datagram, and marks between them.

The columns are those of recorded files (``bccnd.recorder``) as Spark reads them: seq as decimal(20,0), so that the
numbers from 2^63 on survive, and ``host``, which recorded files have in their path. Marks have the direction "" and
the verdicts ``opened``, ``closed``, ``unrecorded`` (``size``: how many datagrams are missing there) and, only from
captures, ``broken`` (``payload``: JSON, path and reason).
"""

from typing import Any

import pyarrow as pa

from bccnd.errors import WireError
from bccnd.wire.bccn1 import Integrity

ROWS = (
    "time_ns bigint, host string, interface string, direction string, verdict string, mode string, peer string, "
    "src string, seq decimal(20,0), channel string, payload binary, size int"
)
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
        ("seq", pa.decimal128(20, 0)),
        ("channel", pa.string()),
        ("payload", pa.binary()),
        ("size", pa.int32()),
    ]
)

OK = "ok"
IN, OUT, LOCAL, ECHO = "in", "out", "local", "echo"
OPENED, CLOSED, UNRECORDED, BROKEN = "opened", "closed", "unrecorded", "broken"

BATCH_ROWS = 16_384  # of one Arrow batch: some MB with payloads as large as they may be
SIZE_LIMIT = 2**31 - 1  # of the column ``size``

Row = tuple[Any, ...]
Parts = tuple[
    str | None, str | None, int | None, str | None, bytes | None
]  # mode, src, seq, channel, payload


def mark(time_ns: int, host: str, verdict: str, size: int = 0, payload: bytes | None = None) -> Row:
    return (time_ns, host, None, "", verdict, None, None, None, None, None, payload, min(size, SIZE_LIMIT))


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    """``rows`` in the order of ``SCHEMA``, at least one."""
    columns = []
    for field, values in zip(SCHEMA, zip(*rows, strict=True), strict=True):
        if field.name == "seq":
            columns.append(pa.array(values, pa.uint64()).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def parts_of(datagram: bytes, integrity: Integrity) -> tuple[str, Parts]:
    """The verdict of ``integrity`` on a datagram, and its parts; where it is rejected, those that can be read."""
    try:
        src, seq, channel, _, payload_at = integrity.open(datagram)
    except WireError as error:
        return str(error.reason), _readable(datagram)
    parts = (_mode(datagram), src.decode(), seq, channel.decode(), datagram[payload_at:])
    return OK, parts


def _mode(datagram: bytes) -> str:
    bracket = datagram[: datagram.find(b"]")]
    return "none" if b":" not in bracket else "hmac" if b":hmac=" in bracket else "crc32"


def _readable(datagram: bytes) -> Parts:
    """What stands in a rejected datagram; None for what does not, or is no text."""
    head, bar, payload = datagram.partition(b"|")
    bracket, close, fields = head.partition(b"]")
    mode = _mode(datagram) if close and bracket.startswith(b"BCCN") else None
    parts = fields.split(b":")
    if mode is None or not bar or len(parts) != 3 or not head.isascii():
        return mode, None, None, None, None
    src, digits, channel = parts
    seq = int(digits) if digits.isdigit() and len(digits) <= 20 else None
    return mode, src.decode(), seq if seq is not None and seq < 2**64 else None, channel.decode(), payload
