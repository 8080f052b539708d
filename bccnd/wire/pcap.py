"""Capture files: pcap and pcapng are read, pcapng is written (RFC drafts draft-ietf-opsawg-pcap and -pcapng).

    pcap    a file header (24 bytes), then for each packet a record header (16 bytes) and its bytes
    pcapng  blocks: type, length, body, length again; a section begins with its byte order and describes interfaces

``Reader`` takes a file in pieces of any size, as a pipe has them, and returns the packets that are complete.
``header`` and ``Packet.serialize`` make a file, with nanoseconds and, for each packet, a comment, the direction and
how many packets are missing before it; Wireshark shows all of these.

Every length is checked before memory is taken for it. At most one block of ``BLOCK_LIMIT`` bytes is kept; larger
blocks, which hold no packets, are skipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import error, pack, unpack_from

from bccnd.errors import CaptureError

# Bytes of one packet: the largest snapshot length that tcpdump takes.
PACKET_LIMIT = 262_144
# Bytes of a pcapng block: a packet and its options.
BLOCK_LIMIT = PACKET_LIMIT + 65_536
# More than a host has, and still little to remember for a pcapng section.
INTERFACES_LIMIT = 4096
# Nanoseconds: the year 2554, within what a calendar can show.
TIME_LIMIT = 2**64

# IPv4 or IPv6 without a header of the link.
LINKTYPE_RAW = 101

# Classic pcap: byte order, and nanoseconds per unit of the fraction.
_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_FILE_HEADER = 24
_RECORD_HEADER = 16
# The same in both byte orders.
_SECTION = b"\x0a\x0d\x0d\x0a"
_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_BYTE_ORDER = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
# The type, and the length twice.
_BLOCK_LEAST = 12

# Types of blocks.
_INTERFACE, _SIMPLE_PACKET, _ENHANCED_PACKET = 1, 3, 6
# Options: of any block, and of each type.
_END, _COMMENT = 0, 1
_SECTION_PROGRAM = 4
_INTERFACE_NAME, _INTERFACE_RESOLUTION, _INTERFACE_OFFSET = 2, 9, 14
_PACKET_FLAGS, _PACKET_DROPS = 2, 4


class Direction(IntEnum):
    """The two low bits of ``epb_flags``."""

    UNKNOWN = 0
    IN = 1
    OUT = 2


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet of a capture. ``time_ns``: Unix time; ``length``: on the link, at least that of ``data``.

    ``missing``: packets that were lost directly before it, as far as the file says.
    """

    time_ns: int
    data: bytes
    length: int
    linktype: int = LINKTYPE_RAW
    comment: str = ""
    direction: Direction = Direction.UNKNOWN
    missing: int = 0

    def serialize(self) -> bytes:
        """A pcapng block, little-endian. It has the link type of the file's only interface."""
        options = []
        if self.comment:
            options.append((_COMMENT, self.comment.encode("utf-8", "backslashreplace")))
        if self.direction:
            options.append((_PACKET_FLAGS, _pack("I", self.direction)))
        if self.missing:
            options.append((_PACKET_DROPS, _pack("Q", self.missing)))
        high, low = divmod(self.time_ns, 2**32)
        head = _pack("IIIII", 0, high, low, len(self.data), self.length)
        return _block(_ENHANCED_PACKET, head + _padded(self.data) + _options(options))


def header(program: str, interface: str) -> bytes:
    """How a file begins that goes on with ``Packet.serialize``: one section, one interface of link type RAW."""
    section = _pack("IHHq", _BYTE_ORDER_MAGIC, 1, 0, -1) + _options([(_SECTION_PROGRAM, program.encode())])
    options = [(_INTERFACE_NAME, interface.encode()), (_INTERFACE_RESOLUTION, bytes([9]))]
    described = _pack("HHI", LINKTYPE_RAW, 0, 0) + _options(options)
    return _block(int.from_bytes(_SECTION), section) + _block(_INTERFACE, described)


class Reader:
    """Takes a capture apart as it comes. Exhaust each iterator of ``feed`` before you call it again."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skip = 0  # bytes still to come of a block that is skipped
        self._order = ""  # "<" or ">", once known
        self._fraction = 0  # pcap: nanoseconds per unit; 0: pcapng
        self._linktype = 0
        self._interfaces: list[_Interface] = []

    def feed(self, data: bytes) -> Iterator[Packet]:
        """The packets that ``data`` completes. Raises ``CaptureError`` behind the last one before a fault."""
        passed = min(self._skip, len(data))
        self._skip -= passed
        buffer = self._buffer
        buffer += memoryview(data)[passed:]
        at = 0
        try:
            while size := self._next_size(buffer, at):
                if len(buffer) - at < size:
                    if size > BLOCK_LIMIT:  # no packet is in it
                        self._skip = size - (len(buffer) - at)
                        at = len(buffer)
                    break
                if size <= BLOCK_LIMIT and (packet := self._take(bytes(buffer[at : at + size]))):
                    yield packet
                at += size
        finally:
            del buffer[:at]

    def finish(self) -> None:
        """The file ends here. Raises ``CaptureError`` if it must not; an incomplete packet was not returned."""
        if not self._order:
            raise CaptureError("not a capture file: neither pcap nor pcapng")
        if self._buffer or self._skip:
            raise CaptureError("ends in the middle of a packet; those before it are complete")

    def _next_size(self, buffer: bytearray, at: int) -> int:
        """The length of the next file header, record or block; 0 while it is not known."""
        have = len(buffer) - at
        if not self._order:
            return self._first_size(buffer)
        if self._fraction:
            if have < _RECORD_HEADER:
                return 0
            kept, length = unpack_from(f"{self._order}II", buffer, at + 8)
            if kept > PACKET_LIMIT or length < kept:
                raise CaptureError(f"a packet of {length} bytes with {kept} captured is impossible")
            return _RECORD_HEADER + int(kept)
        if have < _BLOCK_LEAST:
            return 0
        if buffer[at : at + 4] == _SECTION:
            self._order = _section_order(buffer, at)
            self._interfaces = []
        kind, size = unpack_from(f"{self._order}II", buffer, at)
        if size < _BLOCK_LEAST or size % 4:
            raise CaptureError(f"a block of {size} bytes is impossible")
        if size > BLOCK_LIMIT and kind in (_INTERFACE, _SIMPLE_PACKET, _ENHANCED_PACKET):
            raise CaptureError(f"a packet of {size} bytes is above the limit of {BLOCK_LIMIT}")
        return int(size)

    def _first_size(self, buffer: bytearray) -> int:
        start = bytes(buffer[:4])
        if start == _SECTION:
            if len(buffer) >= _BLOCK_LEAST:
                self._order = _section_order(buffer, 0)
                return self._next_size(buffer, 0)
        elif start in _MAGICS:
            if len(buffer) >= _FILE_HEADER:
                return _FILE_HEADER
        elif not any(magic.startswith(start) for magic in [_SECTION, *_MAGICS]):
            raise CaptureError("not a capture file: neither pcap nor pcapng")
        return 0

    def _take(self, whole: bytes) -> Packet | None:
        """The packet in the bytes that ``_next_size`` measured, if there is one."""
        if not self._order:
            self._order, self._fraction = _MAGICS[whole[:4]]
            self._linktype = unpack_from(f"{self._order}I", whole, 20)[0] & 0xFFFF  # above it: FCS length
            return None
        if self._fraction:
            seconds, fraction, _, length = unpack_from(f"{self._order}IIII", whole)
            time_ns = seconds * 10**9 + fraction * self._fraction
            return Packet(time_ns, whole[_RECORD_HEADER:], length, self._linktype)
        return self._take_block(whole)

    def _take_block(self, whole: bytes) -> Packet | None:
        kind = unpack_from(f"{self._order}I", whole)[0]
        if whole[4:8] != whole[-4:]:
            raise CaptureError("a block has two different lengths")
        body = whole[8:-4]
        try:
            if kind == _ENHANCED_PACKET:
                return self._enhanced_packet(body)
            if kind == _SIMPLE_PACKET:
                return self._simple_packet(body)
            if kind == _INTERFACE:
                self._take_interface(body)
        except error:
            raise CaptureError(f"a block of type {kind} with {len(body)} bytes is too short") from None
        return None

    def _take_interface(self, body: bytes) -> None:
        if len(self._interfaces) >= INTERFACES_LIMIT:
            raise CaptureError(f"more than {INTERFACES_LIMIT} interfaces")
        linktype, _, snapshot = unpack_from(f"{self._order}HHI", body)
        units, offset = 10**6, 0
        for code, value in _options_of(self._order, body[8:]):
            if code == _INTERFACE_RESOLUTION and len(value) == 1:
                units = 2 ** (value[0] & 127) if value[0] & 128 else 10 ** value[0]
            elif code == _INTERFACE_OFFSET and len(value) == 8:
                (offset,) = unpack_from(f"{self._order}q", value)
        self._interfaces.append(_Interface(linktype, snapshot, units, offset))

    def _interface(self, number: int) -> "_Interface":
        if number >= len(self._interfaces):
            raise CaptureError(f"a packet of interface {number}, which the file does not describe")
        return self._interfaces[number]

    def _simple_packet(self, body: bytes) -> Packet:
        """Such a packet has no time: it gets 0."""
        (length,) = unpack_from(f"{self._order}I", body)
        interface = self._interface(0)
        kept = min(length, interface.snapshot or length)
        if kept > len(body) - 4:
            raise CaptureError(f"a packet of {kept} bytes in a block that is shorter")
        return Packet(0, body[4 : 4 + kept], length, interface.linktype)

    def _enhanced_packet(self, body: bytes) -> Packet:
        number, high, low, kept, length = unpack_from(f"{self._order}IIIII", body)
        interface = self._interface(number)
        if kept > len(body) - 20 or length < kept:
            raise CaptureError(f"a packet of {kept} bytes in a block that is shorter")
        time_ns = interface.time_ns(high << 32 | low)
        comment, flags, missing = "", 0, 0
        for code, value in _options_of(self._order, body[20 + kept + -kept % 4 :]):
            if code == _COMMENT and not comment:
                comment = value.decode("utf-8", "backslashreplace")
            elif code == _PACKET_FLAGS and len(value) == 4:
                (flags,) = unpack_from(f"{self._order}I", value)
            elif code == _PACKET_DROPS and len(value) == 8:
                (missing,) = unpack_from(f"{self._order}Q", value)
        direction = Direction(flags & 3) if flags & 3 != 3 else Direction.UNKNOWN
        return Packet(time_ns, body[20 : 20 + kept], length, interface.linktype, comment, direction, missing)


@dataclass(frozen=True, slots=True)
class _Interface:
    linktype: int
    snapshot: int  # 0: no limit
    units: int  # per second
    offset: int  # seconds

    def time_ns(self, stamp: int) -> int:
        time_ns = stamp * 10**9 // self.units + self.offset * 10**9
        if not 0 <= time_ns < TIME_LIMIT:
            raise CaptureError("a time beyond the year 2554, or before 1970")
        return time_ns


def _section_order(buffer: bytearray, at: int) -> str:
    order = _BYTE_ORDER.get(bytes(buffer[at + 8 : at + 12]))
    if order is None:
        raise CaptureError("a section without a byte order")
    return order


def _padded(data: bytes) -> bytes:
    """Padded to four bytes, as everything is in pcapng."""
    return data + bytes(-len(data) % 4)


def _pack(layout: str, *values: int) -> bytes:
    return pack(f"<{layout}", *values)


def _block(kind: int, body: bytes) -> bytes:
    size = _BLOCK_LEAST + len(body)
    return _pack("II", kind, size) + body + _pack("I", size)


def _options(options: list[tuple[int, bytes]]) -> bytes:
    if not options:
        return b""
    parts = [_pack("HH", code, len(value[:0xFFFF])) + _padded(value[:0xFFFF]) for code, value in options]
    return b"".join([*parts, _pack("HH", _END, 0)])


def _options_of(order: str, data: bytes) -> Iterator[tuple[int, bytes]]:
    """The options up to the first broken one: a packet with broken options is still a packet."""
    at = 0
    while at + 4 <= len(data):
        code, size = unpack_from(f"{order}HH", data, at)
        if code == _END or at + 4 + size > len(data):
            return
        yield code, data[at + 4 : at + 4 + size]
        at += 4 + size + -size % 4
