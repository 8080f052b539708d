"""The text of repair: what is said is understood, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.wire.bccn1 import SEQ_LIMIT
from bccnd.wire.repair import (
    OFFSET_LIMIT,
    PAYLOAD_LIMIT,
    RANGES_LIMIT,
    Gone,
    Last,
    Plain,
    Relayed,
    Resend,
    last_payload,
    number_payloads,
    parse,
    plain_payloads,
    relayed_payloads,
)

SRC = b"a/prog/1"
SOURCES = st.sampled_from([SRC, b"b/prog/2", b"h" * 64 + b"/" + b"p" * 32 + b"/4194304/c/12"])


@st.composite
def ranges(draw: st.DrawFn) -> list[range]:
    """In rising order, with something between them."""
    at, found = draw(st.integers(0, 2**63)), []
    for gap, length in draw(
        st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), min_size=1, max_size=400)
    ):
        found.append(range(at + gap, at + gap + length))
        at += gap + length
    return found


@given(
    st.lists(st.tuples(SOURCES, ranges()), max_size=4),
    st.sampled_from([(b"resend", Resend), (b"gone", Gone)]),
)
def test_all_numbers_arrive_in_payloads_of_bounded_size(
    numbers: list[tuple[bytes, list[range]]], kind: tuple[bytes, type[Resend | Gone]]
) -> None:
    heard: list[tuple[bytes, range]] = []
    for payload in number_payloads(kind[0], numbers):
        assert len(payload) <= PAYLOAD_LIMIT
        message = parse(payload)
        assert isinstance(message, kind[1])
        assert sum(len(each) for _, each in message.numbers) <= RANGES_LIMIT
        heard += [(src, each) for src, found in message.numbers for each in found]
    assert heard == [(src, each) for src, found in numbers for each in found]


@given(st.lists(st.tuples(SOURCES, st.integers(0, 9), st.integers(9, SEQ_LIMIT - 1)), max_size=90))
def test_last_numbers_fill_one_payload(lines: list[tuple[bytes, int, int]]) -> None:
    sources = [(src, first or None, last) for src, first, last in lines]
    payload = last_payload(sources)
    if not sources:
        assert payload == b""
        return
    message = parse(payload)
    assert isinstance(message, Last)
    assert list(message.sources) == sources[: len(message.sources)]
    assert len(payload) <= PAYLOAD_LIMIT


def test_sources_that_nobody_keeps_are_named():
    assert [parse(payload) for payload in plain_payloads([SRC, b"b"])] == [Plain((SRC, b"b"))]


def test_sources_that_a_bridge_brings_are_named():
    assert [parse(payload) for payload in relayed_payloads([SRC, b"b"])] == [Relayed((SRC, b"b"))]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"resend",
        b"resend\n",
        b"resend\na/prog/1",
        b"resend\na/prog/1 5",
        b"resend\na/prog/1 5 ",
        b"resend\na/prog/1 5 1-0",
        b"resend\na/prog/1 5 3,3",
        b"resend\na/prog/1 5 3,2",
        b"resend\na/prog/1 5 -1",
        b"resend\na/prog/1 5 1,",
        b"resend\na/prog/1 5 1 2",
        b"resend\n? 5 1",
        b"resend\na:b 5 1",
        b"resend\na/prog/1 18446744073709551615 1",
        b"resend\na/prog/1 18446744073709551616 0",
        b"resend\na/prog/1 5 %d" % OFFSET_LIMIT,
        b"resend\na/prog/1 5 0-%d" % OFFSET_LIMIT,
        b"resend\na/prog/1 5 00000001",
        b"resend\na/prog/1 5 " + b",".join(b"%d" % (2 * n) for n in range(RANGES_LIMIT + 1)),
        b"resend" + b"\na/p/1 5 0" * (RANGES_LIMIT + 1),
        b"last\na/prog/1 7-5",
        b"last\na/prog/1 18446744073709551616",
        b"last\na/prog/1 1-",
        b"last\na/prog/1",
        b"last\n? 5",
        b"plain\n?",
        b"plain\n",
        b"other\na/prog/1 5",
        b"last\n" + b"a" * PAYLOAD_LIMIT + b" 5",
    ],
)
def test_what_breaks_a_rule_says_nothing(payload: bytes) -> None:
    assert parse(payload) is None


@given(st.binary(max_size=2048))
def test_any_bytes_are_parsed_without_a_fault(payload: bytes) -> None:
    for word in (b"", b"last\n", b"resend\n", b"gone\n", b"plain\n"):
        parse(word + payload)


def test_the_largest_range_is_as_large_as_a_jump():
    (payload,) = number_payloads(b"resend", [(SRC, [range(1, 1 + OFFSET_LIMIT)])])
    assert parse(payload) == Resend(((SRC, (range(1, 1 + OFFSET_LIMIT),)),))
