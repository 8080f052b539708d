from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.pipeline.report import scales

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("loss", "label"),
    [
        (0.0, "none"), (1e-9, "< 0.1 %"), (0.000999, "< 0.1 %"), (0.001, "0.1-1 %"), (0.01, "1-5 %"),
        (0.05, "5-20 %"),
        (0.2, "20-50 %"), (0.5, "≥ 50 %"), (1.0, "≥ 50 %"),
    ],
)  # fmt: skip
def test_class_of_loss(loss: float, label: str) -> None:
    assert scales.LOSS_LABELS[scales.loss_class(loss)] == label


@pytest.mark.parametrize(
    ("value", "ceiling"),
    [(0, 1), (0.013, 0.02), (0.05, 0.05), (1, 1), (3, 5), (5.1, 10), (100, 100), (101, 200)],
)
def test_ceiling_is_round(value: float, ceiling: float) -> None:
    assert scales.nice_ceiling(value) == pytest.approx(ceiling)


@given(st.floats(1e-9, 1e12))
def test_ceiling_is_just_above(value: float) -> None:
    assert value * (1 - 1e-6) <= scales.nice_ceiling(value) <= value * 2.5 * (1 + 1e-6)


def test_linear_scale_stays_within_the_picture() -> None:
    scale = scales.Linear(0, 10, 100, 200)
    assert [scale(value) for value in (-5, 0, 5, 10, 50)] == [100, 100, 150, 200, 200]
    assert scales.Linear(3, 3, 100, 200)(3) == 100


def test_logarithmic_scale_stays_within_the_picture() -> None:
    scale = scales.Log(1, 100, 0, 200)
    assert [scale(value) for value in (-1, 0, 1, 10, 100, 1000)] == [0, 0, 0, 100, 200, 200]
    assert list(scale.powers()) == [1, 10, 100]


@pytest.mark.parametrize(
    ("values", "limits"),
    [([], (1, 10)), ([0.2, 5], (1, 10)), ([10, 100], (10, 100)), ([12, 120], (10, 1000))],
)
def test_logarithmic_limits_are_powers_of_ten(values: list[float], limits: tuple[float, float]) -> None:
    assert scales.log_limits(values) == pytest.approx(limits)


@pytest.mark.parametrize(
    ("minutes", "most", "width"),
    [(0, 240, 1), (240, 240, 1), (241, 240, 2), (1440, 240, 10), (60 * 24 * 2000, 100, 28800)],
)
def test_bins_are_round_and_few(minutes: int, most: int, width: int) -> None:
    assert scales.bin_minutes(NOON, NOON + timedelta(minutes=minutes), most) == width


@given(st.integers(0, 10_000_000), st.integers(1, 500_000_000), st.integers(2, 12))
def test_ticks_are_few_and_within(offset: int, seconds: int, most: int) -> None:
    start = NOON + timedelta(seconds=offset)
    axis = scales.TimeAxis(start, start + timedelta(seconds=seconds), 10, 500)
    ticks = axis.ticks(most)
    assert len(ticks) <= most + 1
    assert all(10 <= tick.place <= 500 for tick in ticks)


def test_tick_at_midnight_has_the_date() -> None:
    axis = scales.TimeAxis(NOON, NOON + timedelta(hours=24), 0, 100)
    assert [tick.label for tick in axis.ticks(4)] == ["12:00", "18:00", "08-02", "06:00", "12:00"]
