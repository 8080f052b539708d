"""Who may have something done how often: whoever asks too much runs out, and nobody else."""

import pytest

from bccnd.relay.allowance import FIRST_PART, FREQUENT_LIMIT, Allowance, Shares


def test_an_allowance_fills_up_to_its_burst() -> None:
    allowance = Allowance(2.0, 3.0)
    assert [allowance.take(10.0) for _ in range(5)] == [True, True, True, False, False]
    assert [allowance.take(10.5) for _ in range(2)] == [True, False]
    assert [allowance.take(99.0) for _ in range(4)] == [True, True, True, False]


def test_an_allowance_says_when_there_is_one_left() -> None:
    allowance, now = Allowance(100.0, 3.0), 1e6
    assert allowance.when(now, 3) == now
    for _ in range(1000):
        while allowance.take(now):
            pass
        assert allowance.when(now, 2) > allowance.when(now, 1) > now
        now = allowance.when(now, 1)
        assert allowance.has(now)


def test_a_lone_asker_has_its_share_each_second() -> None:
    shares = Shares(10)
    for second in range(3):
        assert sum(shares.take(b"host", b"asker", float(second)) for _ in range(100)) == 10


@pytest.mark.parametrize("count", [1, 9, 10, 11, 500])
def test_whoever_asks_for_too_much_gets_what_is_left(count: int) -> None:
    shares = Shares(10)
    assert shares.take_some(b"host", b"asker", 1.0, count) == min(count, 10)
    assert shares.take_some(b"host", b"asker", 1.0, count) == max(0, min(count, 10 - count))


@pytest.mark.parametrize("crowd", [1, 5, 1000])
def test_whoever_comes_later_finds_room(crowd: int) -> None:
    """After floods from one host under any number of names, and from another under one."""
    shares = Shares(50)
    for number in range(5000):
        shares.take(b"loud", b"%d" % (number % crowd), 0.0)
        shares.take(b"other", b"x", 0.0)
    assert shares.take(b"quiet", b"x", 0.5)
    assert [shares.take(b"quiet", b"y", 0.5) for _ in range(3)] == [True] * 3


def test_all_together_have_no_more_than_all() -> None:
    shares = Shares(10)
    granted = sum(
        shares.take(b"host%d" % host, b"x%d" % asker, 0.0) for host in range(500) for asker in range(20)
    )
    assert granted <= 80
    assert sum(len(here.askers) for here in shares._hosts.values()) <= 80


def test_a_clock_that_stands_or_goes_back_takes_nothing_away() -> None:
    shares = Shares(1)
    assert shares.take(b"host", b"x", 5.0)
    assert not shares.take(b"host", b"x", 5.0)
    assert shares.take(b"host", b"x", 4.0)


@pytest.mark.parametrize("crowd", [2, 16, 64, 300])
@pytest.mark.parametrize("eight", [20, 200])
def test_who_asks_seldom_is_answered_whoever_floods(eight: int, crowd: int) -> None:
    shares = Shares(eight)
    askers = [(b"loud%d" % number, b"x%d" % (asker % 4)) for number in range(crowd) for asker in range(20)]
    answered = 0
    for tenth in range(-100, 300):
        now = 100.0 + tenth / 10
        for host, asker in askers:
            shares.take(host, asker, now)
        if tenth >= 0 and tenth % 10 == 9:
            answered += shares.take(b"quiet", b"x", now)
    assert answered == 30


def test_those_who_ask_all_the_time_get_as_much_each() -> None:
    shares = Shares(200)
    granted = dict.fromkeys(range(16), 0)
    for tenth in range(20, 100):
        for number in granted:
            granted[number] += sum(shares.take(b"%d" % number, b"%d" % x, tenth / 10) for x in range(40))
    assert max(granted.values()) <= 1.5 * min(granted.values())
    assert min(granted.values()) > 8 * 20


def test_a_host_that_asked_much_soon_asks_seldom_again() -> None:
    shares = Shares(20)
    for second in range(40):
        for number in range(200):
            for _ in range(5):
                shares.take(b"loud%d" % number, b"x", float(second))
        if second == 20:
            assert not all(shares.take(b"burst", b"x", second + 0.5) for _ in range(5))
        elif second in (32, 33):
            assert shares.take(b"burst", b"x", second + 0.5)


def test_what_is_known_of_hosts_is_bounded() -> None:
    shares = Shares(2000)
    for number in range(FREQUENT_LIMIT + 1000):
        for _ in range(2000 // FIRST_PART + 1):
            shares.take(b"%d" % number, b"x", number / 1000)
    assert FREQUENT_LIMIT // 2 < len(shares._frequent) <= FREQUENT_LIMIT
