"""The local bus: packets on a SOCK_SEQPACKET socket (``clients/PROTOCOL.md``, "Packets").

    SUB <pattern>[NUL ignored]      UNSUB <pattern>[NUL ignored]      MSG <chan> NUL <payload>
    CMSG <key>[NUL <value>]         PACK (u32 length, packet)...      BCCN1[...]... (a whole datagram)
    RECV <peer> <unix_ns> <verdict>[ <interface>] NUL <datagram>      (to a client that asked for ``full``, or taps)

One packet is one message, except for a PACK, which holds several for clients that agreed to it. ``parse`` takes any
packet apart, and each kind has its ``serialize``. The relay judges channels and patterns, not this module.

Shells end SUB, UNSUB and CMSG in LF or CRLF, which is dropped. A CMSG without a NUL may have a space instead.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Protocol, Self

from bccnd.errors import FramingError, PacketError

LENGTH = Struct(">I")
PACK = b"PACK "
# Public sbus delivers a message on a key below ``!/cred/`` to one process alone, and its sender trusts that. Here it
# would be a directed channel, in clear on the segment; and no name begins with a "/".
SECRET = b"!/"
# In place of an interface: from a client of this host, or by a binding without an interface.
NOWHERE = b"-"
# Bytes of a text with escapes in a line: more than any datagram has. An escape takes time, and four bytes for one.
SHOWN_LIMIT = 4096
# Several times the longest control key.
KEY_LIMIT = 64
# The length of the longest channel.
PATTERN_LIMIT = 1024
# As many as 64 bits of nanoseconds can have; int() of thousands of digits is an error of its own.
TIME_DIGITS = 20


class Memory(Protocol):
    """A writable buffer whose slices are bytes, such as an anonymous ``mmap``: other buffers copy twice."""

    def __getitem__(self, span: slice, /) -> bytes: ...

    def __setitem__(self, span: slice, value: bytes, /) -> None: ...

    def find(self, sub: bytes, start: int, end: int, /) -> int: ...

    def __buffer__(self, flags: int, /) -> memoryview: ...


@dataclass(frozen=True, slots=True)
class Sub:
    """Subscribe. ``typed``: it ended in LF, so that a person or a shell has sent it."""

    pattern: bytes
    typed: bool = False

    @classmethod
    def parse(cls, rest: bytes) -> Self:
        pattern = rest.partition(b"\0")[0]
        bare = _without_newline(pattern)
        return cls(bare, len(bare) != len(pattern))

    def serialize(self) -> bytes:
        return b"SUB %b\n" % self.pattern if self.typed else b"SUB " + self.pattern


@dataclass(frozen=True, slots=True)
class Unsub:
    pattern: bytes

    @classmethod
    def parse(cls, rest: bytes) -> Self:
        return cls(_without_newline(rest.partition(b"\0")[0]))

    def serialize(self) -> bytes:
        return b"UNSUB " + self.pattern


@dataclass(frozen=True, slots=True)
class Msg:
    """A message from a client, or one that is delivered to it."""

    chan: bytes
    payload: bytes = b""

    @classmethod
    def parse(cls, rest: bytes) -> Self:
        chan, nul, payload = rest.partition(b"\0")
        if not nul:
            raise PacketError("bad-packet", "packet: MSG needs a NUL between channel and payload")
        return cls(chan, payload)

    @classmethod
    def parse_line(cls, rest: bytes) -> Self:
        """The form of a client in the format ``lines``: ``<chan> <payload>LF``."""
        if b"\0" in rest:
            return cls.parse(rest)
        chan, space, payload = _without_newline(rest).partition(b" ")
        if not space:
            raise PacketError("bad-packet", "packet: MSG needs a space or a NUL between channel and payload")
        return cls(chan, payload)

    def serialize(self) -> bytes:
        return b"MSG %b\0%b" % (self.chan, self.payload)

    def serialize_line(self) -> bytes:
        return b"MSG %b %b\n" % (shown(self.chan), shown(self.payload))


@dataclass(frozen=True, slots=True)
class Cmsg:
    """A control request from a client; an answer or a notice to it."""

    key: bytes
    value: bytes = b""

    @classmethod
    def parse(cls, rest: bytes) -> Self:
        rest = _without_newline(rest)
        key, _, value = rest.partition(b"\0" if b"\0" in rest else b" ")
        if not 0 < len(key) <= KEY_LIMIT or not key.isascii() or not key.decode().isprintable():
            raise PacketError(
                "bad-packet", f"packet: CMSG needs a key of 1 to {KEY_LIMIT} printable characters"
            )
        return cls(key, value)

    def serialize(self) -> bytes:
        return b"CMSG %b\0%b" % (self.key, self.value)

    def serialize_line(self) -> bytes:
        return b"CMSG %b %b\n" % (self.key, shown(self.value))


@dataclass(frozen=True, slots=True)
class Recv:
    """A delivery in the format ``full``: who sent the datagram, when it came (Unix ns), and how it was judged.

    ``interface``: the one it came by, or NOWHERE. Only a tap that asked for it gets this field; else it is empty.
    """

    peer: bytes
    unix_ns: int
    verdict: bytes
    datagram: bytes
    interface: bytes = b""

    @classmethod
    def parse(cls, rest: bytes) -> Self:
        head, nul, datagram = rest.partition(b"\0")
        fields = head.split(b" ")
        if not nul or len(fields) not in (3, 4) or not fields[1].isdigit() or len(fields[1]) > TIME_DIGITS:
            raise PacketError("bad-packet", "packet: RECV needs <peer> <unix_ns> <verdict> NUL <datagram>")
        if fields[3:] == [b""]:
            raise PacketError("bad-packet", "packet: RECV with an empty interface")
        return cls(fields[0], int(fields[1]), fields[2], datagram, *fields[3:])

    def serialize(self) -> bytes:
        return self.head + self.datagram

    @property
    def head(self) -> bytes:
        """What stands before the datagram."""
        interface = b" " + self.interface if self.interface else b""
        return b"RECV %b %d %b%b\0" % (self.peer, self.unix_ns, self.verdict, interface)


@dataclass(frozen=True, slots=True)
class Datagram:
    """A whole BCCN datagram from elsewhere, to be passed on as it is."""

    datagram: bytes

    def serialize(self) -> bytes:
        return self.datagram


@dataclass(frozen=True, slots=True)
class Pack:
    """Several packets in one."""

    packets: tuple[bytes, ...]

    @classmethod
    def parse(cls, rest: bytes) -> Self:
        packets = []
        at = 0
        while at < len(rest):
            start = at + LENGTH.size
            at = start + LENGTH.unpack_from(rest, at)[0] if start <= len(rest) else start
            if at > len(rest):
                raise FramingError("bad-packet", "packet: PACK with a length that reaches beyond it")
            packets.append(rest[start:at])
        if any(packet.startswith(PACK) for packet in packets):
            raise FramingError("bad-packet", "packet: one PACK inside another")
        return cls(tuple(packets))

    def serialize(self) -> bytes:
        return pack(self.packets)


Packet = Sub | Unsub | Msg | Cmsg | Recv | Datagram | Pack


def parse(packet: bytes) -> Packet:
    """Take a packet of any kind apart. Raises ``PacketError`` for one that is of none."""
    kind, space, rest = packet.partition(b" ")
    if packet.startswith(b"BCCN"):
        return Datagram(packet)
    take = _KINDS.get(kind)
    if take is None or not space:
        raise PacketError("bad-packet", f"packet: begins {packet[:16]!r}, not SUB, UNSUB, MSG or CMSG")
    return take(rest)


_KINDS: dict[bytes, Callable[[bytes], Packet]] = {
    b"SUB": Sub.parse,
    b"UNSUB": Unsub.parse,
    b"MSG": Msg.parse,
    b"CMSG": Cmsg.parse,
    b"RECV": Recv.parse,
    b"PACK": Pack.parse,
}


_LINE = re.compile(rb"[^\n]+\n?")


def line_of(recv: bytes) -> bytes:
    """A RECV packet as a line, for a tap of the format ``lines``."""
    head, _, datagram = recv.partition(b"\0")
    return b"%b %b\n" % (head, shown(datagram))


def pack(packets: Iterable[bytes]) -> bytes:
    return PACK + b"".join([LENGTH.pack(len(packet)) + packet for packet in packets])


def lines(packet: bytes) -> list[tuple[int, int]]:
    """Where each line of a packet of the format ``lines`` begins and ends, LF included; empty lines are none.

    A NUL, a datagram or a PACK makes the packet one, whatever it holds.
    """
    if b"\0" in packet or packet.startswith((PACK, b"BCCN")) or b"\n" not in packet[:-1]:
        return [(0, len(packet))]
    return [line.span() for line in _LINE.finditer(packet) if line[0].strip(b"\r\n")]


def _without_newline(text: bytes) -> bytes:
    return text.removesuffix(b"\n").removesuffix(b"\r") if text.endswith(b"\n") else text


def shown(text: bytes) -> bytes:
    """Text from strangers in a line on somebody's terminal, which must not obey it: printable UTF-8 and TAB as they
    are, every other byte as an escape (``clients/PROTOCOL.md``, "The format ``lines``").

    Of a text with escapes it is the first SHOWN_LIMIT bytes, and ``\\+<n>`` for the n bytes that are missing.
    """
    chars = text.decode("utf-8", "surrogateescape")
    if chars.isprintable() and "\\" not in chars:
        return text
    if len(text) > SHOWN_LIMIT:
        chars = text[:SHOWN_LIMIT].decode("utf-8", "surrogateescape")
        return chars.translate(_ESCAPES).encode() + b"\\+%d" % (len(text) - SHOWN_LIMIT)
    return chars.translate(_ESCAPES).encode()


class _Escapes(dict[int, str]):
    """For ``str.translate``. Kept are those that cost one byte to send; there are a million others."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if char.isprintable():
            return char
        return "".join([f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape")])


_ESCAPES = _Escapes()
_ESCAPES.update({code: _ESCAPES[code] for code in (*range(0x80), *range(0xDC80, 0xDD00))})
_ESCAPES.update(str.maketrans({"\t": "\t", "\n": "\\n", "\r": "\\r", "\0": "\\0", "\\": "\\\\"}))
