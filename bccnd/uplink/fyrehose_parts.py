"""The missing numbers of a fyrehose backbone, in parts with one way of asking each (``fyrehose_missing``); and the
samples of a long gap.
"""

# Numbers of one request: as many as a backbone passes on (``bccnd/backbone/README.md``, "Settings").
RANGE = 256
# Numbers count as under way for their first requests only: after these mostly nobody keeps them, and others would
# wait in vain. Doubtful ones count once.
HOPE = 2
# Samples of a survey: at least, and at most, in between one for so many numbers, as a crash skips at least twice as
# many (``bccnd/backbone/numbers.py``); and the numbers of a sample.
SAMPLES_LEAST, SAMPLES_MOST, SAMPLE_DISTANCE, SAMPLE = 8, 64, 1 << 18, 16
# What a crash of our backbone leaves out when it gave few numbers before. So where the gap ends, less this, up to so
# many times, another one may have begun. There is a sample below, as the first numbers of the last backbone may have
# been missed here, and one above, as nobody was a subscriber yet when the other one gave its first numbers.
CRASH, CRASHES = 1 << 20, 3

WAITING, READY, ASKED, RESTING, GONE = range(5)


class Survey:
    """``ends``: where each sample ends; ``came``: whether any number of it has come, None while that is open."""

    __slots__ = ("after", "came", "ends", "first")

    def __init__(self, first: int, ends: list[int], after: int) -> None:
        self.first, self.ends, self.after = first, ends, after
        self.came: list[bool | None] = [None] * len(ends)


class Part:
    """Numbers from ``first`` up to ``after``. ``asks``: how often they were asked for; ``asked_at``, ``since``: the
    last time and the first, before that the time from which on they may be; ``due``: when something is to be done.
    ``looked``: whether the own archive was searched. ``survey``: the survey that judges it, as the sample ``index``,
    or -1 for a part between two samples. ``doubtful``: part of a long gap, so it may never have existed.
    """

    __slots__ = (
        "after", "asked_at", "asks", "doubtful", "due", "first", "index", "looked", "since", "state", "survey",
    )  # fmt: skip

    def __init__(self, first: int, after: int, state: int) -> None:
        self.first, self.after, self.state = first, after, state
        self.asks, self.index = 0, -1
        self.due = self.since = self.asked_at = 0.0
        self.looked = self.doubtful = False
        self.survey: Survey | None = None

    @property
    def size(self) -> int:
        return self.after - self.first

    @property
    def expected(self) -> int:
        """How many numbers are probably under way."""
        return self.size if self.state == ASKED and self.asks <= (1 if self.doubtful else HOPE) else 0

    def split(self, at: int) -> "Part":
        """Keep the numbers below ``at``. Returns the rest as a part."""
        rest = Part(at, self.after, self.state)
        rest.asks, rest.due, rest.since, rest.asked_at = self.asks, self.due, self.since, self.asked_at
        rest.looked, rest.survey, rest.index = self.looked, self.survey, self.index
        rest.doubtful = self.doubtful
        self.after = at
        return rest


def doubtful(first: int, after: int, survey: Survey, index: int) -> Part:
    part = Part(first, after, RESTING)
    part.survey, part.index, part.doubtful = survey, index, True
    return part


def samples_of(first: int, after: int, end: int) -> list[tuple[int, int]]:
    """The first number of each sample of a gap, and its length. Samples are in order, and do not touch."""
    size = after - first
    number = min(SAMPLES_MOST, max(SAMPLES_LEAST, size // SAMPLE_DISTANCE))
    step = size // number
    wanted = [(first + step * index, SAMPLE) for index in range(1, number)]
    for begun in (end - CRASH * times for times in range(1, CRASHES + 1)):
        wanted += (begun - RANGE + 1, RANGE), (begun + 2, RANGE)
    samples: list[tuple[int, int]] = []
    for low, length in sorted(wanted):
        behind = sum(samples[-1]) if samples else first
        if low > behind and low + length < after:
            samples.append((low, length))
    return samples
