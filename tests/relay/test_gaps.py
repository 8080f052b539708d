"""What is missing, what waits behind it, and when it is asked for or given up."""

from collections import Counter
from collections.abc import ValuesView
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.relay.accounts import Source
from bccnd.relay.deadlines import Alarm
from bccnd.relay.dedup import JUMP
from bccnd.relay.gaps import (
    AGAIN_SECONDS,
    ASKS_LIMIT,
    ENDING_LIMIT,
    GAPS_LIMIT,
    KEPT_SECONDS,
    PARTS_LIMIT,
    PATIENCE,
    PLAIN,
    RELEASED_AT_ONCE,
    SOONEST,
    SPREAD,
    Gap,
    Gaps,
    Held,
)
from bccnd.relay.options import KIB, Repair

SRC = b"there/prog/1"
HOLD = 0.1


def gaps_of(chance: float = 0.5, **options: float) -> Gaps:
    return Gaps(Repair(hold_seconds=HOLD, **options), Alarm(), lambda: chance)


def source_at(last: int, peer: str = "10.0.0.2:5400") -> Source:
    source = Source(last, 0.0)
    source.peer = peer
    return source


def opened(
    gaps: Gaps,
    *missing: range,
    last: int = 1000,
    now: float = 0.0,
    src: bytes = SRC,
    peer: str = "10.0.0.2:5400",
) -> Gap:
    source = source_at(last, peer)
    for numbers in missing:
        gap = gaps.open(src, source, numbers, now)
    assert gap
    return gap


def held(seq: int, size: int = 10) -> Held:
    return Held(seq, b"a", b"x" * size, b"10.0.0.2:5400", b"eth0", False)


def numbers_of(gap: Gap) -> list[int]:
    return [number for part in gap.missing for number in part.numbers]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60), st.integers(0, 12)), max_size=30))
def test_numbers_come_and_go_as_in_a_set(steps: list[tuple[bool, int, int]]) -> None:
    gaps, model = gaps_of(), set(range(100, 101))
    gap = opened(gaps, range(100, 101))
    for is_missing, first, count in steps:
        numbers = range(first, first + count)
        if is_missing:
            gaps.open(SRC, gap.source, numbers, 0.0)
            model |= set(numbers)
        else:
            assert gap.cut(numbers) == len(model & set(numbers))
            model -= set(numbers)
        assert numbers_of(gap) == sorted(model)
        assert all((gap.find(number) >= 0) is (number in model) for number in range(101))


def test_what_came_already_is_not_missing():
    gaps = gaps_of()
    gap = gaps.open(SRC, source_at(9), range(1, 10), 0.0, known=(3, 4, 50))
    assert gap
    assert numbers_of(gap) == [1, 2, 5, 6, 7, 8, 9]


def test_messages_wait_until_nothing_below_them_is_missing():
    gaps = gaps_of()
    gap = opened(gaps, range(5, 7), range(9, 10))
    for seq in (8, 7, 10, 11):
        gaps.put(gap, held(seq))
    assert gaps.ready(gap) == []
    gap.take(5, 0.0)
    gaps.put(gap, held(5))
    assert [each.seq for each in gaps.ready(gap)] == [5]
    gap.take(6, 0.0)
    gaps.put(gap, held(6))
    assert [each.seq for each in gaps.ready(gap)] == [6, 7, 8]
    assert gap.source.gap is gap
    gap.cut(range(9, 10))
    assert [each.seq for each in gaps.ready(gap)] == [10, 11]
    assert gap.source.gap is None
    assert (len(gaps), gaps.size, gaps.held) == (0, 0, 0)


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_a_number_is_asked_for_after_a_while(chance):
    gaps = gaps_of(chance)
    opened(gaps, range(5, 7))
    due = gaps.next_deadline()
    assert SOONEST <= due <= SOONEST + SPREAD
    assert list(gaps.due(due - 0.0001)) == []
    (gap,) = gaps.due(due)
    assert list(gaps.ask(gap, due, due)) == [range(5, 7)]
    gaps.plan(gap)
    assert gaps.next_deadline() >= due + AGAIN_SECONDS


def test_the_more_may_ask_the_fewer_ask_early():
    def early(group: int) -> int:
        count = 0
        for step in range(100):
            gaps = gaps_of(step / 100)
            gaps.group = group
            opened(gaps, range(1, 2))
            count += gaps.next_deadline() < SOONEST + SPREAD / 2
        return count

    assert early(1) > early(8) > early(64)
    assert early(64) <= 10


def test_asking_ends_after_some_rounds():
    gaps = gaps_of()
    gap = opened(gaps, range(5, 7))
    assert [list(gaps.ask(gap, 10.0 * step, 10.0 * step)) for step in range(1, ASKS_LIMIT + 1)] == [
        [range(5, 7)]
    ] * ASKS_LIMIT
    assert list(gaps.ask(gap, 1e9, 1e9)) == []


def test_a_number_that_all_requests_missed_holds_up_no_longer():
    gaps = gaps_of()
    gap = opened(gaps, range(5, 7))
    now = rounds = 0.0
    while gap.missing:
        now += 0.002
        rounds += bool(list(gaps.ask(gap, now, now)))
        gap.progress = now  # others of its numbers come
        gaps.expire(gap, now)
    assert rounds == ASKS_LIMIT
    assert now < HOLD * PATIENCE / 2


def test_requests_count_anew_when_one_of_a_row_comes():
    """As long as it is waited for at all, whatever comes of it."""
    gaps = gaps_of()
    gap = opened(gaps, range(1000), range(2000, 2001))
    now, rounds = 0.0, Counter[int]()
    while gap.missing:
        now += 0.002
        for numbers in gaps.ask(gap, now, now):
            rounds[numbers.stop] += 1
            if numbers.stop == 1000 and rounds[1000] % (ASKS_LIMIT - 1) == 0:
                gap.take(numbers.start, now)
        gap.progress = now
        gaps.expire(gap, now)
    assert rounds[2001] == ASKS_LIMIT
    assert rounds[1000] > 2 * ASKS_LIMIT
    assert now == pytest.approx(HOLD * PATIENCE, abs=0.01)


def test_what_somebody_else_asks_for_is_not_asked_for():
    gaps = gaps_of()
    gap = opened(gaps, range(5, 7), range(9, 12))
    gaps.overhear(gap, [range(5, 7), range(10, 40)], 0.0, 99)  # only a part of the second one
    due = gaps.next_deadline()
    assert list(gaps.ask(gap, due, due)) == [range(9, 12)]
    assert list(gaps.ask(gap, due, due)) == []
    assert gap.take(5, 0.0) == 1


def test_what_is_overheard_is_looked_at_in_bounds():
    gaps = gaps_of()
    gap = opened(gaps, *[range(number, number + 1) for number in range(0, 1000, 2)])
    assert gaps.overhear(gap, [range(1000)] * 256, 0.0, 100) == 100
    assert sum(bool(part.asks) for part in gap.missing) == 100


def test_several_who_ask_at_once_count_as_one():
    gaps = gaps_of()
    gap = opened(gaps, range(5, 7))
    for step in range(2 * ASKS_LIMIT):
        gaps.overhear(gap, [range(5, 7)], step * 0.0001, 99)
    assert gap.take(5, 0.0) == 1


def test_a_number_is_given_up_after_some_time():
    gaps = gaps_of()
    gap = opened(gaps, range(5, 7))
    gaps.put(gap, held(7))
    gaps.expire(gap, HOLD - 0.001)
    assert numbers_of(gap) == [5, 6]
    gaps.expire(gap, HOLD)
    assert [each.seq for each in gaps.ready(gap)] == [7]
    assert gaps.given_up == gap.source.given_up == 2


def test_a_gap_that_fills_is_given_more_time():
    gaps = gaps_of()
    gap = opened(gaps, range(5, 100))
    now = 0.0
    for seq in range(5, 60):
        now += HOLD * 0.9
        gap.take(seq, now)
        gaps.expire(gap, now)
        if not gap.missing:
            break
    assert HOLD * PATIENCE <= now <= HOLD * (PATIENCE + 1)


def test_numbers_that_were_never_heard_are_no_losses():
    gaps = gaps_of()
    gap = opened(gaps, range(998, 1010), last=1000)
    gaps.expire(gap, 10.0)
    assert (gaps.given_up, gap.missing) == (3, [])
    gap = opened(gaps, range(998, 1010), last=1000, src=b"other")
    assert gaps.write_off(gap, range(999, 1005)) == 2
    assert numbers_of(gap) == [998, *range(1005, 1010)]
    assert gap.source.gone == 2


def test_what_is_gone_cuts_a_gap_into_few_parts():
    gaps = gaps_of()
    gap = opened(gaps, range(JUMP - 1))
    for number in range(0, 8 * PARTS_LIMIT, 2):
        gaps.write_off(gap, range(number, number + 1))
    assert len(gap.missing) <= PARTS_LIMIT + 1


def test_more_messages_than_may_wait_give_the_oldest_number_up():
    gaps = gaps_of(hold_messages=16)
    gap = opened(gaps, range(1, 2), range(3, 4))
    for seq in (2, *range(4, 19)):
        assert gaps.put(gap, held(seq)) is None
    assert gaps.put(gap, held(19)) is gap
    assert [each.seq for each in gaps.ready(gap)] == [2]
    assert numbers_of(gap) == [3]


def test_whoever_holds_most_gives_when_all_is_full():
    gaps = gaps_of(hold_bytes=128 * KIB)
    modest = opened(gaps, range(1, 2), src=b"modest")
    gaps.put(modest, held(2, 1000))
    flood = opened(gaps, range(1, 2), src=b"flood")
    for seq in range(2, 1000):
        if gave := gaps.put(flood, held(seq, 1000)):
            break
    assert gave is flood
    assert len(gaps.ready(flood)) > 90
    assert numbers_of(modest) == [1]
    assert gaps.size <= 128 * KIB


def test_many_sources_of_one_address_give_first():
    gaps = gaps_of(hold_bytes=128 * KIB)
    modest = opened(gaps, range(1, 2), src=b"modest", peer="10.0.0.3:5400")
    for seq in range(2, 7):
        gaps.put(modest, held(seq, 1000))
    gave = set()
    for number in range(200):
        flood = opened(gaps, range(1, 2), src=b"flood/%d" % number)
        for seq in range(2, 5):
            if short := gaps.put(flood, held(seq, 1000)):
                gaps.ready(short)
                gave.add(short.src.partition(b"/")[0])
    assert gave == {b"flood"}
    assert gaps.size <= 128 * KIB


class Scanned(dict[bytes, Gap]):
    """Counts how often somebody looks at all of it."""

    scans = 0

    def values(self) -> ValuesView[Gap]:
        self.scans += 1
        return super().values()


def test_nobody_looks_for_who_gives():
    gaps = gaps_of(hold_bytes=128 * KIB)
    gaps._gaps = scanned = Scanned()
    gap = opened(gaps, range(1, 2), range(1000, 1001))
    gave = 0
    for seq in range(2, 900):
        if short := gaps.put(gap, held(seq, 1000)):
            gaps.ready(short)
            opened(gaps, range(1, 2), src=b"%d" % seq)
            gave += 1
    assert gave
    assert not scanned.scans


def test_much_is_released_in_parts():
    gaps = gaps_of()
    gap = opened(gaps, range(1, 2))
    for seq in range(2, 3 * RELEASED_AT_ONCE):
        gaps.put(gap, held(seq))
    gap.take(1, 0.0)
    assert len(gaps.ready(gap)) == RELEASED_AT_ONCE
    assert gaps.next_deadline() == 0.0
    assert [each is gap for each in gaps.due(0.0)] == [True]
    assert len(gaps.ready(gap)) + len(gaps.ready(gap)) == 2 * RELEASED_AT_ONCE - 2
    assert gap.source.gap is None


def test_whoever_has_most_gaps_gives_when_there_is_no_room():
    gaps = gaps_of()
    for number in range(GAPS_LIMIT):
        gaps.put(opened(gaps, range(1, 2), src=b"far/x/%d" % number), held(2))
    assert gaps.open(b"far/x/more", source_at(9), range(1, 2), 0.0) is None
    for number in range(20):
        opened(gaps, range(1, 2), src=b"there/y/%d" % number, peer="10.0.0.3:5400")
    released = [(gap.src, each.seq) for gap in gaps.due(0.0) for each in gaps.ready(gap)]
    assert released == [(b"far/x/%d" % number, 2) for number in range(20)]
    assert len(gaps) == GAPS_LIMIT


def test_gaps_that_have_to_end_are_bounded_in_number():
    gaps = gaps_of()
    for number in range(GAPS_LIMIT):
        gaps.put(opened(gaps, range(1, 2), src=b"far/x/%d" % number), held(2))
    found = [
        gaps.open(b"there/y/%d" % number, source_at(9, "10.0.0.3:5400"), range(1, 2), 0.0)
        for number in range(2 * ENDING_LIMIT)
    ]
    assert found.count(None) == ENDING_LIMIT
    assert len(gaps) == GAPS_LIMIT + ENDING_LIMIT


def test_a_gap_that_has_to_end_holds_nothing_back_again():
    gaps = gaps_of()
    for number in range(GAPS_LIMIT):
        gap = opened(gaps, range(1, 2), src=b"far/x/%d" % (GAPS_LIMIT - number))
        gaps.put(gap, held(2))
    first = gaps.get(b"far/x/%d" % GAPS_LIMIT)
    assert first
    opened(gaps, range(1, 2), src=SRC, peer="10.0.0.3:5400")
    assert gaps.open(first.src, first.source, range(3, 4), 0.0) is None
    gaps.put(first, held(4))
    assert [each.seq for each in gaps.ready(first)] == [2, 4]


def test_only_what_a_daemon_keeps_is_asked_for():
    gaps, source = gaps_of(), source_at(9)
    assert not gaps.repairable(SRC, source, 100.0)
    gaps.guess = lambda src, _peer: src == SRC
    assert gaps.repairable(SRC, source, 100.0)
    source.kept = PLAIN
    assert not gaps.repairable(SRC, source, 100.0)
    gaps.guess = lambda _src, _peer: False
    source.kept = 90.0
    assert gaps.repairable(SRC, source, 100.0)
    assert not gaps.repairable(SRC, source, 91.0 + KEPT_SECONDS)
    gaps.wanted = lambda: False
    assert not gaps.repairable(SRC, source, 100.0)


def test_switching_off_releases_what_waits():
    gaps = gaps_of()
    gap = opened(gaps, range(1, 2))
    gaps.put(gap, held(2))
    gaps.configure(Repair(on=False))
    assert not gaps.repairable(SRC, gap.source, 0.0)
    assert [each.seq for gap in gaps.due(0.0) for each in gaps.ready(gap)] == [2]


def test_a_successor_goes_on_with_it():
    gaps, heir, source = gaps_of(), gaps_of(), source_at(9)
    gap = opened(gaps, range(5, 7))
    gaps.put(gap, held(8))
    gap.missing[0].asks = 1
    heir.restore(gaps.state(), {SRC: source}.get)
    assert heir.next_deadline() == 0.0
    assert source.gap
    assert list(heir.ask(source.gap, 50.0, 50.0)) == [range(5, 7)]
    source.gap.cut(range(5, 7))
    assert [each.seq for each in heir.ready(source.gap)] == [8]
    assert source.gap is None


def test_what_a_forgotten_source_left_is_released_by_a_successor():
    gaps, heir = gaps_of(), gaps_of()
    gap = opened(gaps, range(5, 7))
    for seq in (9, 8):
        gaps.put(gap, held(seq))
    heir.restore(gaps.state(), lambda _src: None)
    assert [each.seq for gap in heir.due(0.0) for each in heir.ready(gap)] == [8, 9]
    assert (len(heir), heir.size) == (0, 0)


def test_an_abandoned_gap_holds_nothing_back():
    gaps = gaps_of()
    gap = opened(gaps, range(5, 7), range(9, 10))
    gaps.put(gap, held(8))
    gaps.abandon(gap)
    assert gap.boundary == inf
    assert [each.seq for each in gaps.ready(gap)] == [8]
