"""Which numbers are asked for, without a network."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.uplink.fyrehose_missing import (
    AGAIN_MOST,
    AHEAD,
    CATCHING_UP,
    LONG,
    PARTS_LIMIT,
    RANGE,
    REQUESTS,
    REQUESTS_AT_ONCE,
    SOONEST,
    SPREAD,
    WINDOW_MOST,
    Missing,
)

TRIES = 24


@dataclass
class Asker:
    """Asks on time. ``keeps``: whether somebody answers for a number, at once; ``mine``: what the own archive has.
    ``requests``: what was asked for, and when.
    """

    missing: Missing
    keeps: Callable[[int], bool] = lambda _: False
    mine: set[int] = field(default_factory=set)
    now: float = 100.0
    requests: list[tuple[float, int, int]] = field(default_factory=list)
    came: set[int] = field(default_factory=set)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.missing.next_deadline()) <= end:
            self.now = max(self.now, due)
            for first, last in self.missing.ask(self.now, self._own):
                assert 0 <= last - first < RANGE
                self.requests.append((self.now, first, last))
                for seq in filter(self.keeps, range(first, last + 1)):
                    if self.missing.take(seq, self.now):
                        self.came.add(seq)
        self.now = end

    def _own(self, first: int, last: int) -> Iterable[int]:
        for seq in range(first, last + 1):
            if seq in self.mine and seq in self.missing:
                self.came.add(seq)
                yield seq


def missing(first: int = 1, tries: int = TRIES, patience: float = 10.0) -> Missing:
    return Missing(first, random.Random(1).random, tries, patience)


def test_what_follows_itself_is_not_asked_for() -> None:
    made = missing()
    asker = Asker(made)
    assert all(made.take(seq, 100.0) for seq in range(1, 100))
    asker.run(60.0)
    assert (made.complete, made.behind, asker.requests) == (100, 0, [])
    assert not made.take(5, 100.0)


def test_what_was_only_overtaken_is_not_asked_for() -> None:
    made = missing()
    asker = Asker(made)
    made.take(2, 100.0)
    assert (made.complete, made.behind, made.ahead) == (1, 1, 1)
    asker.run(SOONEST / 2)
    assert made.take(1, asker.now)
    asker.run(60.0)
    assert (made.complete, made.repaired, asker.requests) == (3, 0, [])


def test_what_is_lost_is_asked_for_and_comes() -> None:
    made = missing()
    asker = Asker(made, keeps=lambda _: True)
    made.take(11, 100.0)
    asker.run(SOONEST + SPREAD)
    assert [request[1:] for request in asker.requests] == [(1, 10)]
    assert (made.complete, made.asked, made.repaired, made.lost) == (12, 10, 10, 0)


def test_what_nobody_keeps_is_given_up_and_counted() -> None:
    made = missing()
    asker = Asker(made)
    made.take(3, 100.0)
    asker.run(5.0)
    assert made.complete == 1
    asker.run(20.0)
    assert (made.complete, made.lost, made.behind) == (4, 2, 0)
    assert 5 < len(asker.requests) <= TRIES
    gaps = [
        after - before for (before, *_), (after, *_) in zip(asker.requests, asker.requests[1:], strict=False)
    ]
    assert gaps[0] < gaps[-1] <= AGAIN_MOST * 1.25 + 0.01


def test_numbers_near_to_each_other_share_a_request() -> None:
    made = missing()
    asker = Asker(made)
    for seq in (2, 4, 7, 300):
        made.take(seq, 100.0)
    asker.run(SOONEST + SPREAD)
    assert [request[1:] for request in asker.requests] == [(1, 6), (8, 263), (264, 299)]


def test_a_stranger_may_answer_only_what_was_asked_for() -> None:
    made = missing()
    asker = Asker(made)
    made.take(3, 100.0)
    assert not made.is_asked_for(1)
    asker.run(SOONEST + SPREAD)
    assert made.is_asked_for(1)
    assert not made.is_asked_for(3)
    assert not made.is_asked_for(4)


def test_a_crash_of_the_backbone_costs_few_requests() -> None:
    """A million numbers that never existed, but for some at both ends."""
    jump = 1 << 20
    made = missing()
    asker = Asker(made, keeps=lambda seq: seq <= 20 or seq > jump - 30)
    made.take(jump, 100.0)
    asker.run(30.0)
    assert asker.came == {*range(1, 21), *range(jump - 29, jump)}
    assert made.complete == jump + 1
    assert len(asker.requests) < 700
    assert made.lost == 0
    assert made.skipped == jump - 1 - len(asker.came)


def test_what_never_existed_is_passed_over_soon() -> None:
    made = missing()
    asker = Asker(made)
    made.take(1 << 20, 100.0)
    asker.run(2.0)
    assert (made.complete, made.behind) == ((1 << 20) + 1, 0)
    assert len(asker.requests) < 400


@pytest.mark.parametrize(("unheard", "missed"), [(0, 90), (1, 0), (200, 0)])
def test_an_island_between_two_crashes_is_found(unheard: int, missed: int) -> None:
    """It has begun where the backbone began with the number that it had reserved, and gave few. ``unheard``: its
    first numbers, which went to nobody; ``missed``: the first ones of the last backbone.
    """
    island = range((1 << 20) + unheard, (1 << 20) + 600)
    made = missing()
    asker = Asker(made, keeps=lambda seq: seq in island)
    made.take((2 << 20) + missed, 100.0)
    asker.run(5.0)
    assert asker.came == set(island)
    assert made.complete == made.next


def test_tries_that_no_backbone_heard_do_not_count() -> None:
    made = missing()
    asker = Asker(made)
    made.take(1 << 20, 100.0)
    made.alive = False
    asker.run(10.0)
    assert made.behind == (1 << 20) - 1
    made.alive = True
    asker.keeps = lambda seq: seq < 1000
    asker.run(5.0)
    assert asker.came == set(range(1, 1000))
    assert made.complete == made.next


def test_what_is_doubtful_takes_no_room_from_what_is_missing() -> None:
    """Repair goes on while a crash is found out about."""
    made = missing()
    asker = Asker(made, keeps=lambda seq: seq > 1 << 20)
    made.take(1 << 20, 100.0)
    wanted = range((1 << 20) + 1, (1 << 20) + 8000, 40)
    for seq in wanted:
        made.take(seq + 39, asker.now)
        asker.run(0.01)
    asker.run(0.5)
    assert made.next - (1 << 20) - 1 == len(asker.came) + len(wanted)


def test_before_and_after_a_crash_much_may_be_kept() -> None:
    """Who was away for long finds the edges of what never existed."""
    low, high, end = 30_000, 1_040_000, 1 << 20
    made = missing()
    asker = Asker(made, keeps=lambda seq: seq <= low or seq >= high)
    made.take(end, 100.0)
    asker.run(120.0)
    assert asker.came == {*range(1, low + 1), *range(high, end)}
    assert made.complete == end + 1
    assert len(asker.requests) < 3000


def test_next_to_what_comes_no_survey_is_waited_for() -> None:
    """A survey without an end; there are more numbers at both ends than are asked for at first."""
    low, high, end = 3000, (1 << 20) - 2000, 1 << 20
    made = missing(tries=1 << 20, patience=1e9)
    asker = Asker(made, keeps=lambda seq: seq <= low or seq >= high)
    made.take(end, 100.0)
    asker.run(10.0)
    assert asker.came == {*range(1, low + 1), *range(high, end)}
    assert made.asked < len(asker.came) + 4 * RANGE + LONG


def test_the_younger_part_that_is_kept_comes() -> None:
    made = missing()
    asker = Asker(made, keeps=lambda seq: seq > 150_000)
    made.take(200_000, 100.0)
    asker.run(120.0)
    assert asker.came == set(range(150_001, 200_000))
    assert len(asker.requests) < 2500


def test_the_longest_gap_of_all_ends_soon() -> None:
    made = missing()
    asker = Asker(made)
    made.take((1 << 48) - 1, 100.0)
    asker.run(60.0)
    assert made.complete == 1 << 48
    assert len(asker.requests) < 64 * TRIES + 200


def test_requests_have_a_rate() -> None:
    made = missing()
    asker = Asker(made)
    for seq in range(1, 40 * 1000, 40):
        made.take(seq, 100.0)
    asker.run(1.0)
    assert len(asker.requests) <= REQUESTS + REQUESTS_AT_ONCE + 1


def test_numbers_under_way_have_an_end() -> None:
    made = missing()
    asker = Asker(made)
    made.take(LONG, 100.0)
    asker.run(SOONEST + SPREAD + 0.001)
    assert sum(last - first + 1 for _, first, last in asker.requests) <= WINDOW_MOST


def test_parts_have_an_end() -> None:
    made = missing()
    for seq in range(2, 4 * PARTS_LIMIT, 2):
        made.take(seq, 100.0)
    assert made.behind <= PARTS_LIMIT
    assert made.lost >= PARTS_LIMIT - 1
    assert made.complete > 2 * PARTS_LIMIT - 2


def test_a_survey_ends_although_its_parts_had_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.uplink.fyrehose_missing.PARTS_LIMIT", 64)
    made = missing(tries=3)
    made.take(1 << 20, 100.0)
    lowest = made._parts[0]
    while made._parts[0] is lowest or made._parts[0].index != 0:
        made.take(made.next + 1, 100.0)  # until the first sample is the lowest
    made.take(made.next + 1, 100.0)
    asker = Asker(made)
    asker.run(60.0)
    assert (made.complete, made.behind) == (made.next, 0)


def test_the_own_archive_comes_first() -> None:
    made = missing()
    asker = Asker(made, mine=set(range(1, 90)))
    made.take(100, 100.0)
    asker.run(1.0)
    assert asker.came == set(range(1, 90))
    assert {request[1:] for request in asker.requests} == {(90, 99)}
    assert made.repaired == 0


def test_what_is_new_waits_while_much_is_missing() -> None:
    made = missing()
    for seq in range(1, AHEAD + 2):
        made.take(seq + 1, 100.0)
    assert not made.catches_up
    made.take(made.next + CATCHING_UP + 1, 100.0)
    assert made.catches_up
    first = made.next
    for seq in range(first, first + 1000):
        made.defer(seq, 100.0)
    made.defer(first, 100.0)  # once more
    assert made.next == first + 1000
    asker = Asker(made, keeps=lambda seq: seq < first, mine=set(range(first, first + 1000)))
    asker.run(30.0)
    assert made.complete == made.next
    assert set(range(first, first + 1000)) <= asker.came


def test_after_a_cut_tries_begin_anew() -> None:
    made = missing(tries=3)
    asker = Asker(made)
    made.take(3, 100.0)
    asker.run(0.1)
    made.restart()
    before = len(asker.requests)
    asker.run(30.0)
    assert len(asker.requests) == before + 3
    assert made.lost == 2


@settings(max_examples=60, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(["come", "late", "defer", "wait", "restart"]), st.integers(1, 3000)),
             max_size=60),
    st.integers(0, 6),
)  # fmt: skip
def test_each_number_comes_or_is_given_up(steps: list[tuple[str, int]], kept: int) -> None:
    """Whatever happens, in the end nothing is missing, and each came once, or is counted."""
    made = missing(tries=3, patience=5.0)
    asker = Asker(made, keeps=lambda seq: seq % 7 < kept)
    for step, size in steps:
        if step == "come":
            seq = made.next + size // 50 if size < 2900 else made.next + size
            assert made.take(seq, asker.now)
            asker.came.add(seq)
        elif step == "late":
            seq = max(1, made.next - size)
            if made.take(seq, asker.now):
                assert seq not in asker.came
                asker.came.add(seq)
        elif step == "defer":
            asker.mine.add(made.next)
            made.defer(made.next, asker.now)
        elif step == "restart":
            made.restart()
        else:
            asker.run(size / 1000)
        assert 0 <= made.behind <= made.next - made.complete
        assert made.ahead >= 0
    asker.run(200.0)
    assert (made.complete, made.behind, made.ahead) == (made.next, 0, 0)
    assert made.next_deadline() == float("inf")
    assert asker.mine <= asker.came
