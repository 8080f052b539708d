"""Scales from values to coordinates, with round ticks, and the classes of loss.

Loss is shown in classes, not in shades: a legend can name a class, and colour-blind people can distinguish it. The
colours are in ``style.css``, one set for light and one for dark.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

# Between the classes of loss above 0.
LOSS_BOUNDS = (0.001, 0.01, 0.05, 0.2, 0.5)
LOSS_LABELS = ("none", "< 0.1 %", "0.1-1 %", "1-5 %", "5-20 %", "20-50 %", "≥ 50 %")

MINUTE_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440)


class Tick(NamedTuple):
    place: float
    label: str


def loss_class(loss: float) -> int:
    """An index of ``LOSS_LABELS``: 0 if nothing was lost."""
    return 0 if loss <= 0 else 1 + bisect_right(LOSS_BOUNDS, loss)


def nice_ceiling(value: float) -> float:
    """The next of 1, 2, 5, 10 ... at or above ``value``; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10, 20) if step * power >= value * (1 - 1e-9))


class Linear(NamedTuple):
    """``low`` is drawn at ``start``, ``high`` at ``end``; values beyond are drawn at the edge."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        if self.high <= self.low:
            return self.start
        share = min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))
        return round(self.start + share * (self.end - self.start), 1)


class Log(NamedTuple):
    """A logarithmic scale; both limits are above 0."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        value = min(self.high, max(self.low, value))
        return Linear(math.log(self.low), math.log(self.high), self.start, self.end)(math.log(value))

    def powers(self) -> Iterator[float]:
        """The powers of ten between the limits."""
        for exponent in range(
            math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1
        ):
            yield 10.0**exponent


def log_limits(values: list[float], floor: float = 1.0) -> tuple[float, float]:
    """Powers of ten around the values: at least one decade, and nothing below ``floor``."""
    low = max(floor, min(values, default=floor))
    high = max(low, max(values, default=low))
    bottom, top = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    return 10.0**bottom, 10.0 ** max(top, bottom + 1)


def bin_minutes(start: datetime, end: datetime, most: int) -> int:
    """The width of bins, a round number of minutes, so that there are at most ``most``."""
    minutes = (end - start).total_seconds() / 60
    for step in MINUTE_STEPS:
        if minutes / step <= most:
            return step
    return 1440 * math.ceil(minutes / 1440 / most)


class TimeAxis(NamedTuple):
    """Time from ``left`` to ``right``, with ticks at round times in UTC; at midnight the tick shows the date."""

    start: datetime
    end: datetime
    left: float
    right: float

    def __call__(self, moment: datetime) -> float:
        return Linear(self.start.timestamp(), self.end.timestamp(), self.left, self.right)(moment.timestamp())

    def ticks(self, most: int) -> list[Tick]:
        seconds = max(1.0, (self.end - self.start).total_seconds())
        step = next(
            (
                step
                for step in (5, 15, 30, *(60 * minutes for minutes in MINUTE_STEPS))
                if seconds / step <= most
            ),
            86400 * math.ceil(seconds / 86400 / most),
        )
        origin = self.start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        number = math.ceil((self.start - origin).total_seconds() / step)
        found = []
        while (moment := origin + timedelta(seconds=number * step)) <= self.end:
            midnight = moment.hour == moment.minute == moment.second == 0
            label = (
                f"{moment:%m-%d}" if midnight else f"{moment:%H:%M:%S}" if step < 60 else f"{moment:%H:%M}"
            )
            found.append(Tick(self(moment), label))
            number += 1
        return found
