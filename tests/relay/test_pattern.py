"""Which channels a pattern means: the golden vectors, the index against the rule, one pattern within another."""

import gc
import itertools
import re
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.errors import PacketError
from bccnd.relay import pattern as module
from bccnd.relay.pattern import (
    SEPARATORS,
    PatternIndex,
    check,
    covers,
    fixed_part,
    has_wildcard,
    inner_stars,
    matches,
    pattern_cost,
)
from bccnd.relay.pattern import matcher as pattern_matcher
from bccnd.wire.bccn1 import Mode, mode_of
from tests.golden import entries, golden

thorough = settings(deadline=None, max_examples=300)

Matcher = Callable[[bytes, bytes, bytes], bool]


def by_index(pattern: bytes, separator: bytes, channel: bytes) -> bool:
    index = PatternIndex[str](separator)
    index.add(pattern, "holder")
    return index.match(channel) == {"holder"}


def by_matcher(pattern: bytes, separator: bytes, channel: bytes) -> bool:
    """Among others that match something else, or nothing."""
    return pattern_matcher([b"no", pattern, b"x.*/y"], separator)(channel)


def by_regular_expression(pattern: bytes, separator: bytes, channel: bytes) -> bool:
    """The rule once more, in another notation."""
    end = b""
    if pattern in (b"", b">") or pattern.endswith(separator + b">"):
        pattern, end = pattern[:-1], b".+"
    elif pattern.endswith(separator):
        end = b".*"
    star = b"[^%b]*" % re.escape(separator)
    return re.fullmatch(star.join(map(re.escape, pattern.split(b"*"))) + end, channel, re.DOTALL) is not None


@pytest.mark.parametrize("matcher", [matches, by_index, by_matcher, by_regular_expression])
def test_vectors(matcher: Matcher):
    wrong = [
        vector
        for vector in entries("patterns", "matches")
        if mode_of(channel := vector["channel"].encode()) is Mode.PLAIN
        and matcher(vector["pattern"].encode(), vector["separator"].encode(), channel) != vector["matches"]
    ]
    assert wrong == []


def test_patterns_of_the_vectors_are_accepted():
    for vector in entries("patterns", "matches"):
        check(vector["pattern"].encode(), vector["separator"].encode())


@pytest.mark.parametrize("vector", golden("patterns", "refused"))
def test_refused(vector: dict[str, Any]):
    with pytest.raises(PacketError) as caught:
        check(vector["pattern"].encode(), vector["separator"].encode())
    assert caught.value.code == vector["code"]
    assert caught.value.text.isprintable()


# Few letters, so that patterns and channels meet.
separators = st.sampled_from(SEPARATORS)
channels = st.text("ab/.>", min_size=1, max_size=7).map(str.encode)


@st.composite
def patterns(draw: st.DrawFn, separator: bytes) -> bytes:
    tokens = st.sampled_from([b"", b"a", b"b", b"ab", b"*", b"a*", b"ab*", b">", b"a>", b".", b"/"])
    pattern = separator.join(draw(st.lists(tokens, max_size=4)))
    try:
        check(pattern, separator)
    except PacketError:  # the other separator after a star
        return b""
    return pattern


@thorough
@given(st.data(), separators, channels)
def test_the_rule_in_two_notations(data: st.DataObject, separator: bytes, channel: bytes):
    pattern = data.draw(patterns(separator))
    assert matches(pattern, separator, channel) == by_regular_expression(pattern, separator, channel)


@thorough
@given(st.data(), separators, channels)
def test_pattern_facts_hold_for_all_its_channels(data: st.DataObject, separator: bytes, channel: bytes):
    pattern = data.draw(patterns(separator))
    if matches(pattern, separator, channel):
        assert channel.startswith(fixed_part(pattern))
        assert channel == pattern or has_wildcard(pattern, separator)


@thorough
@given(st.data(), separators)
def test_the_index_finds_who_the_rule_finds(data: st.DataObject, separator: bytes):
    """After any adding and removing, one pattern held by many and many by one; and nothing stays behind."""
    holdings = st.sets(st.tuples(patterns(separator), st.integers(0, 3)), max_size=12)
    held = data.draw(holdings)
    passing = data.draw(holdings) - held
    index = PatternIndex[int](separator)
    for pattern, holder in data.draw(st.permutations(sorted(held | passing))):
        index.add(pattern, holder)
    for pattern, holder in data.draw(st.permutations(sorted(passing))):
        index.remove(pattern, holder)
    for channel in data.draw(st.lists(channels, min_size=1, max_size=5)):
        expected = {holder for pattern, holder in held if matches(pattern, separator, channel)}
        assert index.match(channel) == expected
        assert {holder for holder in range(4) if index.count(channel, holder)} == expected
    for pattern, holder in data.draw(st.permutations(sorted(held))):
        assert not index.empty()
        index.remove(pattern, holder)
    assert index.empty()


@thorough
@given(st.text("ab*>/.!: \0\xe4", max_size=8).map(lambda text: text.encode("latin-1")), separators)
def test_exactly_the_patterns_that_can_match_are_accepted(pattern: bytes, separator: bytes):
    """An accepted one matches the channel that is its own text, with a letter for each star."""
    if re.search(rb"^!|[\0 :\x80-\xff]|\*(?!%b|\Z)" % re.escape(separator), pattern):
        with pytest.raises(PacketError, match="bad-pattern"):
            check(pattern, separator)
    else:
        check(pattern, separator)
        assert matches(pattern, separator, pattern.replace(b"*", b"x") or b"x")


def test_removing_one_holder_leaves_the_other():
    index = PatternIndex[str](b"/")
    index.add(b"a/*/>", "one")
    index.add(b"a/*/>", "two")
    index.remove(b"a/*/>", "one")
    assert index.match(b"a/b/c") == {"two"}


# What a pattern costs


def steps_of(index: PatternIndex[int], channel: bytes) -> tuple[int, int]:
    """The nodes that a look-up comes to, and the beginnings of the channel that it tries there."""
    nodes = tries = 0
    begun = module._Node.begun

    def counted(node: module._Node[int], rest: bytes) -> list[module._Branch[int]]:
        nonlocal nodes, tries
        nodes += 1
        tries += sum(length <= len(rest) for length in node.lengths)
        return begun(node, rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module._Node, "begun", counted)
        index.match(channel)
    return nodes, tries


def indexed(wanted: Iterable[bytes], holders: int = 1) -> PatternIndex[int]:
    index = PatternIndex[int](b"/")
    for pattern in wanted:
        for holder in range(holders):
            index.add(pattern, holder)
    return index


@thorough
@given(st.lists(patterns(b"/"), max_size=12, unique=True), channels)
def test_a_look_up_is_bounded_by_the_patterns(wanted: list[bytes], channel: bytes):
    """A node for each inner star and one more, a try for each pattern and inner star."""
    stars = sum(map(inner_stars, wanted))
    nodes, tries = steps_of(indexed(wanted), channel)
    assert nodes <= 1 + stars
    assert tries <= len(wanted) + stars


@pytest.mark.parametrize(
    ("wanted", "channel", "most"),
    [
        ([b"a" * length + b"*" for length in range(1024)], b"a" * 1024, (1, 1024)),
        ([b"a" * length + b"*" for length in range(1024)], b"a" * 12, (1, 13)),
        ([b"b" * length + b"*" for length in range(1024)], b"a" * 12, (1, 13)),
        ([b"%d*" % number for number in range(1024)], b"17/" + b"a" * 100, (1, 4)),
        ([b"%d/" % number + b"x/" * 500 for number in range(1024)], b"17/" + b"x/" * 500, (1, 4)),
        ([b"*/" * depth + b"x/" * 400 for depth in range(32)], b"x/" * 510, (32, 64)),
        ([b"a" * (n % 32) + b"*/" + b"a" * (n // 32) + b"*/no" for n in range(1024)], b"aaa/" * 3, (21, 49)),
    ],
    ids=["prefixes", "short", "missing", "many", "tokens", "stars", "grid"],
)
@pytest.mark.parametrize("holders", [1, 16])
def test_steps_of_hostile_patterns(wanted: list[bytes], channel: bytes, most: tuple[int, int], holders: int):
    """As many for sixteen clients as for one."""
    nodes, tries = steps_of(indexed(wanted, holders), channel)
    assert (nodes, tries) <= most
    assert tries <= most[1]


@pytest.mark.parametrize(
    "form",
    [
        lambda n: b"a/%d" % n,
        lambda n: b"%d*" % n,
        lambda n: b"%d/" % n,
        lambda n: b"a/%d/>" % n,
        lambda n: (b"%d/" % n + b"a/" * 600)[:1020],
        lambda n: (b"%d" % n + b"a" * 1020)[:1020],
        lambda n: (b"%d" % n + b"a" * 1020)[:1020] + b"*",
        lambda n: b"a" * (n % 900) + b"%d*" % n,
        lambda n: b"%d*/b" % n,
        lambda n: b"*/%d*/*/b" % n,
        lambda n: b"%d" % n + b"*/" * 31,
        lambda n: b"%d*" % n + b"/*/a%d" % n * 15,
    ],
    ids=[
        *("short", "prefix", "any", "below", "tokens", "token", "long-prefix", "lengths"),
        *("star", "inner", "only-stars", "chain"),
    ],
)
@pytest.mark.parametrize(("holders", "number_of_patterns"), [(1, 5), (1, 683), (2, 6), (2, 342), (5, 683)])
def test_the_cost_of_a_pattern_bounds_its_memory(
    form: Callable[[int], bytes], holders: int, number_of_patterns: int
):
    """What Python takes for the index and the sessions' keys, just after dicts have grown: never more than the cost;
    and no less than a quarter, where nothing is shared.
    """
    index = PatternIndex[object](b"/")
    held: list[dict[tuple[bytes, bytes], int]] = [{} for _ in range(holders)]
    gc.freeze()  # so that collections look at what the index makes, and not at all that pytest keeps
    gc.collect()  # also empties Python's lists of free objects, whose memory would not be traced
    tracemalloc.start()
    for number in range(number_of_patterns):
        for holder in range(holders):
            pattern = bytes(bytearray(form(number)))  # each client sends bytes of its own
            held[holder][b"/", pattern] = 1
            index.add(pattern, holder)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    charged = sum(pattern_cost(pattern) for each in held for _, pattern in each)
    assert taken <= charged
    assert holders > 1 or charged <= 4 * taken


def test_what_is_removed_leaves_no_memory():
    index = PatternIndex[int](b"/")
    wanted = [b"%d*/" % number + b"*/x" * 20 + b"/%d" % number for number in range(300)]
    for pattern in wanted:
        index.add(pattern, 1)
        index.add(pattern, 2)
    for pattern in wanted:
        index.remove(pattern, 1)
        index.remove(pattern, 2)
    root = index._root
    assert (root.ends, root.lengths, root.branches) == ({}, [], [])


# One pattern within another


@pytest.mark.parametrize(
    ("granted", "inside", "outside"),
    [
        (b"a/b", [b"a/b"], [b"a/*", b"a/b*", b"a/b/", b"a/b/>", b"a/", b"", b">", b"a"]),
        (b"a/*", [b"a/*", b"a/b", b"a/b*"], [b"a/>", b"a/", b"a/b/c", b"*", b"a/b/"]),
        (b"a/>", [b"a/>", b"a/b", b"a/b*", b"a/b/>", b"a//", b"a/*/c"], [b"a/", b"a/*", b"a", b"a*/b", b">"]),
        (b"a/", [b"a/", b"a/>", b"a/*", b"a/b/"], [b"a", b"a*", b""]),
        (b"a*/>", [b"a/>", b"ab/c", b"ab*/c/*"], [b"*/c", b"a*"]),
        (b">", [b"", b">", b"*", b"a/", b"/"], []),
        (b"", [b"", b">", b"*", b"a/", b"/"], []),
        (b"*", [b"*", b"a", b"a*"], [b"", b">", b"a/b", b"*/"]),
    ],
)
def test_granted_patterns_cover_narrower_ones(granted: bytes, inside: list[bytes], outside: list[bytes]):
    assert [pattern for pattern in inside if not covers(granted, pattern, b"/")] == []
    assert [pattern for pattern in outside if covers(granted, pattern, b"/")] == []


@pytest.mark.parametrize(
    ("granted", "inside", "outside"),
    [
        (b"a/>", [b"a/b", b"a/b.*", b"a/b.>", b"a/b.", b"a/b*"], [b"a/*", b"a", b"a.b", b"a.>", b">", b""]),
        (b"a/", [b"a/*", b"a/x.>"], [b"a*", b"a.>"]),
        (b"a.b", [b"a.b"], [b"a.*", b"a.", b"a.b.", b"a.b.>"]),
        (b">", [b"", b">", b"*", b"a.>", b"a."], []),
    ],
)
def test_granted_patterns_cover_the_other_separator(
    granted: bytes, inside: list[bytes], outside: list[bytes]
):
    assert [pattern for pattern in inside if not covers(granted, pattern, b".")] == []
    assert [pattern for pattern in outside if covers(granted, pattern, b".")] == []


@thorough
@given(patterns(b"/"), st.data(), separators, channels)
def test_no_channel_escapes_a_granted_pattern(
    granted: bytes, data: st.DataObject, separator: bytes, channel: bytes
):
    """The drawn channel, and some that are sure to match: the pattern's own text, its wildcards filled in."""
    pattern = data.draw(patterns(separator))
    filling = data.draw(st.sampled_from([b"", b"a", b"b", b".", b">"]))
    end = pattern[: len(pattern) - 1] if pattern.endswith(b">") else pattern
    if covers(granted, pattern, separator):
        for tried in (channel, pattern.replace(b"*", filling), end.replace(b"*", filling) + filling):
            if tried and matches(pattern, separator, tried):
                assert matches(granted, b"/", tried)


@thorough
@given(patterns(b"/"), patterns(b"/"))
def test_covering_is_exact_within_one_separator(granted: bytes, pattern: bytes):
    """What is not covered has a channel to show for it, and a short one."""
    if not covers(granted, pattern, b"/"):
        fillings = [*itertools.product([b"", b"b", b"zz"], [b"", b"b", b"/", b"/b", b"//"])]
        tried = [text.replace(b"*", star) + end for text in (pattern, pattern[:-1]) for star, end in fillings]
        escaping = [text for text in tried if text and matches(pattern, b"/", text)]
        assert any(not matches(granted, b"/", channel) for channel in escaping)
