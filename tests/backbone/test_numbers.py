"""Sequence numbers below a bound that is raised ahead of use."""

from hypothesis import given
from hypothesis import strategies as st

from bccnd.backbone.numbers import MARGIN, RESERVE, Numbers
from bccnd.wire.fyrehose import SEQ_LIMIT


def test_without_a_bound_there_is_no_number() -> None:
    numbers = Numbers()
    assert numbers.take() == 0
    assert numbers.wanted == 1 + RESERVE
    numbers.bound = 3
    assert [numbers.take() for _ in range(4)] == [1, 2, 0, 0]
    numbers.bound = 8
    assert [numbers.take(4), numbers.take(2), numbers.left, numbers.take(1)] == [3, 0, 1, 7]


def test_a_bound_is_wanted_when_half_of_the_reserve_is_used() -> None:
    numbers = Numbers(10)
    numbers.bound = numbers.wanted
    assert numbers.wanted == 0
    numbers.next = numbers.bound - MARGIN
    assert numbers.wanted == 0
    numbers.next += 1
    assert numbers.wanted == numbers.next + RESERVE


def test_the_last_number_has_48_bits() -> None:
    numbers = Numbers(SEQ_LIMIT - 2)
    numbers.bound = numbers.wanted
    assert numbers.bound == SEQ_LIMIT
    assert [numbers.take() for _ in range(3)] == [SEQ_LIMIT - 2, SEQ_LIMIT - 1, 0]
    assert numbers.wanted == 0
    assert numbers.used_up


@given(st.lists(st.one_of(st.just(None), st.integers(1, 5)), max_size=50))
def test_no_number_is_given_twice_whatever_dies(steps: list[int | None]) -> None:
    """None is a crash: all that is left is what was stored."""
    stored, numbers, given_out = 1, Numbers(), []
    for step in steps:
        if step is None:
            numbers = Numbers(stored)
        elif numbers.wanted:
            stored = numbers.bound = numbers.wanted
        given_out += [seq for _ in range(step or 0) if (seq := numbers.take())]
    assert given_out == sorted(set(given_out))
    assert all(seq < stored for seq in given_out)
