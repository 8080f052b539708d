"""Parts of missing numbers, and the samples of a long gap."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bccnd.uplink.fyrehose_parts import (
    ASKED,
    CRASH,
    CRASHES,
    HOPE,
    RANGE,
    SAMPLE_DISTANCE,
    SAMPLES_LEAST,
    SAMPLES_MOST,
    Part,
    samples_of,
)


def test_a_part_that_is_split_is_asked_for_as_before() -> None:
    part = Part(10, 30, ASKED)
    part.asks, part.due, part.doubtful = 3, 7.0, True
    rest = part.split(25)
    assert (part.first, part.after, rest.first, rest.after) == (10, 25, 25, 30)
    assert (rest.state, rest.asks, rest.due, rest.doubtful) == (ASKED, 3, 7.0, True)


def test_what_is_asked_for_in_vain_is_not_under_way() -> None:
    part = Part(10, 30, ASKED)
    part.asks = HOPE
    assert part.expected == 20
    part.doubtful = True
    assert part.expected == 0
    part.asks = 1
    assert part.expected == 20


@given(st.integers(1, 1 << 40), st.integers(1500, 1 << 47))
def test_samples_lie_apart_within_the_gap(first: int, size: int) -> None:
    samples = samples_of(first, first + size, first + size + RANGE)
    assert SAMPLES_LEAST - 2 <= len(samples) < SAMPLES_MOST + 2 * CRASHES
    edges = [first, *(edge for low, count in samples for edge in (low, low + count)), first + size]
    assert all(before < after for before, after in pairwise(edges))
    if size < SAMPLES_MOST * SAMPLE_DISTANCE:
        assert max(after - before for before, after in pairwise(edges)) <= max(
            SAMPLE_DISTANCE + RANGE, 3 * size // SAMPLES_LEAST
        )


def test_a_sample_is_where_a_crash_may_have_led_to() -> None:
    """The one before began as far below; first numbers of it went to nobody, or those of the last were missed."""
    for missed in (77, -77):
        end = 3 * CRASH + missed
        samples = samples_of(1000, end - RANGE, end)
        for begun in (CRASH, 2 * CRASH):
            assert any(low <= begun < low + count for low, count in samples)
