"""What the README of the backbone says of a thousand segments follows from what it says was measured."""

import re

import pytest

from tests.bench import model
from tests.bench.model import Carrier, break_even, fit
from tests.documents import prose, rows, section

CARRIER = Carrier(taken=2.0, copy=0.5, out=30.0, into=20.0, unwanted=16.0, keepalive=100.0, size=250.0)


def test_the_table_follows_from_what_was_measured() -> None:
    assert rows(section(model.DOCUMENT, model.MODEL)) == model.derived(*model.measured(model.documented()))


def test_the_share_at_which_nats_is_better_follows() -> None:
    (said,) = re.findall(r"less than (\d+) %\s+of what all export", prose(model.DOCUMENT))
    assert said == f"{100 * break_even(*model.measured(model.documented())):.0f}"


def test_a_fit_goes_through_both_points() -> None:
    taken, copy = fit((1, 64), (2.5, 34.0))
    assert (taken, copy) == pytest.approx((2.0, 0.5))
    assert fit((1, 64), (0.5, 64.0))[0] == 0


def test_the_least_of_three_bounds_is_the_ceiling() -> None:
    assert CARRIER.of_processor(100) == pytest.approx((1 - 0.02) * 1e6 / 52)
    assert CARRIER.of_line(100) == pytest.approx(5000)
    assert CARRIER.of_uplink() == 62_500
    assert CARRIER.ceiling(2) == 62_500
    assert CARRIER.ceiling(100) == pytest.approx(5000)
    assert CARRIER.of_processor(5000) == 0


def test_at_the_break_even_both_cost_the_same() -> None:
    there = Carrier(taken=5.0, copy=0.25, out=75.0, into=45.0, unwanted=40.0)
    share = break_even(CARRIER, there)
    here = CARRIER.copy + CARRIER.unwanted + share * (CARRIER.into - CARRIER.unwanted)
    assert here == pytest.approx(share * (there.copy + there.into))
