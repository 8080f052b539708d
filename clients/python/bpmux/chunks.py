"""The chunks of bpmux/rel (``clients/BPMUX.md``), and where each begins in a stream of bytes.

A chunk is a tag, an id, a number and a payload, most without one or the other. The upper four bits of the tag are its
type. Two numbers of two bits follow: how wide the id is, and how wide the number (1, 2, 4 or 8 bytes). Where the
first is 3 there is no id, and the chunk is of the top level or means something else.

A chunk is given as ``(kind, id, number)``; ``number`` is the length of its payload, an amount of credit or a total.
Kinds below 16 are the types; 16 + a type is its other meaning. A name without PEER is about what the sender of the
chunk opened, one with PEER about what its receiver opened.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct

from bpmux.errors import BpmuxError

(
    CANCEL_REQUEST, CLOSE_RESPONSE, CANCEL, CANCEL_PEER, CLOSE, CLOSE_PEER, MESSAGE, MESSAGE_PEER,
    REQUEST, RESPONSE, SINK, STREAM, DUPLEX, PING, CREDIT, CREDIT_PEER,
) = range(16)  # fmt: skip

ACK_CANCEL_REQUEST, ACK_CLOSE_RESPONSE = 16 + CANCEL_REQUEST, 16 + CLOSE_RESPONSE
ACK_CLOSE, ACK_CANCEL = 16 + CANCEL_PEER, 16 + CLOSE_PEER
ACK_CLOSE_PEER, ACK_CANCEL_PEER = 16 + STREAM, 16 + SINK
PING_REQUEST, PONG_REQUEST = 16 + DUPLEX, 16 + MESSAGE_PEER
PONG, PARTIAL = 16 + PING, 16 + CREDIT_PEER
# The bit in the middle of the tag of a heartbeat.
PING_PEER, PONG_PEER = 32, 33

NAMES = {
    value: name.lower().replace("_", "-")
    for name, value in list(globals().items())
    if name.isupper() and isinstance(value, int)
}

# The id of the top level, which has none on the wire.
TOP = -1
# Exclusive.
ID_LIMIT = 1 << 32
# Of a payload, an amount or a total, exclusive; and of all the credit that somebody has at a time.
NUMBER_LIMIT = 1 << 64
# A tag, an id of 4 bytes and a number of 8: no more of a chunk is ever kept back.
HEAD_LIMIT = 13

PAYLOAD_KINDS = frozenset(range(CANCEL_REQUEST, PING))
# What can be about the top level.
TOP_KINDS = frozenset({CANCEL, CLOSE, MESSAGE, CREDIT, PING, PONG})

_WIDTHS = "BHIQ"
# Of a number with so many bits.
_WIDTH_OF_BITS = bytes([0] * 9 + [1] * 8 + [2] * 16 + [3] * 32)
_FORMS = [[Struct(f">B{ident}{number}").pack for number in _WIDTHS] for ident in _WIDTHS]
_HEARTBEATS = (PING, PING_PEER, PONG, PONG_PEER)

# (kind, bytes of the head, how to read id and number, whether a payload follows); None: no chunk begins so.
_Head = tuple[int, int, Callable[[bytes, int], tuple[int, int]], bool]


def _heads() -> "tuple[_Head | None, ...]":
    return tuple(_head_of(tag >> 4, tag >> 2 & 3, tag & 3) for tag in range(256))


def _head_of(kind: int, first: int, second: int) -> "_Head | None":
    if kind == PING:
        return _heartbeat_head(_HEARTBEATS[first], second)
    if first < 3:
        both = Struct(f">x{_WIDTHS[first]}{_WIDTHS[second]}")
        return kind, both.size, both.unpack_from, kind in PAYLOAD_KINDS
    if kind in (REQUEST, RESPONSE):
        return None
    one = Struct(f">x{_WIDTHS[second]}")
    if kind in TOP_KINDS:
        return kind, one.size, lambda data, at: (TOP, one.unpack_from(data, at)[0]), kind != CREDIT
    if kind == CREDIT_PEER:
        return PARTIAL, one.size, lambda data, at: (TOP, one.unpack_from(data, at)[0]), False
    if second == 3:
        return None
    return 16 + kind, one.size, lambda data, at: (one.unpack_from(data, at)[0], 0), False


def _heartbeat_head(kind: int, width: int) -> "_Head | None":
    if width == 3:
        return (kind, 1, lambda _data, _at: (TOP, 0), False) if kind in TOP_KINDS else None
    one = Struct(f">x{_WIDTHS[width]}")
    return kind, one.size, lambda data, at: (one.unpack_from(data, at)[0], 0), False


HEADS = _heads()


def head(kind: int, ident: int, number: int = 0) -> bytes:
    """The bytes of a chunk up to its payload, in the narrowest form."""
    if kind in _HEARTBEATS:
        tag = PING << 4 | _HEARTBEATS.index(kind) << 2
        if ident == TOP and kind in TOP_KINDS:
            return bytes([tag | 3])
        return _wide(tag, ident, ID_LIMIT)
    if kind == PARTIAL:
        return _wide(CREDIT_PEER << 4 | 3 << 2, number, NUMBER_LIMIT)
    if kind >= 16:
        return _wide(kind - 16 << 4 | 3 << 2, ident, ID_LIMIT)
    if ident == TOP and kind in TOP_KINDS:
        return _wide(kind << 4 | 3 << 2, number, NUMBER_LIMIT)
    width, end = _width(ident, ID_LIMIT), _width(number, NUMBER_LIMIT)
    return _FORMS[width][end](kind << 4 | width << 2 | end, ident, number)


def _wide(tag: int, number: int, limit: int) -> bytes:
    width = _width(number, limit)
    return Struct(f">B{_WIDTHS[width]}").pack(tag | width, number)


def _width(number: int, limit: int) -> int:
    if not 0 <= number < limit:
        raise ValueError(f"{number} is not below {limit}")
    return _WIDTH_OF_BITS[number.bit_length()]


@dataclass(frozen=True, slots=True)
class Chunk:
    """One whole chunk, for those who look at bytes. ``number``: of a chunk with a payload, its length."""

    kind: int
    id: int = TOP
    number: int = 0
    payload: bytes = b""

    def serialize(self) -> bytes:
        carries = self.kind in PAYLOAD_KINDS
        return head(self.kind, self.id, len(self.payload) if carries else self.number) + self.payload


class Reader:
    """Takes a stream of bytes apart, however it is cut. It keeps what was not asked for, and else no payload."""

    __slots__ = ("_at", "_data", "_rest")

    def __init__(self) -> None:
        self._data = b""
        self._at = 0  # where in it the first chunk begins that was not given
        self._rest = 0

    @property
    def unread(self) -> int:
        """Bytes of chunks that were not given: after the last one, of a head that has not come as a whole."""
        return len(self._data) - self._at

    def feed(self, data: bytes) -> Iterator[tuple[int, int, int, bytes, int]]:
        """``(kind, id, number, piece, rest)`` of each chunk, as much of its payload as is here, and how much is not.

        What comes of that payload later has the kind -1. Raises ``BpmuxError`` at a tag with which no chunk begins;
        whoever iterates has had all before it. Whoever stops before the end has the others with the next call.
        """
        if self._at < len(self._data):
            data = self._data[self._at :] + data
        self._data = data
        self._at = at = min(self._rest, len(data))
        end = len(data)
        if at:
            self._rest -= at
            yield -1, 0, 0, data[:at], self._rest
        while at < end:
            known = HEADS[data[at]]
            if known is None:
                raise BpmuxError("tag", f"no chunk begins with {data[at]:#04x}")
            kind, size, read, carries = known
            start = at + size
            if start > end:
                break
            ident, number = read(data, at)
            if carries:
                at = start + number
                if at > end:
                    self._rest, at = at - end, end
                self._at = at
                yield kind, ident, number, data[start:at], self._rest
            else:
                self._at = at = start
                yield kind, ident, number, b"", 0
        self._data, self._at = data[at:], 0


def parse(data: bytes) -> list[Chunk]:
    """The chunks of a string of bytes that ends with one."""
    reader = Reader()
    chunks = []
    for kind, ident, number, piece, rest in reader.feed(data):
        if rest:
            raise BpmuxError("cut", f"{rest} bytes of a payload are missing")
        chunks.append(Chunk(kind, ident, number, piece))
    if reader.unread:
        raise BpmuxError("cut", "the last chunk is not whole")
    return chunks
