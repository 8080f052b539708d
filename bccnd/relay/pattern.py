"""Which channels a pattern means (``clients/PROTOCOL.md``, "Channels and patterns").

    demo/tx     that channel           demo/*/in   ``*`` is the rest of one token, also nothing
    demo/>      all below ``demo/``    demo/       that separator and anything after it
    (empty)     every channel

``matches`` is the rule, one pure function. ``covers`` compares two patterns: what a right grants with what a client
asks for. Directed and all channels (``!...``) are never matched here; the router sees to them, and takes the ``!``
off the patterns that bridges have for them (``is_directed``).

``PatternIndex`` gives the same answer as ``matches`` for many patterns at once. Rules
- A pattern is cut at its wildcards. What lies between is one key, whatever its tokens: patterns without ``*`` in the
  middle are entries of two dicts, and only a ``*`` that something follows takes a node.
- A look-up tries, at each node that it comes to, one beginning of the channel for each length that a key has there:
  it takes at most one step for each byte of the channel and node, and one for each pattern and inner ``*`` in all.
- ``pattern_cost`` bounds the memory of a subscription; a test compares it with what Python takes.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from bccnd.errors import PacketError
from bccnd.relay.meter import Meter
from bccnd.wire.bccn1 import valid_chan
from bccnd.wire.sbus import PATTERN_LIMIT

SEPARATORS = (b"/", b".")

# What a node takes that a search comes to, and each length that it tries there.
NODE_STEPS = 3
LENGTH_STEPS = 1
# Bytes that a subscription takes, beside its own: keys, entries of dicts that are half empty, a set for its holders.
PATTERN_COST = 448
# Bytes that a ``*`` in the middle takes: a node with its dicts and lists, and the branch that leads to it.
STAR_COST = 480

T = TypeVar("T", bound=Hashable)


def is_directed(pattern: bytes) -> bool:
    """Whether it is for directed channels, which it matches by what follows the ``!`` of both. None is for what is
    directed to nobody, to secrets of sbus, or to all.
    """
    return len(pattern) > 1 and pattern.startswith(b"!") and pattern[1:2] not in b"!?/"


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


def may_meet(one: bytes, other: bytes) -> bool:
    """Whether two patterns, of whatever separators, can match the same channel, as far as their beginnings say."""
    begun, others = fixed_part(one), fixed_part(other)
    return begun.startswith(others) or others.startswith(begun)


def meet(one: bytes, other: bytes, separator: bytes) -> bool:
    """Whether two patterns of this separator have a channel in common; ``local/presence/...`` is not looked at."""
    if not one or not other:
        return True
    *ones, one_end = one.split(separator)
    *others, other_end = other.split(separator)
    if len(ones) > len(others):
        ones, one_end, others, other_end = others, other_end, ones, one_end
    if not all(map(_tokens_meet, ones, others)):
        return False
    one_open, other_open = one_end in (b"", b">"), other_end in (b"", b">")
    if len(ones) < len(others):
        return one_open
    return one_open or other_open or _tokens_meet(one_end, other_end)


def _tokens_meet(one: bytes, other: bytes) -> bool:
    if one.endswith(b"*"):
        begun = one[:-1]
        if other.endswith(b"*"):
            return begun.startswith(other[:-1]) or other[:-1].startswith(begun)
        return other.startswith(begun)
    return _token_matches(other, one)


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


def inner_stars(pattern: bytes) -> int:
    """How many ``*`` something follows."""
    return pattern[:-1].count(b"*")


def pattern_cost(pattern: bytes) -> int:
    """Bytes of memory that a subscription takes at most: its key and count in the session, its place in an index.

    As if nobody else held anything alike: whoever shares a key or a node pays for it, too.
    """
    return PATTERN_COST + 2 * len(pattern) + STAR_COST * inner_stars(pattern)


class _Branch(Generic[T]):
    """Who wants what goes on behind some bytes: the rest of their token, a byte at least, or anything; and the node
    for the patterns in which ``*`` and then more follows.

    A place that one holder has is the holder itself, one that several have is a set: most have one, and a set takes
    200 bytes.
    """

    __slots__ = ("below", "beyond", "inner", "literal", "rest")

    def __init__(self, literal: bytes) -> None:
        self.literal = literal
        self.rest: T | set[T] | None = None
        self.below: T | set[T] | None = None
        self.beyond: T | set[T] | None = None
        self.inner: _Node[T] | None = None

    def behind_star(self) -> "_Node[T]":
        """The node behind the star; it is made if need be."""
        if self.inner is None:
            self.inner = _Node()
        return self.inner

    def empty(self) -> bool:
        return self.rest is self.below is self.beyond is self.inner is None


class _Node(Generic[T]):
    """Patterns from one place on, the beginning or behind a ``*``, by the bytes up to their next wildcard.

    ``ends``: those without one. ``branches``: the others, in the order of their ``lengths``; several of one length
    are a dict.
    """

    __slots__ = ("branches", "ends", "lengths")

    def __init__(self) -> None:
        self.ends: dict[bytes, T | set[T]] = {}
        self.lengths: list[int] = []
        self.branches: list[_Branch[T] | dict[bytes, _Branch[T]]] = []

    def empty(self) -> bool:
        return not (self.ends or self.lengths)

    def branch(self, literal: bytes) -> _Branch[T]:
        """The branch of these bytes; it is made if need be."""
        at = bisect_left(self.lengths, len(literal))
        if self.lengths[at : at + 1] != [len(literal)]:
            self.lengths.insert(at, len(literal))
            self.branches.insert(at, _Branch(literal))
        found = self.branches[at]
        if not isinstance(found, dict):
            if found.literal == literal:
                return found
            self.branches[at] = found = {found.literal: found}
        if literal not in found:
            found[literal] = _Branch(literal)
        return found[literal]

    def begun(self, rest: bytes) -> list[_Branch[T]]:
        """The branches whose bytes ``rest`` begins with, the shortest first: a step for each length."""
        found = []
        for length, branch in zip(self.lengths, self.branches, strict=True):
            if length > len(rest):
                break
            if isinstance(branch, dict):
                among = branch.get(rest[:length])
                if among is not None:
                    found.append(among)
            elif rest.startswith(branch.literal):
                found.append(branch)
        return found

    def drop(self, branch: _Branch[T]) -> None:
        """Remove a branch of this node."""
        at = bisect_left(self.lengths, len(branch.literal))
        alike = self.branches[at]
        if not isinstance(alike, dict):
            del self.lengths[at], self.branches[at]
            return
        del alike[branch.literal]
        if len(alike) == 1:
            (self.branches[at],) = alike.values()


class PatternIndex(Generic[T]):
    """Patterns of one separator and who holds them. A holder holds a pattern once; counting is the caller's.

    ``meter``: counts what searches cost.
    """

    def __init__(self, separator: bytes, meter: Meter | None = None) -> None:
        self._meter = meter or Meter()
        self._separator = separator
        self._root: _Node[T] = _Node()

    def add(self, pattern: bytes, holder: T) -> None:
        node = self._root
        inner, literal, place = self._split(pattern)
        for each in inner:
            node = node.branch(each).behind_star()
        if place == "ends":
            node.ends[literal] = _with(node.ends.get(literal), holder)
        else:
            branch = node.branch(literal)
            setattr(branch, place, _with(getattr(branch, place), holder))

    def remove(self, pattern: bytes, holder: T) -> None:
        """Undo ``add``; what became empty goes with it."""
        node = self._root
        path = []
        inner, literal, place = self._split(pattern)
        for each in inner:
            branch = node.branch(each)
            path.append((node, branch))
            node = branch.behind_star()
        if place == "ends":
            left = _without(node.ends.pop(literal), holder)
            if left is not None:
                node.ends[literal] = left
        else:
            branch = node.branch(literal)
            setattr(branch, place, _without(getattr(branch, place), holder))
            if branch.empty():
                node.drop(branch)
        while path and node.empty():
            node, branch = path.pop()
            branch.inner = None
            if branch.empty():
                node.drop(branch)

    def match(self, channel: bytes) -> frozenset[T]:
        found = self._found(channel)
        return frozenset([held for held in found if not isinstance(held, set)]).union(
            *[held for held in found if isinstance(held, set)]
        )

    def count(self, channel: bytes, holder: T) -> int:
        """How many patterns of this holder match."""
        return sum(
            [holder in held if isinstance(held, set) else holder == held for held in self._found(channel)]
        )

    def _found(self, channel: bytes) -> list[T | set[T]]:
        """The holders of each pattern that matches."""
        found: list[T | set[T]] = []
        separator = self._separator
        open_nodes = [(self._root, channel)]
        while open_nodes:
            node, rest = open_nodes.pop()
            self._meter.steps += NODE_STEPS + LENGTH_STEPS * len(node.lengths)
            size, end = len(rest), rest.find(separator)
            held = node.ends.get(rest)
            if held is not None:
                found.append(held)
            for branch in node.begun(rest):
                length = len(branch.literal)
                if 0 <= end < length:
                    end = rest.find(separator, length)
                if branch.beyond is not None:
                    found.append(branch.beyond)
                if branch.below is not None and length < size:
                    found.append(branch.below)
                if end < 0:
                    if branch.rest is not None:
                        found.append(branch.rest)
                elif branch.inner is not None:
                    open_nodes.append((branch.inner, rest[end:]))
        return found

    def empty(self) -> bool:
        return self._root.empty()

    def _split(self, pattern: bytes) -> tuple[list[bytes], bytes, str]:
        """The bytes before each ``*`` that something follows; those up to the end or the last wildcard; and their
        place in a branch or node.
        """
        *inner, literal = pattern.split(b"*")
        if not literal and inner:
            return inner[:-1], inner[-1], "rest"
        if literal == b">" or literal.endswith(self._separator + b">"):
            return inner, literal[:-1], "below"
        if not literal or literal.endswith(self._separator):
            return inner, literal, "beyond"
        return inner, literal, "ends"


def _with(held: T | set[T] | None, holder: T) -> T | set[T]:
    if held is None:
        return holder
    if isinstance(held, set):
        held.add(holder)
        return held
    return {held, holder}


def _without(held: T | set[T], holder: T) -> T | set[T] | None:
    if not isinstance(held, set):
        return None
    held.discard(holder)
    return held if len(held) > 1 else held.pop()
