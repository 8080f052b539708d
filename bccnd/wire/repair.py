"""The messages of daemons about datagrams that were lost (``bccnd/wire/REPAIR.md``).

    last LF <src> <n>                    the last number of a source that has just spoken
         LF <src> <first>-<n>            the same, with the first number of a source that is new
    resend LF <src> <base> <a>-<b>,<c>   numbers that somebody misses: base + a to base + b, and base + c
    gone LF <src> <base> <a>-<b>,<c>     numbers that nobody gets any more
    plain LF <src>                       a source of this host of which nothing is kept
    relayed LF <src>                     a source of elsewhere that a bridge of this host brings

It is the payload of a message on CHANNEL. A payload has one word and up to RANGES_LIMIT lines.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bccnd.wire.bccn1 import SEQ_LIMIT, UNKNOWN_SRC, valid_src

# Directed to what no program is called: nobody but daemons that repair looks at it.
CHANNEL = b"!bccnd/repair"
# What a source says of itself is told apart by this: ``<host>/bccnd/<pid>/repair``.
SOURCE_END = b"repair"
# With the longest source of a daemon and an hmac a datagram then has 1400 bytes at most.
PAYLOAD_LIMIT = 1184
# Of one payload: to look at one takes about a microsecond.
RANGES_LIMIT = 256
# From a base: more numbers than a source can have lost and still be asked for.
OFFSET_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Last:
    """``sources``: (src, first number or None, last number)."""

    sources: tuple[tuple[bytes, int | None, int], ...]


@dataclass(frozen=True, slots=True)
class Resend:
    """``numbers``: (src, ranges of numbers in rising order)."""

    numbers: tuple[tuple[bytes, tuple[range, ...]], ...]


@dataclass(frozen=True, slots=True)
class Gone:
    """The same."""

    numbers: tuple[tuple[bytes, tuple[range, ...]], ...]


@dataclass(frozen=True, slots=True)
class Plain:
    """Sources of the daemon's own host."""

    sources: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Relayed:
    """Sources of other segments."""

    sources: tuple[bytes, ...]


def parse(payload: bytes) -> Last | Resend | Gone | Plain | Relayed | None:
    """None for what is none of these, or breaks a limit."""
    word, *lines = payload.split(b"\n", RANGES_LIMIT + 1)
    try:
        if len(payload) > PAYLOAD_LIMIT or not 0 < len(lines) <= RANGES_LIMIT:
            return None
        if word == b"last":
            return Last(tuple(map(_last_of, lines)))
        if word in (b"plain", b"relayed") and all(map(_is_named, lines)):
            return Plain(tuple(lines)) if word == b"plain" else Relayed(tuple(lines))
        if word in (b"resend", b"gone"):
            numbers = tuple(map(_numbers_of, lines))
            if sum(len(ranges) for _, ranges in numbers) <= RANGES_LIMIT:
                return Resend(numbers) if word == b"resend" else Gone(numbers)
    except ValueError:
        pass
    return None


def last_payload(sources: Iterable[tuple[bytes, int | None, int]]) -> bytes:
    """As many of them as find room in one payload, a line each; empty for none."""
    lines = (
        b"\n%b %d" % (src, last) if first is None else b"\n%b %d-%d" % (src, first, last)
        for src, first, last in sources
    )
    return next(_filled(b"last", lines), b"")


def number_payloads(word: bytes, numbers: Iterable[tuple[bytes, Iterable[range]]]) -> Iterator[bytes]:
    """As many payloads as it takes; ``word``: ``resend`` or ``gone``. The ranges are in rising order."""
    return _filled(word, _lines_of(numbers))


def plain_payloads(sources: Iterable[bytes]) -> Iterator[bytes]:
    """As many payloads as it takes."""
    return _filled(b"plain", (b"\n" + src for src in sources))


def relayed_payloads(sources: Iterable[bytes]) -> Iterator[bytes]:
    """As many payloads as it takes."""
    return _filled(b"relayed", (b"\n" + src for src in sources))


def _filled(word: bytes, lines: Iterable[bytes]) -> Iterator[bytes]:
    payload, ranges = word, 0
    for line in lines:
        more = line.count(b",") + 1
        if len(payload) + len(line) > PAYLOAD_LIMIT or ranges + more > RANGES_LIMIT:
            yield payload
            payload, ranges = word, 0
        payload += line
        ranges += more
    if ranges:
        yield payload


def _lines_of(numbers: Iterable[tuple[bytes, Iterable[range]]]) -> Iterator[bytes]:
    """A line for each source, or several: none is longer than a third of a payload, so that payloads fill up."""
    for src, ranges in numbers:
        line, base = b"", 0
        for each in ranges:
            if line and (len(line) > PAYLOAD_LIMIT // 3 or each.stop - base > OFFSET_LIMIT):
                yield line
                line = b""
            if not line:
                base = each.start
                line = b"\n%b %d " % (src, base)
            else:
                line += b","
            line += b"%d" % (each.start - base)
            if len(each) > 1:
                line += b"-%d" % (each[-1] - base)
        if line:
            yield line


def _last_of(line: bytes) -> tuple[bytes, int | None, int]:
    src, last = line.split(b" ")
    begun, dash, end = last.partition(b"-")
    first, last_number = (_number(begun), _number(end)) if dash else (None, _number(begun))
    if not _is_named(src) or (first is not None and first > last_number):
        raise ValueError(line)
    return src, first, last_number


def _numbers_of(line: bytes) -> tuple[bytes, tuple[range, ...]]:
    src, base, offsets = line.split(b" ")
    ranges, after = [], _number(base)
    start = after
    for part in offsets.split(b","):
        a, dash, b = part.partition(b"-")
        first = start + _offset(a)
        stop = start + _offset(b) + 1 if dash else first + 1
        if not after <= first < stop <= SEQ_LIMIT:
            raise ValueError(line)
        ranges.append(range(first, stop))
        after = stop
    if not _is_named(src):
        raise ValueError(line)
    return src, tuple(ranges)


def _is_named(src: bytes) -> bool:
    return valid_src(src) and src != UNKNOWN_SRC


def _number(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 20 or (number := int(digits)) >= SEQ_LIMIT:
        raise ValueError(digits)
    return number


def _offset(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 7 or (offset := int(digits)) >= OFFSET_LIMIT:
        raise ValueError(digits)
    return offset
