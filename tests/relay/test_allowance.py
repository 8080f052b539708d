"""Who may have something done how often: whoever asks too much runs out, and nobody else."""

import pytest

from bccnd.relay.allowance import Allowance, Shares


def test_an_allowance_fills_up_to_its_burst() -> None:
    allowance = Allowance(2.0, 3.0)
    assert [allowance.take(10.0) for _ in range(5)] == [True, True, True, False, False]
    assert [allowance.take(10.5) for _ in range(2)] == [True, False]
    assert [allowance.take(99.0) for _ in range(4)] == [True, True, True, False]


def test_a_lone_asker_has_its_share_each_second() -> None:
    shares = Shares(10)
    for second in range(3):
        assert sum(shares.take(b"host", b"asker", float(second)) for _ in range(100)) == 10


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
    assert sum(map(len, shares._hosts.values())) <= 80


def test_a_clock_that_stands_or_goes_back_takes_nothing_away() -> None:
    shares = Shares(1)
    assert shares.take(b"host", b"x", 5.0)
    assert not shares.take(b"host", b"x", 5.0)
    assert shares.take(b"host", b"x", 4.0)
