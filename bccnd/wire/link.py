"""What the uplinks of several segments say to each other, whatever carries it (``bccnd/wire/LINK.md``).

    BCCN1[<len>:hmac=<sum>]<src>:<number>:bccnd/link|<floor> LF <message><message>...
    BCCN1[<len>:hmac=<sum>]<src>:<clock>:bccnd/link/status|floor <n> LF next <n> LF host <name>...

``src`` is ``<segment>/uplink/<instance>``. A link datagram is BCCN1 with a number of its own, and may be longer
than one of a segment. Each message in it is a
datagram of the segment without a sum, ``BCCN1[<len>]<src>:<seq>:<chan>|<payload>``; its length says where the next
one begins.
"""

import re
from collections.abc import Iterable, Sequence
from hmac import compare_digest
from typing import NamedTuple

from bccnd.errors import LinkError
from bccnd.wire.bccn1 import (
    HEADER,
    RECEIVE_LIMIT,
    SEQ_LIMIT,
    UNKNOWN_SRC,
    Integrity,
    Level,
    hmac_function,
)

CHANNEL = b"bccnd/link"
STATUS_CHANNEL = b"bccnd/link/status"
# What the message of a fyrehose backbone can hold (``bccnd/wire/FYREHOSE.md``, "Limits").
DATAGRAM_LIMIT = 65_498
# With "/uplink/" and an instance no source is longer than 128 bytes, nor any NATS subject than it may be.
SEGMENT_LIMIT = 64
INSTANCE_DIGITS = 16
# Exclusive, of link numbers, floors and the clock of a status.
NUMBER_LIMIT = SEQ_LIMIT
# A status then has 1400 bytes at most, with the longest source and an hmac.
STATUS_LIMIT = 1184
# Lines of a status: floor, next, and hosts. To look at one takes about a microsecond.
LINES_LIMIT = 128

_SEGMENT = rb"[^\x00\t-\r |:/!\x80-\xff]{1,%d}" % SEGMENT_LIMIT
_SRC = re.compile(rb"(%b)/uplink/([0-9a-f]{%d})" % (_SEGMENT, INSTANCE_DIGITS))
_FLOOR = re.compile(rb"([0-9]{1,20})\n")
_NUMBER = re.compile(rb"[0-9]{1,20}")
_HOST = re.compile(rb"[^\x00\t-\r |:/!\x80-\xff]{1,128}")
_MESSAGE = re.compile(
    HEADER.pattern.replace(rb"(?::(?P<algorithm>hmac|crc32)=(?P<sum>[0-9a-f]{1,16}))?", b"")
)

# src and seq as they stand in the datagram, without leading zeros; src; seq; chan; the datagram without a sum.
Inner = tuple[bytes, bytes, int, bytes, bytes]


class Numbered(NamedTuple):
    """A link datagram. ``at``: where its messages begin in the datagram."""

    src: bytes
    number: int
    floor: int
    at: int


class Status(NamedTuple):
    """What a sender says of itself. ``next``: the number that it gives next."""

    src: bytes
    floor: int
    next: int
    hosts: tuple[bytes, ...]


def valid_segment(name: bytes) -> bool:
    return re.fullmatch(_SEGMENT, name) is not None


def valid_host(name: bytes) -> bool:
    return _HOST.fullmatch(name) is not None


def source(segment: bytes, instance: bytes) -> bytes:
    """``<segment>/uplink/<instance>``; ``ValueError`` for what makes no source of a link."""
    src = b"%b/uplink/%b" % (segment, instance)
    if not _SRC.fullmatch(src):
        raise ValueError(src)
    return src


def segment_of(src: bytes) -> bytes:
    """The segment of a source that ``open`` let pass."""
    return src.partition(b"/")[0]


class Seal:
    """Signs and verifies datagrams of links. The first key signs, and every key verifies.

    Without a key nothing is signed, and what is signed is taken unverified.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._seal = Integrity(keys, Level.HMAC if keys else Level.NONE).seal
        self._hmacs = tuple(hmac_function(key) for key in keys)

    def numbered(self, src: bytes, number: int, floor: int, messages: bytes) -> bytes:
        """A link datagram; ``messages``: as they are in it, side by side."""
        return self._seal(b"%b:%d:%b|%d\n%b" % (src, number, CHANNEL, floor, messages))

    def status(self, src: bytes, clock: int, floor: int, following: int, hosts: Iterable[bytes]) -> bytes:
        """``hosts``: no more than ``status_hosts`` says that there is room for."""
        lines = [b"floor %d" % floor, b"next %d" % following, *(b"host " + host for host in hosts)]
        return self._seal(b"%b:%d:%b|%b" % (src, clock, STATUS_CHANNEL, b"\n".join(lines)))

    def open(self, datagram: bytes) -> Numbered | Status:
        """Verify it and take it apart, but for its messages. Raises ``LinkError``."""
        header = HEADER.match(datagram)
        if header is None or len(datagram) > DATAGRAM_LIMIT:
            raise LinkError("form" if header is None else "size", f"{len(datagram)} bytes")
        length, algorithm, value, src, digits, chan = header.groups()
        body = datagram[header.start(4) :]
        if int(length) != len(body) or algorithm == b"crc32":
            raise LinkError("form", f"says {int(length)} bytes, has {len(body)}")
        if self._hmacs and not self._signed(value, body):
            raise LinkError("key", "is not signed with a key of this link")
        if not _SRC.fullmatch(src):
            raise LinkError("source", repr(src[:48]))
        number = int(digits)
        if number >= NUMBER_LIMIT:
            raise LinkError("form", f"the number {number}")
        if chan == CHANNEL:
            floor = _FLOOR.match(datagram, header.end())
            if floor is None or not 0 < int(floor[1]) <= number:
                raise LinkError("floor", f"of number {number}")
            return Numbered(src, number, int(floor[1]), floor.end())
        if chan == STATUS_CHANNEL:
            return _status(src, datagram[header.end() :])
        raise LinkError("channel", repr(chan[:48]))

    def _signed(self, value: bytes | None, body: bytes) -> bool:
        if value is not None and len(value) == INSTANCE_DIGITS:
            for hmac in self._hmacs:
                if compare_digest(value, hmac(body)):
                    return True
        return False


def _status(src: bytes, payload: bytes) -> Status:
    """Lines of words that are not known here are passed over."""
    said: dict[bytes, int] = {}
    hosts = []
    lines = payload.split(b"\n", LINES_LIMIT)
    if len(payload) > STATUS_LIMIT or len(lines) > LINES_LIMIT:
        raise LinkError("status", "is too long")
    for line in lines:
        word, _, value = line.partition(b" ")
        if word == b"host":
            if not _HOST.fullmatch(value):
                raise LinkError("status", f"of the host {value[:48]!r}")
            hosts.append(value)
        elif word in (b"floor", b"next"):
            if word in said or not _NUMBER.fullmatch(value):
                raise LinkError("status", repr(line[:48]))
            said[word] = int(value)
    floor, following = said.get(b"floor", 0), said.get(b"next", 0)
    if not 0 < floor <= following <= NUMBER_LIMIT:
        raise LinkError("status", f"floor {floor}, next {following}")
    return Status(src, floor, following, tuple(hosts))


def status_hosts(hosts: Sequence[bytes], at: int) -> tuple[list[bytes], int]:
    """As many hosts, from ``at`` on and around, as one status has room for; where the next one goes on."""
    room = STATUS_LIMIT - 2 * len("floor \n18446744073709551615")
    chosen: list[bytes] = []
    while len(chosen) < min(len(hosts), LINES_LIMIT - 2):
        host = hosts[(at + len(chosen)) % len(hosts)]
        room -= len(host) + len("\nhost ")
        if room < 0:
            break
        chosen.append(host)
    return chosen, (at + len(chosen)) % max(1, len(hosts))


def inner(datagram: bytes) -> Inner | None:
    """A datagram of the segment, as it goes into a link datagram; None for what does not.

    Its sum is taken off, as it is for others to verify: who hands it over has done so.
    """
    header = HEADER.match(datagram)
    if header is None:
        return None
    length, algorithm, _, src, digits, chan = header.groups()
    body_at = header.start(4)
    if algorithm is not None:
        datagram = b"BCCN1[%b]%b" % (length, datagram[body_at:])
        body_at = 7 + len(length)
    if len(datagram) - body_at != int(length) or len(datagram) > RECEIVE_LIMIT:
        return None
    return _judged(src, digits, chan, datagram)


def messages(datagram: bytes, at: int) -> list[Inner]:
    """Those of a link datagram, from ``at`` to its end. Raises ``LinkError`` if one is wrong: then none is taken."""
    found = []
    match, limit = _MESSAGE.match, len(datagram)
    while at < limit:
        header = match(datagram, at)
        if header is None:
            raise LinkError("inside", f"no message at byte {at}")
        length, src, digits, chan = header.groups()
        end = header.start(2) + int(length)
        message = None
        if header.end() <= end <= limit and end - at <= RECEIVE_LIMIT:
            message = _judged(src, digits, chan, datagram[at:end])
        if message is None:
            raise LinkError("inside", f"a wrong message at byte {at}")
        found.append(message)
        at = end
    return found


def _judged(src: bytes, digits: bytes, chan: bytes, datagram: bytes) -> Inner | None:
    seq = int(digits)
    if src == UNKNOWN_SRC or seq >= SEQ_LIMIT or chan[:2] == b"!?":
        return None
    if digits[:1] == b"0":
        digits = b"%d" % seq
    return b"%b:%b" % (src, digits), src, seq, chan, datagram
