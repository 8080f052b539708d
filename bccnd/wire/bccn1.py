"""BCCN1, the wire protocol of the segment (``bccn.txt``).

    BCCN1[<len>[:<algo>=<sum>]]<src>:<seq>:<chan>|<payload>

Two layers, each a frozen dataclass with ``parse`` and ``serialize`` side by side: ``Envelope`` (any version:
magic, length, integrity value, body) and ``Message`` (the BCCN1 body). ``Integrity`` joins them for a
deployment: ``seal`` a body into a datagram, ``open`` a datagram into its fields. ``open`` is the hot path: it
reads a sound datagram with one regular expression and verifies it before anything else looks at it; whatever
that expression does not take goes the plain way, layer by layer, which finds the ``Reason``. A test holds the
two ways equal. (``batch`` has the same for many datagrams at once.)

A datagram that breaks a rule raises ``WireError`` with its ``Reason``; the order of the checks is the order
of the members of ``Reason``.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest
from typing import Self

from bccnd.errors import WireError

SEND_LIMIT = 1400  # bytes in all: below any Ethernet MTU less tunnel or VLAN overhead (bccn.txt, "SIZE")
RECEIVE_LIMIT = 2048  # what is taken from others: some senders go to 1500
MAGIC_LIMIT = 16  # "BCCN" and a version; longer is noise
BRACKET_LIMIT = 256  # length, algorithm and the longest value anybody could mean
SRC_LIMIT = 128
CHAN_LIMIT = 1024
SEQ_LIMIT = 2**64  # exclusive
LENGTH_DIGITS = 5
BODY_LIMIT = 10**LENGTH_DIGITS - 1  # the most that <len> can say

UNKNOWN_SRC = b"?"
MAGIC = b"BCCN1"


class Reason(StrEnum):
    """Why a datagram was dropped, in the order of the checks."""

    TRUNCATED = "truncated"  # more than RECEIVE_LIMIT bytes
    MAGIC = "magic"  # does not begin BCCN<digits><letters>[
    ENVELOPE = "envelope"  # the bracket is not [<len>] or [<len>:<algo>=<sum>]
    LENGTH = "length"  # <len> is not what follows the bracket
    ALGORITHM = "algorithm"  # neither hmac nor crc32
    SUM = "sum"  # a value of the wrong length or alphabet
    UNAUTHENTICATED = "unauthenticated"  # less than the deployment requires
    HMAC = "hmac"  # no key of ours gives this value
    CRC32 = "crc32"
    VERSION = "version"  # a sound envelope of another version
    FIELDS = "fields"  # not <src>:<seq>:<chan>|
    SOURCE = "source"
    SEQUENCE = "sequence"
    CHANNEL = "channel"
    TARGET = "target"  # directed to the unknown sender


class Level(StrEnum):
    """What a deployment requires of a datagram, from nothing to the most."""

    NONE = "none"
    CRC32 = "crc32"
    HMAC = "hmac"


class Mode(StrEnum):
    """The three forms of a channel (``bccn.txt``, "CHAN FORMS AND DELIVERY ALGORITHM")."""

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
_BCCN = re.compile(rb"(BCCN[0-9]+[A-Za-z]*)\[")
_SPACE = re.compile(rb"[\t-\r ]")
_SOUND = re.compile(
    rb"BCCN1\[([0-9]{1,%d})(?::hmac=([0-9a-f]{16}))?\]" % LENGTH_DIGITS
    + rb"(%b{1,%d}):([0-9]{1,19}):(?!!\?)(%b{1,%d})\|" % (_TOKEN, SRC_LIMIT, _TOKEN, CHAN_LIMIT)
)


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
    """``(exact, value or prefix)`` of what follows the "!" (``bccn.txt``, "Directed-form matching")."""
    if target.endswith(b"/*"):
        return False, target[:-2]
    return target.rpartition(b"/")[2].isdigit(), target


def matches_target(target: bytes, src: bytes) -> bool:
    """Whether a directed message to ``target`` (without the "!") is for ``src``; never for "?"."""
    if src == UNKNOWN_SRC:
        return False
    exact, value = split_target(target)
    return src == value or (not exact and src.startswith(value + b"/"))


@dataclass(frozen=True, slots=True)
class Envelope:
    """The layer that all versions share (``bccn.txt``, "ENVELOPE LAYER").

    ``algorithm`` and ``value`` are both empty when no integrity check is in use. ``parse`` checks syntax and
    length only; whether the value is right is a question to ``Integrity``.
    """

    magic: bytes
    body: bytes
    algorithm: bytes = b""
    value: bytes = b""

    @classmethod
    def parse(cls, datagram: bytes) -> Self:
        if len(datagram) > RECEIVE_LIMIT:
            raise WireError(Reason.TRUNCATED)
        start = _BCCN.match(datagram, 0, MAGIC_LIMIT + 1)
        if start is None:
            raise WireError(Reason.MAGIC)
        inside = start.end()
        close = datagram.find(b"]", inside, inside + BRACKET_LIMIT)
        bracket = datagram[inside:close]
        length, colon, check = bracket.partition(b":")
        algorithm, equals, value = check.partition(b"=")
        if (
            close < 0
            or not _LENGTH.fullmatch(length)
            or _SPACE.search(bracket)
            or (colon and not (equals and algorithm))
        ):
            raise WireError(Reason.ENVELOPE)
        body = datagram[close + 1 :]
        if int(length) != len(body):
            raise WireError(Reason.LENGTH, f"says {int(length)}, has {len(body)}")
        return cls(start[1], body, algorithm, value)

    def serialize(self) -> bytes:
        if self.algorithm:
            return b"%b[%d:%b=%b]%b" % (self.magic, len(self.body), self.algorithm, self.value, self.body)
        return b"%b[%d]%b" % (self.magic, len(self.body), self.body)


@dataclass(frozen=True, slots=True)
class Message:
    """The BCCN1 body (``bccn.txt``, "BODY LAYER"). ``seq`` is below 2**64; ``payload`` is opaque."""

    src: bytes
    seq: int
    chan: bytes
    payload: bytes = b""

    @classmethod
    def parse(cls, body: bytes) -> Self:
        header, bar, payload = body.partition(b"|")
        fields = header.split(b":")
        if not bar or len(fields) != 3:
            raise WireError(Reason.FIELDS)
        src, seq, chan = fields
        if not _SEQ.fullmatch(seq):
            raise WireError(Reason.SOURCE if not valid_src(src) else Reason.SEQUENCE)
        message = cls(src, int(seq), chan, payload)
        message.check()
        return message

    def serialize(self) -> bytes:
        self.check()
        return b"%b:%d:%b|%b" % (self.src, self.seq, self.chan, self.payload)

    def check(self) -> None:
        """Raise ``WireError`` for the first field that breaks its rule."""
        if not valid_src(self.src):
            raise WireError(Reason.SOURCE)
        if not 0 <= self.seq < SEQ_LIMIT:
            raise WireError(Reason.SEQUENCE)
        if not _CHAN.fullmatch(self.chan):
            raise WireError(Reason.CHANNEL)
        if self.chan.startswith(b"!?"):
            raise WireError(Reason.TARGET)

    @property
    def mode(self) -> Mode:
        return mode_of(self.chan)


def hmac_function(key: bytes) -> Callable[[bytes], bytes]:
    """body -> 16 hex digits: HMAC-SHA-256 cut to 8 bytes (``bccn.txt``, "HMAC"; RFC 2104).

    The two SHA-256 states that depend on the key alone are prepared once and copied per body, which takes
    half the time of a fresh HMAC.
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


# What ``Integrity.open`` gives: src, seq, chan, offset of chan, offset of payload.
Opened = tuple[bytes, int, bytes, int, int]


class Integrity:
    """What a deployment agreed on: the keys it holds and the least a datagram must carry.

    The first key signs, every key verifies, so that a rotation loses nothing. A datagram that carries more
    than is required is verified if it can be; an hmac cannot be without a key.
    """

    def __init__(self, keys: Sequence[bytes] = (), required: Level = Level.NONE) -> None:
        if required is Level.HMAC and not keys:
            raise ValueError("hmac is required but there is no key")
        self.required = required
        self.keys = tuple(keys)
        self._rank = _RANK[b"" if required is Level.NONE else required.encode()]
        self._hmacs = tuple(hmac_function(key) for key in keys)
        # What a sealed datagram has beyond its body, <len> at its longest below the send limit.
        self.overhead = len(MAGIC) + len("[1234]") + (0, len(":crc32=") + 8, len(":hmac=") + 16)[self._rank]

    def seal(self, body: bytes) -> bytes:
        """The datagram for ``body``, with as much integrity as is required here."""
        if self._rank == 2:
            return b"BCCN1[%d:hmac=%b]%b" % (len(body), self._hmacs[0](body), body)
        if self._rank == 1:
            return b"BCCN1[%d:crc32=%b]%b" % (len(body), crc32_value(body), body)
        return b"BCCN1[%d]%b" % (len(body), body)

    def open(self, datagram: bytes) -> Opened:
        """Verify and split a datagram; ``WireError`` says why it must be dropped."""
        return self.open_sound(datagram) or self._open_plainly(datagram)

    def open_sound(self, datagram: bytes) -> Opened | None:
        """The same, fast, of a datagram as most are: BCCN1, signed or plain, and nothing wrong with it."""
        sound = _SOUND.match(datagram)
        if sound is None or len(datagram) > RECEIVE_LIMIT:
            return None
        length, value, src, seq, chan = sound.groups()
        body = datagram[sound.start(3) :]
        if int(length) != len(body) or (value is None and self._rank):
            return None
        if value is not None and self._hmacs and not self._signed(value, body):
            return None
        payload_at = sound.end()
        return src, int(seq), chan, payload_at - 1 - len(chan), payload_at

    def _open_plainly(self, datagram: bytes) -> Opened:
        envelope = Envelope.parse(datagram)
        self.verify(envelope)
        if envelope.magic != MAGIC:
            raise WireError(Reason.VERSION, envelope.magic.decode())
        message = Message.parse(envelope.body)
        payload_at = len(datagram) - len(message.payload)
        return message.src, message.seq, message.chan, payload_at - 1 - len(message.chan), payload_at

    def verify(self, envelope: Envelope) -> None:
        """Check the integrity value of an envelope of any version."""
        algorithm, value = envelope.algorithm, envelope.value
        if algorithm and algorithm not in _SUM_DIGITS:
            raise WireError(Reason.ALGORITHM, repr(algorithm[:16]))
        if algorithm and (len(value) != _SUM_DIGITS[algorithm] or not _HEX.fullmatch(value)):
            raise WireError(Reason.SUM)
        if _RANK[algorithm] < self._rank:
            raise WireError(Reason.UNAUTHENTICATED)
        if algorithm == b"crc32" and value != crc32_value(envelope.body):
            raise WireError(Reason.CRC32)
        if algorithm == b"hmac" and self._hmacs and not self._signed(value, envelope.body):
            raise WireError(Reason.HMAC)

    def _signed(self, value: bytes, body: bytes) -> bool:
        for hmac in self._hmacs:  # which of our keys it was is no secret; its digits are
            if compare_digest(value, hmac(body)):
                return True
        return False
