"""Payloads that have begun: what is kept of them, and that all of it is accounted for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpmux import chunks
from bpmux.errors import BpmuxError
from bpmux.limits import Limits
from bpmux.payloads import ENDINGS, Unfinished

LIMITS = Limits(channels=1, requests=1, payload=10, unfinished=15, refused=0)


def test_a_payload_is_whole_once_its_last_byte_is_there() -> None:
    unfinished = Unfinished(LIMITS)
    payload = unfinished.begin(chunks.MESSAGE, 1, 4)
    payload.promise(3)
    unfinished.add(payload, b"ab")
    unfinished.add(payload, b"c")
    assert not payload.is_whole
    assert (unfinished.held, unfinished.get(chunks.MESSAGE, 1)) == (3, payload)
    payload.promise(1)
    unfinished.add(payload, b"d")
    assert payload.is_whole
    assert payload.kept == b"abcd"
    unfinished.end(chunks.MESSAGE, 1)
    assert (unfinished.held, len(unfinished), unfinished.get(chunks.MESSAGE, 1)) == (0, 0, None)


def test_more_than_the_total_is_a_fault() -> None:
    payload = Unfinished(LIMITS).begin(chunks.MESSAGE, 1, 4)
    payload.promise(4)
    with pytest.raises(BpmuxError, match="partial: 5 bytes of 4"):
        payload.promise(1)


@pytest.mark.parametrize("kind", sorted(chunks.PAYLOAD_KINDS))
def test_what_is_too_long_is_counted_and_not_kept(kind: int) -> None:
    """Of a Close or Cancel the beginning is."""
    unfinished = Unfinished(LIMITS)
    payload = unfinished.begin(kind, 1, 2**64 - 1)
    unfinished.add(payload, bytes(8))
    unfinished.add(payload, bytes(8))
    assert payload.received == 16
    assert (payload.is_kept, len(payload.kept)) == ((True, 10) if kind in ENDINGS else (False, 0))
    assert unfinished.held == len(payload.kept)


def test_all_together_are_bounded_and_who_goes_beyond_pays() -> None:
    unfinished = Unfinished(LIMITS)
    first, second = unfinished.begin(chunks.MESSAGE, 1, 10), unfinished.begin(chunks.MESSAGE, 2, 10)
    unfinished.add(first, bytes(10))
    unfinished.add(second, bytes(5))
    assert unfinished.held == 15
    unfinished.add(second, bytes(1))
    assert (first.is_kept, second.is_kept, unfinished.held) == (True, False, 10)


def test_too_many_that_never_end_are_a_fault() -> None:
    unfinished = Unfinished(LIMITS)
    for ident in range(10):
        unfinished.begin(chunks.CANCEL_REQUEST, ident, 1)
    with pytest.raises(BpmuxError, match="limit"):
        unfinished.begin(chunks.CANCEL_REQUEST, 10, 1)


def test_an_opening_is_found_whatever_it_opens() -> None:
    unfinished = Unfinished(LIMITS)
    assert unfinished.opening(1) is None
    for kind in (chunks.SINK, chunks.STREAM, chunks.DUPLEX):
        payload = unfinished.begin(kind, 1, 4)
        assert unfinished.opening(1) is payload
        unfinished.end(kind, 1)


@given(st.lists(st.tuples(st.sampled_from(range(13)), st.integers(0, 20), st.integers(0, 20)), max_size=40))
def test_what_is_held_is_the_sum(steps: list[tuple[int, int, int]]) -> None:
    unfinished = Unfinished(Limits(payload=10, unfinished=15))
    for kind, total, size in steps:
        payload = unfinished.get(kind, 0) or unfinished.begin(kind, 0, total)
        unfinished.add(payload, bytes(size))
        assert unfinished.held == sum(len(each.kept) for each in unfinished._payloads.values()) <= 15
        if size % 3 == 0:
            unfinished.end(kind, 0)
