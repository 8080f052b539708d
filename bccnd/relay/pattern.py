"""Which channels a pattern means (``clients/PROTOCOL.md``, "Channels and patterns").

    demo/tx     that channel           demo/*/in   ``*`` is the rest of one token, also nothing
    demo/>      all below ``demo/``    demo/       that separator and anything after it
    (empty)     every channel

``matches`` is the rule, one pure function. ``PatternIndex`` gives the same answer for many patterns at once,
from a trie of tokens: a look-up costs the depth of the channel and the ``prefix*`` tokens met on the way, not
the number of patterns. Directed and all channels (``!...``) are never matched here; the router sees to them.
``covers`` compares two patterns: what a right grants with what a client asks for.
"""

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from bccnd.errors import PacketError
from bccnd.wire.bccn1 import valid_chan
from bccnd.wire.sbus import PATTERN_LIMIT

SEPARATORS = (b"/", b".")

T = TypeVar("T", bound=Hashable)


def check(pattern: bytes, separator: bytes) -> None:
    """Raise ``PacketError`` for a pattern that no channel can match, which is always a mistake."""
    if not pattern:
        return
    if len(pattern) > PATTERN_LIMIT:
        raise PacketError("bad-pattern", f"longer than {PATTERN_LIMIT} bytes")
    if pattern.startswith(b"!"):
        raise PacketError("bad-pattern", "directed messages come by name, without a subscription")
    if not valid_chan(pattern):
        raise PacketError("bad-pattern", "a channel is ASCII without white space, NUL, ':' and '|'")
    if any(b"*" in token[:-1] for token in pattern.split(separator)):
        raise PacketError("bad-pattern", f"'*' must be followed by '{separator.decode()}' or the end")


def matches(pattern: bytes, separator: bytes, channel: bytes) -> bool:
    """The rule itself, for a pattern that passed ``check``."""
    if not pattern:
        return True
    *tokens, last = pattern.split(separator)
    names = channel.split(separator)
    if len(names) <= len(tokens) or not all(map(_token_matches, tokens, names)):
        return False
    rest = names[len(tokens) :]
    if last == b">":
        return rest != [b""]
    if tokens and not last:
        return True
    return len(rest) == 1 and _token_matches(last, rest[0])


def matcher(wanted: Iterable[bytes], separator: bytes) -> Callable[[bytes], bool]:
    """Whether any of the patterns matches a channel, as a function: the same as ``matches``, for many channels."""
    expressions = [_expression(pattern, separator) for pattern in wanted]
    if not expressions:
        return lambda _: False
    found = re.compile(b"|".join(expressions), re.DOTALL).fullmatch
    return lambda channel: found(channel) is not None


def _expression(pattern: bytes, separator: bytes) -> bytes:
    *tokens, last = pattern.split(separator)
    inside = b"[^%b]*" % re.escape(separator)
    parts = [re.escape(token.removesuffix(b"*")) + inside * token.endswith(b"*") for token in (*tokens, last)]
    if last in (b"", b">"):
        parts[-1] = b".+" if last else b".*"
    return re.escape(separator).join(parts)


def has_wildcard(pattern: bytes, separator: bytes) -> bool:
    """Whether it can match any channel but the one of the same bytes."""
    return b"*" in pattern or pattern.rpartition(separator)[2] in (b"", b">")


def fixed_part(pattern: bytes) -> bytes:
    """What every channel begins with that a pattern matches."""
    return pattern.partition(b"*")[0].removesuffix(b">")


def _token_matches(token: bytes, name: bytes) -> bool:
    return name.startswith(token[:-1]) if token.endswith(b"*") else name == token


def covers(granted: bytes, pattern: bytes, separator: bytes) -> bool:
    """Whether ``granted``, whose separator is "/", matches every channel that ``pattern`` matches.

    Exact for patterns of the same separator. Of another one only what stands before the first wildcard counts, so
    that some are found uncovered although they are not; never the other way round.
    """
    if separator != b"/":
        if not has_wildcard(pattern, separator):
            return matches(granted, b"/", pattern)
        pattern = _widened(pattern)
    *wide, wide_end = granted.split(b"/")
    *narrow, narrow_end = pattern.split(b"/")
    if not wide and wide_end in (b"", b">"):
        return True
    open_ended = narrow_end in (b"", b">")
    if not narrow and open_ended:
        return False
    if wide_end not in (b"", b">"):
        fits = len(wide) == len(narrow) and not open_ended and _token_covers(wide_end, narrow_end)
    elif len(wide) < len(narrow) or wide_end == b"":
        fits = len(wide) <= len(narrow)
    else:  # in the place of ``>`` something must follow
        fits = len(wide) == len(narrow) and narrow_end not in (b"", b"*")
    return fits and all(map(_token_covers, wide, narrow))


def _token_covers(wide: bytes, narrow: bytes) -> bool:
    return narrow.startswith(wide[:-1]) if wide.endswith(b"*") else narrow == wide


def _widened(pattern: bytes) -> bytes:
    """Of separator "/": every channel that begins as those do which ``pattern`` matches."""
    stem, slash, begun = fixed_part(pattern).rpartition(b"/")
    return stem + slash + (b">" if begun or not slash else b"")


class _Node(Generic[T]):
    """What follows one prefix of tokens: more tokens, and who wants the channels that end or go on here."""

    __slots__ = ("below", "beyond", "ends", "literal", "prefix")

    def __init__(self) -> None:
        self.literal: dict[bytes, _Node[T]] = {}
        self.prefix: dict[bytes, _Node[T]] = {}
        self.ends: set[T] = set()  # the channel ends here
        self.below: set[T] = set()  # ``>``: at least one byte follows the separator
        self.beyond: set[T] = set()  # trailing separator: anything follows it, or nothing

    def empty(self) -> bool:
        return not (self.literal or self.prefix or self.ends or self.below or self.beyond)


class PatternIndex(Generic[T]):
    """Patterns of one separator and who holds them. A holder holds a pattern once; counting is the caller's."""

    def __init__(self, separator: bytes) -> None:
        self._separator = separator
        self._root: _Node[T] = _Node()

    def add(self, pattern: bytes, holder: T) -> None:
        node = self._root
        tokens, last = self._split(pattern)
        for token in tokens:
            branch, key = self._branch(node, token)
            node = branch.setdefault(key, _Node())
        self._holders(node, last).add(holder)

    def remove(self, pattern: bytes, holder: T) -> None:
        """Undo ``add``; nodes that became empty go with it."""
        node = self._root
        path = []
        tokens, last = self._split(pattern)
        for token in tokens:
            branch, key = self._branch(node, token)
            path.append((branch, key))
            node = branch[key]
        self._holders(node, last).discard(holder)
        for branch, key in reversed(path):
            if not branch[key].empty():
                break
            del branch[key]

    def match(self, channel: bytes) -> frozenset[T]:
        return frozenset().union(*self._found(channel))

    def reaches(self, channel: bytes, holder: T) -> bool:
        """Whether this holder is among those that ``match`` gives; it costs the same for any number of others."""
        return any(holder in holders for holders in self._found(channel))

    def _found(self, channel: bytes) -> list[set[T]]:
        """The holders of each pattern that matches."""
        names = channel.split(self._separator)
        depth_of_end = len(names)
        found = []
        open_nodes = [(self._root, 0)]
        while open_nodes:
            node, depth = open_nodes.pop()
            if depth == depth_of_end:
                found.append(node.ends)
                continue
            name = names[depth]
            if node.beyond:
                found.append(node.beyond)
            if node.below and (name or depth + 1 < depth_of_end):
                found.append(node.below)
            child = node.literal.get(name)
            if child:
                open_nodes.append((child, depth + 1))
            if node.prefix:
                open_nodes += [
                    (child, depth + 1) for prefix, child in node.prefix.items() if name.startswith(prefix)
                ]
        return found

    def empty(self) -> bool:
        return self._root.empty()

    def _split(self, pattern: bytes) -> tuple[list[bytes], bytes]:
        """The tokens to walk, and how the pattern ends: ``>``, the separator, or at its last token."""
        *tokens, last = pattern.split(self._separator)
        if last == b">":
            return tokens, b">"
        if not last:
            return tokens, self._separator
        return [*tokens, last], b""

    @staticmethod
    def _branch(node: _Node[T], token: bytes) -> tuple[dict[bytes, _Node[T]], bytes]:
        return (node.prefix, token[:-1]) if token.endswith(b"*") else (node.literal, token)

    @staticmethod
    def _holders(node: _Node[T], last: bytes) -> set[T]:
        if last == b">":
            return node.below
        return node.beyond if last else node.ends
