"""The packets of a fyrehose backbone and its clients (``bccnd/wire/FYREHOSE.md``).

    0x01 DELIVER    LENGTH 2, SEQUENCE 6, DATA                     a message with its number
    0x02 PUSH       LENGTH 2, unused 6, DATA                       a message without one
    0x04 REQUEST    ADDR 4, PORT 2, FROM 6, TO 6                   numbers that a client misses
    0x08 FORWARD    ADDR 4, PORT 2, FROM 6, TO 6                   the same, passed on to who may keep them
    0x10 KEEPALIVE  ADDR 4, PORT 2, FLAGS 6, TOKEN 16              a client is there
    0x20 ACK        TOKEN 16                                       the backbone is, too

A packet is one UDP datagram over IPv4; its first byte says what it is, and numbers are big-endian. A PUSH and the
DELIVER of the same data have the same length, so a backbone turns one into the other where it lies (``number``).
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import ClassVar

from bccnd.errors import FyrehoseError

DELIVER, PUSH, REQUEST, FORWARD, KEEPALIVE, ACK = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20

# Bytes before the data of a message.
HEAD_BYTES = 9
# Bytes of a UDP datagram over IPv4: 65535 less 20 of the IP header and 8 of the UDP header.
PACKET_LIMIT = 65_507
# The published text says 65526, as if there were no IP and no UDP.
DATA_LIMIT = PACKET_LIMIT - HEAD_BYTES
# Sequence numbers and flags have six bytes.
SEQ_LIMIT = 1 << 48
TOKEN_BYTES = 16
# Of a TOKEN that proves a key: what its sender chooses, and as much of an HMAC-SHA-256 of it.
PROOF_BYTES = 8

# Of a KEEPALIVE; other flags are ignored.
NOSUBSCRIBE, NOJOURNAL = 0x1, 0x2

_MESSAGE = Struct(">BHHI")  # kind, LENGTH, SEQUENCE: its upper 2 bytes, its lower 4
_NUMBERS = Struct(">B4sHHIHI")  # kind, ADDR, PORT, FROM, TO
_KEEPALIVE = Struct(">B4sHHI16s")  # kind, ADDR, PORT, FLAGS, TOKEN

# An IPv4 address in 4 bytes, and a port.
Address = tuple[bytes, int]

# For "where this came from", in a packet that names an address.
ITSELF: Address = bytes(4), 0


@dataclass(frozen=True, slots=True)
class Deliver:
    """A message. It is published once its sender gets this."""

    kind: ClassVar[int] = DELIVER
    seq: int
    data: bytes

    def serialize(self) -> bytes:
        return _MESSAGE.pack(DELIVER, _counted(self.data), *_halves(self.seq)) + self.data


@dataclass(frozen=True, slots=True)
class Push:
    """A message to be numbered and delivered."""

    kind: ClassVar[int] = PUSH
    data: bytes

    def serialize(self) -> bytes:
        return _MESSAGE.pack(PUSH, _counted(self.data), 0, 0) + self.data


@dataclass(frozen=True, slots=True)
class _Asking:
    """``first`` to ``last``: the numbers that ``address`` misses, both included."""

    kind: ClassVar[int]
    address: Address
    first: int
    last: int

    def serialize(self) -> bytes:
        return _NUMBERS.pack(self.kind, *_place(self.address), *_halves(self.first), *_halves(self.last))


class Request(_Asking):
    """A client misses these numbers."""

    kind = REQUEST
    __slots__ = ()


class Forward(_Asking):
    """The same, for a client that may keep them and sends them to ``address``."""

    kind = FORWARD
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Keepalive:
    """``address``: where the client is; ``token``: what the acknowledgement repeats."""

    kind: ClassVar[int] = KEEPALIVE
    address: Address
    flags: int
    token: bytes

    def serialize(self) -> bytes:
        _require_size(len(self.token), TOKEN_BYTES)
        return _KEEPALIVE.pack(KEEPALIVE, *_place(self.address), *_halves(self.flags), self.token)


@dataclass(frozen=True, slots=True)
class Ack:
    """The acknowledgement of a KEEPALIVE."""

    kind: ClassVar[int] = ACK
    token: bytes

    def serialize(self) -> bytes:
        _require_size(len(self.token), TOKEN_BYTES)
        return bytes([ACK]) + self.token


Packet = Deliver | Push | Request | Forward | Keepalive | Ack


def parse(packet: bytes) -> Packet:
    """Raises ``FyrehoseError`` for what is none."""
    kind = packet[0] if packet else 0
    size = len(packet)
    if kind in (DELIVER, PUSH):
        check_length(packet, 0, size)
        _, _, high, low = _MESSAGE.unpack_from(packet)
        data = packet[HEAD_BYTES:]
        return Push(data) if kind == PUSH else Deliver(high << 32 | low, data)
    if kind in (REQUEST, FORWARD):
        _require_size(size, _NUMBERS.size)
        _, addr, port, first_high, first_low, last_high, last_low = _NUMBERS.unpack(packet)
        first, last = first_high << 32 | first_low, last_high << 32 | last_low
        if first > last:
            raise FyrehoseError("range", f"from {first} to {last}")
        return (Request if kind == REQUEST else Forward)((addr, port), first, last)
    if kind == KEEPALIVE:
        _require_size(size, _KEEPALIVE.size)
        _, addr, port, high, low, token = _KEEPALIVE.unpack(packet)
        return Keepalive((addr, port), high << 32 | low, token)
    if kind == ACK:
        _require_size(size, 1 + TOKEN_BYTES)
        return Ack(packet[1:])
    raise FyrehoseError("kind", f"{kind:#04x}" if packet else "an empty datagram")


def check_length(memory: "bytes | memoryview", start: int, end: int) -> None:
    """Raises ``FyrehoseError`` unless the LENGTH of the PUSH or DELIVER at this span is right.

    It counts the data. One that counts the whole packet, 9 more, is taken too: the published limit of 65526 bytes of
    data is what such a LENGTH could say, so somebody may have read it like that.
    """
    size = end - start
    if size < HEAD_BYTES or size > PACKET_LIMIT:
        raise FyrehoseError("size", f"{size} bytes")
    length = memory[start + 1] << 8 | memory[start + 2]
    if length != size - HEAD_BYTES and length != size:
        raise FyrehoseError("length", f"says {length}, has {size - HEAD_BYTES}")


def number(memory: "bytearray | memoryview", starts: Sequence[int], ends: Sequence[int], seq: int) -> int:
    """Turn the PUSHes at these spans, one after the other, into the DELIVERs of their data, numbered from ``seq`` on.

    Returns how many: it stops at the first packet that is no sound PUSH, and before a number of more than six bytes.
    """
    count = 0
    for start, end in zip(starts, ends[: max(0, SEQ_LIMIT - seq)], strict=False):
        size = end - start
        if not HEAD_BYTES <= size <= PACKET_LIMIT:
            break
        kind, length, _, _ = _MESSAGE.unpack_from(memory, start)
        if kind != PUSH or (length != size - HEAD_BYTES and length != size):
            break
        _MESSAGE.pack_into(memory, start, DELIVER, size - HEAD_BYTES, seq >> 32, seq & 0xFFFF_FFFF)
        seq += 1
        count += 1
    return count


def token_of(key: bytes, chosen: bytes) -> bytes:
    """The TOKEN that proves to know ``key``; ``chosen`` are any 8 bytes, such as a time."""
    return chosen + hmac.digest(key, chosen, hashlib.sha256)[:PROOF_BYTES]


def proves(token: bytes, keys: Sequence[bytes]) -> bool:
    """Whether the sender of ``token`` knows one of ``keys``."""
    chosen = token[:PROOF_BYTES]
    return any(hmac.compare_digest(token, token_of(key, chosen)) for key in keys)


def _counted(data: bytes) -> int:
    if len(data) > DATA_LIMIT:
        raise FyrehoseError("size", f"{len(data)} bytes of data, at most {DATA_LIMIT}")
    return len(data)


def _halves(number: int) -> tuple[int, int]:
    if not 0 <= number < SEQ_LIMIT:
        raise FyrehoseError("number", f"{number} has more than six bytes")
    return number >> 32, number & 0xFFFF_FFFF


def _place(address: Address) -> Address:
    addr, port = address
    if len(addr) != 4 or not 0 <= port <= 0xFFFF:
        raise FyrehoseError("address", f"{addr.hex()} port {port}")
    return address


def _require_size(size: int, wanted: int) -> None:
    if size != wanted:
        raise FyrehoseError("size", f"{size} bytes, not {wanted}")
