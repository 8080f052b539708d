"""BCCN1, the protocol of the segment (``bccnd/wire/BCCN1.md``).

    BCCN1[<len>[:<algo>=<sum>]]<src>:<seq>:<chan>|<payload>

Two layers, each a frozen dataclass with ``parse`` and ``serialize`` side by side: ``Envelope`` (of any version:
magic, length, integrity value, body) and ``Message`` (the body of BCCN1). ``Integrity`` joins them for a deployment:
it seals a body into a datagram, and opens a datagram into its fields.

``Integrity.open`` is the hot path. It reads a sound datagram with one regular expression and verifies it before
anything else looks at it. What that expression does not match goes through the layers one by one, which find the
rule it breaks. A test holds the two equal. (``batch`` does the same for many datagrams at once.)

A datagram that breaks a rule raises ``WireError``, which says which rule (``Verdict``, in the order of the checks)
and at which byte.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple, Self

from bccnd.errors import WireError
from bccnd.wire.verdict import Verdict

# In bytes (``bccnd/wire/BCCN1.md``, "Sizes"). What we send stays below any Ethernet MTU less a tunnel or a VLAN tag.
# We take more, because some senders go to 1500.
SEND_LIMIT = 1400
RECEIVE_LIMIT = 2048
# "BCCN" and a version, and what stands between the brackets: more is noise.
MAGIC_LIMIT = 16
BRACKET_LIMIT = 256
SRC_LIMIT = 128
CHAN_LIMIT = 1024
LENGTH_DIGITS = 5
# Exclusive.
SEQ_LIMIT = 2**64

UNKNOWN_SRC = b"?"
MAGIC = b"BCCN1"


class Level(StrEnum):
    """What a deployment requires of a datagram, from nothing to the most."""

    NONE = "none"
    CRC32 = "crc32"
    HMAC = "hmac"


class Mode(StrEnum):
    """The three forms of a channel (``bccnd/wire/BCCN1.md``, "Channels")."""

    PLAIN = "plain"
    ALL = "all"
    DIRECTED = "directed"


_RANK = {b"": 0, b"crc32": 1, b"hmac": 2}
_SUM_DIGITS = {b"crc32": 8, b"hmac": 16}

# src and chan: ASCII without white space, NUL, "|" and ":".
_TOKEN = rb"[^\x00\t-\r |:\x80-\xff]"
_SRC = re.compile(_TOKEN + rb"{1,%d}" % SRC_LIMIT)
_CHAN = re.compile(_TOKEN + rb"{1,%d}" % CHAN_LIMIT)
_SEQ = re.compile(rb"[0-9]{1,20}")
_LENGTH = re.compile(rb"[0-9]{1,%d}" % LENGTH_DIGITS)
_HEX = re.compile(rb"[0-9a-f]*")
_SPACE = re.compile(rb"[\t-\r ]")

# What stands before the payload, without a fault of its own; its length and its sum may be wrong all the same.
HEADER = re.compile(
    rb"BCCN1\[(?P<length>%b)(?::(?P<algorithm>hmac|crc32)=(?P<sum>[0-9a-f]{1,16}))?\]" % _LENGTH.pattern
    + rb"(?P<src>%b):(?P<seq>%b):(?P<chan>%b)\|" % (_SRC.pattern, _SEQ.pattern, _CHAN.pattern)
)
# The same taken apart at its delimiters, right or wrong.
_MAGIC = re.compile(rb"(BCCN[0-9]+[A-Za-z]*)\[")
_BRACKET = re.compile(rb"([^\]:]*)(?::([^\]=]*)(?:=([^\]]*))?)?\]")
_FIELDS = re.compile(rb"([^|:]*)(?::([^|:]*)(?::([^|]*))?)?\|")


def valid_src(src: bytes) -> bool:
    return _SRC.fullmatch(src) is not None


def valid_chan(chan: bytes) -> bool:
    """True for any channel a datagram may carry; ``!?`` and what follows it is directed to nobody."""
    return _CHAN.fullmatch(chan) is not None and not chan.startswith(b"!?")


def mode_of(chan: bytes) -> Mode:
    if not chan.startswith(b"!"):
        return Mode.PLAIN
    return Mode.ALL if len(chan) == 1 else Mode.DIRECTED


def split_target(target: bytes) -> tuple[bool, bytes]:
    """``(exact, value or prefix)`` of what follows the "!" (``bccnd/wire/BCCN1.md``, "Directed targets")."""
    if target.endswith(b"/*"):
        return False, target[:-2]
    return target.rpartition(b"/")[2].isdigit(), target


def matches_target(target: bytes, src: bytes) -> bool:
    """Whether a directed message to ``target`` (without the "!") is for ``src``; never for "?"."""
    if src == UNKNOWN_SRC:
        return False
    exact, value = split_target(target)
    return src == value or (not exact and src.startswith(value + b"/"))


class Bracket(NamedTuple):
    """What stands before the body, as it is written, right or wrong; None where there is no such part.

    length    None when the bracket is not closed
    body_at   the offset of the body
    """

    magic: bytes
    length: bytes | None = None
    algorithm: bytes | None = None
    sum: bytes | None = None
    body_at: int = 0

    @classmethod
    def read(cls, datagram: bytes) -> Self | None:
        """None when the datagram does not begin as one of any version."""
        magic = _MAGIC.match(datagram, 0, MAGIC_LIMIT + 1)
        if magic is None:
            return None
        inside = _BRACKET.match(datagram, magic.end(), magic.end() + BRACKET_LIMIT)
        if inside is None:
            return cls(magic[1])
        return cls(magic[1], inside[1], inside[2], inside[3], inside.end())


class Fields(NamedTuple):
    """The fields before the payload, as they are written, right or wrong; None where there is no such field.

    ``payload_at``: the offset of the payload.
    """

    src: bytes
    seq: bytes | None
    chan: bytes | None
    payload_at: int

    @classmethod
    def read(cls, datagram: bytes, body_at: int) -> Self | None:
        """None when there is no ``|`` behind them."""
        found = _FIELDS.match(datagram, body_at)
        return found and cls(found[1], found[2], found[3], found.end())


@dataclass(frozen=True, slots=True)
class Envelope:
    """The layer that all versions share (``bccnd/wire/BCCN1.md``, "Envelope").

    ``algorithm`` and ``value`` are both empty when no integrity check is in use. ``parse`` checks syntax and length
    only; whether the value is right is a question to ``Integrity``. ``body_at``: the offset of the body in the
    datagram that was parsed, 0 when none was.
    """

    magic: bytes
    body: bytes
    algorithm: bytes = b""
    value: bytes = b""
    body_at: int = field(default=0, compare=False)

    @classmethod
    def parse(cls, datagram: bytes) -> Self:
        if len(datagram) > RECEIVE_LIMIT:
            raise WireError(Verdict.TRUNCATED, RECEIVE_LIMIT)
        bracket = Bracket.read(datagram)
        if bracket is None:
            raise WireError(Verdict.MAGIC, 0)
        magic, length, algorithm, value, body_at = bracket
        length_at = len(magic) + 1
        if (
            length is None
            or not _LENGTH.fullmatch(length)
            or _SPACE.search(datagram, length_at, body_at)
            or (algorithm is not None and (not algorithm or value is None))
        ):
            raise WireError(Verdict.ENVELOPE, length_at)
        body = datagram[body_at:]
        if int(length) != len(body):
            raise WireError(Verdict.LENGTH, length_at, f"says {int(length)}, has {len(body)}")
        return cls(magic, body, algorithm or b"", value or b"", body_at)

    def serialize(self) -> bytes:
        if self.algorithm:
            return b"%b[%d:%b=%b]%b" % (self.magic, len(self.body), self.algorithm, self.value, self.body)
        return b"%b[%d]%b" % (self.magic, len(self.body), self.body)


@dataclass(frozen=True, slots=True)
class Message:
    """The body of BCCN1 (``bccnd/wire/BCCN1.md``, "Body"). ``seq`` is below 2**64; ``payload`` is opaque."""

    src: bytes
    seq: int
    chan: bytes
    payload: bytes = b""

    @classmethod
    def parse(cls, datagram: bytes, body_at: int = 0) -> Self:
        """The body that begins at ``body_at``; a body alone is taken as well."""
        fields = Fields.read(datagram, body_at)
        if fields is None or fields.seq is None or fields.chan is None or b":" in fields.chan:
            raise WireError(Verdict.FIELDS, body_at)
        seq = int(fields.seq) if _SEQ.fullmatch(fields.seq) else SEQ_LIMIT  # which is out of range, too
        message = cls(fields.src, seq, fields.chan, datagram[fields.payload_at :])
        message._check(body_at, len(fields.seq))
        return message

    def serialize(self) -> bytes:
        """Raises ``WireError`` for a field that breaks its rule."""
        self._check(0, len(str(self.seq)))
        return b"%b:%d:%b|%b" % (self.src, self.seq, self.chan, self.payload)

    def _check(self, body_at: int, digits: int) -> None:
        """``body_at``: where the body begins; ``digits``: how many its sequence number has."""
        seq_at = body_at + len(self.src) + 1
        chan_at = seq_at + digits + 1
        if not valid_src(self.src):
            raise WireError(Verdict.SOURCE, body_at)
        if not 0 <= self.seq < SEQ_LIMIT:
            raise WireError(Verdict.SEQUENCE, seq_at)
        if not _CHAN.fullmatch(self.chan):
            raise WireError(Verdict.CHANNEL, chan_at)
        if self.chan.startswith(b"!?"):
            raise WireError(Verdict.TARGET, chan_at)

    @property
    def mode(self) -> Mode:
        return mode_of(self.chan)


def hmac_function(key: bytes) -> Callable[[bytes], bytes]:
    """body -> 16 hex digits: HMAC-SHA-256 cut to 8 bytes (``bccnd/wire/BCCN1.md``, "Integrity"; RFC 2104).

    The two SHA-256 states that depend on the key alone are prepared once and copied for each body, which takes half
    the time of a fresh HMAC.
    """
    block = (sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    inner = sha256(bytes(byte ^ 0x36 for byte in block)).copy
    outer = sha256(bytes(byte ^ 0x5C for byte in block)).copy

    def value(body: bytes) -> bytes:
        first = inner()
        first.update(body)
        second = outer()
        second.update(first.digest())
        return second.hexdigest()[:16].encode()

    return value


def crc32_value(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)


# What ``Integrity.open`` returns: src, seq, chan, offset of chan, offset of payload.
Opened = tuple[bytes, int, bytes, int, int]


class Integrity:
    """What a deployment agreed on: the keys it holds, and the least integrity a datagram must carry.

    The first key signs and every key verifies, so that a rotation of keys loses nothing. A datagram that carries more
    than is required is verified where that is possible; an hmac cannot be verified without a key.
    """

    def __init__(self, keys: Sequence[bytes] = (), required: Level = Level.NONE) -> None:
        if required is Level.HMAC and not keys:
            raise ValueError("hmac is required but there is no key")
        self.required = required
        self.keys = tuple(keys)
        self._rank = _RANK[b"" if required is Level.NONE else required.encode()]
        self._hmacs = tuple(hmac_function(key) for key in keys)
        # The bytes of a sealed datagram beyond its body, with <len> at its longest below the send limit.
        self.overhead = len(MAGIC) + len("[1234]") + (0, len(":crc32=") + 8, len(":hmac=") + 16)[self._rank]

    def seal(self, body: bytes) -> bytes:
        """The datagram for ``body``, with the integrity value that is required here."""
        if self._rank == 2:
            return b"BCCN1[%d:hmac=%b]%b" % (len(body), self._hmacs[0](body), body)
        if self._rank == 1:
            return b"BCCN1[%d:crc32=%b]%b" % (len(body), crc32_value(body), body)
        return b"BCCN1[%d]%b" % (len(body), body)

    def open(self, datagram: bytes) -> Opened:
        """Verify a datagram and take it apart. Raises ``WireError`` for one that breaks a rule."""
        return self.open_sound(datagram) or self._open_plainly(datagram)

    def open_sound(self, datagram: bytes) -> Opened | None:
        """The same, fast, for most of the datagrams that break no rule: BCCN1, signed or without a sum.

        None only says that ``open`` has to look closer.
        """
        header = HEADER.match(datagram)
        if header is None or len(datagram) > RECEIVE_LIMIT:
            return None
        length, algorithm, value, src, digits, chan = header.groups()
        body, seq = datagram[header.start(4) :], int(digits)
        if int(length) != len(body) or seq >= SEQ_LIMIT or chan[:2] == b"!?":
            return None
        if value is None:
            if self._rank:
                return None
        elif algorithm == b"crc32" or len(value) != 16 or (self._hmacs and not self._signed(value, body)):
            return None
        payload_at = header.end()
        return src, seq, chan, payload_at - 1 - len(chan), payload_at

    def _open_plainly(self, datagram: bytes) -> Opened:
        envelope = Envelope.parse(datagram)
        self.verify(envelope)
        if envelope.magic != MAGIC:
            raise WireError(Verdict.VERSION, 0, envelope.magic.decode())
        message = Message.parse(datagram, envelope.body_at)
        payload_at = len(datagram) - len(message.payload)
        return message.src, message.seq, message.chan, payload_at - 1 - len(message.chan), payload_at

    def verify(self, envelope: Envelope) -> None:
        """Check the integrity value of an envelope of any version."""
        algorithm, value = envelope.algorithm, envelope.value
        value_at = envelope.body_at - 1 - len(value)
        if algorithm and algorithm not in _SUM_DIGITS:
            raise WireError(Verdict.ALGORITHM, value_at - 1 - len(algorithm), repr(algorithm[:16]))
        if algorithm and (len(value) != _SUM_DIGITS[algorithm] or not _HEX.fullmatch(value)):
            raise WireError(Verdict.SUM, value_at)
        if _RANK[algorithm] < self._rank:
            raise WireError(Verdict.UNAUTHENTICATED, len(envelope.magic) + 1)
        if algorithm == b"crc32" and value != crc32_value(envelope.body):
            raise WireError(Verdict.CRC32, value_at)
        if algorithm == b"hmac" and self._hmacs and not self._signed(value, envelope.body):
            raise WireError(Verdict.HMAC, value_at)

    def _signed(self, value: bytes, body: bytes) -> bool:
        # Which key it was is no secret, unlike the digits of its value: these are compared in constant time.
        for hmac in self._hmacs:
            if compare_digest(value, hmac(body)):
                return True
        return False
