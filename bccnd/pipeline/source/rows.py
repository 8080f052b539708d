"""The recorded layout as Spark's sources here give it: one row per datagram, and marks between them.

The columns are those of recorded files (``bccnd.recorder``) as Spark reads them: seq as decimal(20,0), so that the
numbers from 2^63 on survive, and ``host``, which recorded files have in their path. Marks have the direction "" and
the verdicts ``opened``, ``closed``, ``unrecorded`` (``size``: how many datagrams are missing there) and, only from
captures, ``broken`` (``payload``: JSON, path and reason).
"""

from collections.abc import Callable, Sequence
from sys import byteorder
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import bccn
from bccnd.errors import WireError
from bccnd.wire.bccn1 import Integrity
from bccnd.wire.columns import Columns, Words, columns
from bccnd.wire.sbus import NOWHERE

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

OK, OWN, DUPLICATE = "ok", "own", "duplicate"
OURS = "local"  # the peer of what this host sends
NO_SUM = "none"
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
    bracket = datagram[: datagram.find(b"]")]
    mode = NO_SUM if b":" not in bracket else "hmac" if b":hmac=" in bracket else "crc32"
    return OK, (mode, src.decode(), seq, channel.decode(), datagram[payload_at:])


def _readable(datagram: bytes) -> Parts:
    """As the tap's packets are read: all of it is payload where there is no sound header."""
    packet = b"RECV - 0 -\0" + datagram
    parts = columns(packet, [0], [len(packet)])
    if not parts.sound[0]:
        return None, None, None, None, datagram
    mode, src, chan = (words[1][0].decode() for words in (parts.mode, parts.src, parts.chan))
    return mode or NO_SUM, src, int.from_bytes(parts.seq, byteorder), chan, parts.payload


def tapped(tap: Columns, host: str, local: Sequence[str]) -> pa.RecordBatch:
    """Packets of a tap as rows. ``local``: the patterns of channels that stay on the host."""
    sound = _numbers(pa.uint8(), tap.rows, tap.sound).cast(pa.bool_())
    nothing = pa.scalar(None, pa.string())
    ours = _each(tap.peer, tap.rows, lambda peer: peer == OURS)
    echo = _each(tap.verdict, tap.rows, lambda verdict: verdict == OWN)
    # An own one that comes back is a duplicate once its sender has left.
    again = _each(tap.verdict, tap.rows, lambda verdict: verdict == DUPLICATE)
    of_host = _each(tap.src, tap.rows, lambda src: src == host or src.startswith(f"{host}/"))
    stays = _each(tap.chan, tap.rows, lambda chan: any(bccn.matches(pattern, chan) for pattern in local))
    direction = pc.case_when(
        pc.make_struct(pc.and_(ours, stays), ours, pc.or_(echo, pc.and_(again, of_host))),
        LOCAL,
        OUT,
        ECHO,
        IN,
    )
    parts = [
        pc.if_else(sound, _each(words, tap.rows, lambda word: word), nothing) for words in (tap.src, tap.chan)
    ]
    return pa.RecordBatch.from_arrays(
        [
            _numbers(pa.int64(), tap.rows, tap.time_ns),
            pa.repeat(host, tap.rows),
            _each(tap.interface, tap.rows, lambda name: None if name == NOWHERE.decode() else name),
            direction,
            _each(tap.verdict, tap.rows, lambda verdict: verdict),
            pc.if_else(sound, _each(tap.mode, tap.rows, lambda mode: mode or NO_SUM), nothing),
            _each(tap.peer, tap.rows, lambda peer: None if peer == OURS else peer),
            parts[0],
            pc.if_else(sound, _numbers(pa.uint64(), tap.rows, tap.seq), pa.scalar(None, pa.uint64())).cast(SEQ),
            parts[1],
            pa.Array.from_buffers(
                pa.binary(), tap.rows, [None, pa.py_buffer(tap.payload_at), pa.py_buffer(tap.payload)]
            ),
            _numbers(pa.int32(), tap.rows, tap.size),
        ],
        schema=SCHEMA,
    )  # fmt: skip


def _numbers(kind: pa.DataType, rows: int, content: bytes) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(content)])


def _each(words: Words, rows: int, meant: Callable[[str], Any]) -> pa.Array:
    """A column of what each distinct word means."""
    numbers, known = words
    kind = pa.bool_() if isinstance(meant(""), bool) else pa.string()
    values = pa.array([meant(word.decode("utf-8", "backslashreplace")) for word in known], kind)
    return values.take(_numbers(pa.int32(), rows, numbers))
