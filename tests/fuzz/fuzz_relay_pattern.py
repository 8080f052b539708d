"""Patterns: ``check``, ``matches``, ``PatternIndex`` and the client's ``matches`` against a regular expression.

The first byte chooses the separator; then come a channel and patterns, separated by LF.
"""

import re
from collections.abc import Iterable

from bccn import matches as client_matches
from bccnd.errors import PacketError
from bccnd.relay.pattern import SEPARATORS, PatternIndex, check, covers, fixed_part, has_wildcard, matches
from bccnd.wire.bccn1 import valid_chan
from bccnd.wire.sbus import PATTERN_LIMIT
from tests.golden import entries

MOST_PATTERNS = 32


def one_input(data: bytes) -> None:
    separator = SEPARATORS[data[0] % 2] if data else b"/"
    channel, *patterns = data[1:].split(b"\n")[: 1 + MOST_PATTERNS]
    sound = []
    for pattern in patterns:
        try:
            check(pattern, separator)
        except PacketError as error:
            assert error.code == "bad-pattern"
            assert cannot_match(pattern, separator, channel)
        else:
            sound.append(pattern)
    if valid_chan(channel) and not channel.startswith(b"!"):
        agree(sound, separator, channel)


def agree(patterns: list[bytes], separator: bytes, channel: bytes) -> None:
    rights(patterns, separator, channel)
    index: PatternIndex[int] = PatternIndex(separator)
    for holder, pattern in enumerate(patterns):
        index.add(pattern, holder)
    expected = set()
    for holder, pattern in enumerate(patterns):
        matching = reference(pattern, separator, channel)
        assert matches(pattern, separator, channel) == matching, (pattern, channel)
        assert client_matches(pattern.decode(), channel.decode(), separator.decode()) == matching, pattern
        if matching:
            expected.add(holder)
    assert index.match(channel) == expected
    for holder in [*range(0, len(patterns), 2), *range(1, len(patterns), 2)]:
        index.remove(patterns[holder], holder)
        expected.discard(holder)
        assert index.match(channel) == expected
    assert index.empty()


def rights(patterns: list[bytes], separator: bytes, channel: bytes) -> None:
    """A subscription that is covered by what is granted brings nothing that is not granted."""
    for pattern in patterns:
        if not matches(pattern, separator, channel):
            continue
        assert channel.startswith(fixed_part(pattern))
        assert has_wildcard(pattern, separator) or channel == pattern
        for granted in patterns:
            if is_sound(granted, b"/") and covers(granted, pattern, separator):
                assert matches(granted, b"/", channel), (granted, pattern, channel)


def is_sound(pattern: bytes, separator: bytes) -> bool:
    try:
        check(pattern, separator)
    except PacketError:
        return False
    return True


def reference(pattern: bytes, separator: bytes, channel: bytes) -> bool:
    """The rules of the README as one regular expression."""
    if not pattern:
        return True
    between = re.escape(separator)
    *tokens, last = pattern.split(separator)
    parts = [re.escape(token).replace(rb"\*", b"[^%b]*" % between) for token in tokens]
    if last == b">":
        end = b".+"
    elif tokens and not last:
        end = b".*"
    else:
        end = re.escape(last).replace(rb"\*", b"[^%b]*" % between)
    return re.fullmatch(between.join([*parts, end]), channel, re.DOTALL) is not None


def cannot_match(pattern: bytes, separator: bytes, channel: bytes) -> bool:
    """What is refused could match nothing, but for the longest, which are refused for their length."""
    if len(pattern) > PATTERN_LIMIT or not valid_chan(channel):
        return True
    text = pattern.decode("ascii", "replace")
    return not client_matches(text, channel.decode(), separator.decode())


def seeds() -> Iterable[bytes]:
    for separator in SEPARATORS:
        vectors = [
            entry for entry in entries("patterns", "matches") if entry["separator"] == separator.decode()
        ]
        patterns = sorted({entry["pattern"] for entry in vectors})
        for entry in vectors:
            yield mixed(separator, entry["channel"], entry["pattern"])
        for channel in sorted({entry["channel"] for entry in vectors}):
            yield mixed(separator, channel, *patterns[:MOST_PATTERNS])
    for entry in entries("patterns", "refused"):
        yield mixed(entry["separator"].encode(), "a/b", entry["pattern"])


def mixed(separator: bytes, channel: str, *patterns: str) -> bytes:
    return bytes([SEPARATORS.index(separator)]) + "\n".join([channel, *patterns]).encode()
