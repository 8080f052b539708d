"""Which channels a pattern means: the golden vectors, the index against the rule, one pattern within another."""

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.errors import PacketError
from bccnd.relay.pattern import SEPARATORS, PatternIndex, check, covers, fixed_part, has_wildcard, matches
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
        assert {holder for holder in range(4) if index.reaches(channel, holder)} == expected
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
