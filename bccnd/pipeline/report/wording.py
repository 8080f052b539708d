"""Numbers, times and names as a person reads them, the same in sentences, labels and tables.

Others choose the names of hosts, sources and channels, forgers among them: ``shown`` limits their length and makes
invisible characters visible. The templates escape everything.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zlib import crc32

from bccnd.wire.verdict import verdict_of

# Characters of a name. A channel may have 1024, and must not break the page.
NAME_LIMIT = 72
PERCENT = " percent"


def counted(count: int, noun: str, plural: str = "") -> str:
    """``1 message``, ``1,204 messages``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(words: Sequence[str], limit: int = 3) -> str:
    """``a``, ``a and b``, ``a, b and c``, ``a, b, c and 4 more``; at most ``limit`` are named."""
    rest = len(words) - limit
    named = [*words[:limit], f"{rest:,} more"] if rest > 0 else list(words)
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def percent(share: float, sign: str = PERCENT) -> str:
    """A share from 0 to 1, with as many digits as matter; never rounded to 0 or to 100."""
    value = share * 100
    if value in (0, 100):
        return f"{value:.0f}{sign}"
    if value < 0.001:
        return f"less than 0.001{sign}" if sign == PERCENT else f"<0.001{sign}"
    if value > 99.95:
        return f"more than 99.9{sign}" if sign == PERCENT else f">99.9{sign}"
    digits = 1 if value >= 0.95 else 2 if value >= 0.095 else 3
    return f"{value:.{digits}f}{sign}"


def brief(share: float) -> str:
    """A share in at most six characters, for a field of the heat map."""
    value = share * 100
    if 0 < value < 0.1:
        return "<0.1%"
    if 99.5 <= value < 100:
        return ">99%"
    return "0" if not value else f"{value:.1f}%" if value < 9.95 else f"{value:.0f}%"


def compact(number: float) -> str:
    """``950``, ``12.3 k``, ``4 M``: for axes and tiles."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= limit:
            scaled = number / (1e3 if unit == "k" else limit)
            return (
                f"{scaled:.0f} {unit}" if scaled >= 100 else f"{scaled:.1f}".removesuffix(".0") + f" {unit}"
            )
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 100 else f"{number:.2g}"


def size(count: float) -> str:
    """``999 B``, ``1.5 kB``: bytes in decimal units."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.3g} {unit}" if count < 999.5 * limit else f"{count / limit:,.0f} {unit}"
    return f"{count:,.0f} B"


def latency(microseconds: float) -> str:
    """``85 µs``, ``1.2 ms``, ``2.5 s``; negative if the clock offset was estimated wrongly."""
    value = abs(microseconds)
    sign = "-" if microseconds < 0 else ""
    if value < 999.5:
        return f"{sign}{value:.0f} µs"
    if value < 999_500:
        return f"{sign}{_three(value / 1e3)} ms"
    return f"{sign}{_three(value / 1e6)} s"


def _three(value: float) -> str:
    """At most three digits, without trailing zeros."""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds: float) -> str:
    """The two largest units: ``12 seconds``, ``3 minutes``, ``2 hours 5 minutes``, ``1 day 4 hours``."""
    whole = round(seconds)
    if whole < 1:
        return "less than a second"
    units = [
        (whole // 86400, "day"),
        (whole // 3600 % 24, "hour"),
        (whole // 60 % 60, "minute"),
        (whole % 60, "second"),
    ]
    first = next(place for place, (count, _) in enumerate(units) if count)
    if units[first][1] == "minute" and units[first][0] >= 10:  # seconds no longer matter
        return counted(*units[first])
    return " ".join(counted(*unit) for unit in units[first : first + 2] if unit[0])


def shown(name: str, limit: int = NAME_LIMIT) -> str:
    """A name that others chose, printable and at most so long. Marks that turn the direction of text are replaced."""
    visible = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in name)
    return visible if len(visible) <= limit else f"{visible[: limit - 1]}…"


def arrow(sender: str, receiver: str, limit: int = NAME_LIMIT) -> str:
    """``alpha → beta``, a pair of hosts."""
    return f"{shown(sender, limit)} → {shown(receiver, limit)}"


def anchor(section: str, *names: str) -> str:
    """The id of a row in a section of the page, for names that others chose."""
    return f"{section}-{crc32(chr(0).join(names).encode('utf-8', 'surrogatepass')):08x}"


def verdict(word: str) -> str:
    """A recorded verdict and what it means; a word that this version does not know stands alone."""
    known = verdict_of(word)
    return f"{word}: {known.meaning}" if known else shown(word)


class Clock:
    """Times in UTC, with the date if the period of the report does not imply it."""

    def __init__(self, start: datetime | None, end: datetime | None) -> None:
        self.start, self.end = start, end
        self.dated = start is None or end is None or start.astimezone(UTC).date() != last_date(start, end)

    def at(self, moment: datetime) -> str:
        """``14:05``, ``14:05:30`` if it is not a whole minute, ``2026-08-01 14:05`` with the date."""
        moment = moment.astimezone(UTC)
        time = f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
        return f"{moment:%Y-%m-%d} {time}" if self.dated else time

    def exact(self, moment: datetime) -> str:
        """``14:05:00``: the time to the second, without the date of the sentence it is in."""
        return f"{moment.astimezone(UTC):%H:%M:%S}"

    def between(self, start: datetime, end: datetime) -> str:
        """``between 14:05 and 14:20``; the second date only if it differs. Whole minutes end with the period."""
        if self.start and self.end and start < self.end and end > self.start:
            start, end = max(start, self.start), min(end, self.end)
        same_day = start.astimezone(UTC).date() == last_date(start, end)
        until = Clock(end, end).at(end) if self.dated and same_day else self.at(end)
        if self.dated and same_day and end.astimezone(UTC).date() != start.astimezone(UTC).date():
            until = "24:00"
        return f"between {self.at(start)} and {until}"

    def period(self) -> str:
        """The period of the report, for its head."""
        if self.start is None or self.end is None:
            return "no time"
        dated = Clock(None, None)
        start, end = self.start.astimezone(UTC), self.end.astimezone(UTC)
        return (
            f"{dated.at(start)} to {dated.at(end) if start.date() != end.date() else Clock(end, end).at(end)}"
        )


def last_date(start: datetime, end: datetime) -> object:
    """The date on which a period ends. Midnight belongs to the day before, unless the period begins then, too."""
    end = end.astimezone(UTC)
    return (end - timedelta(microseconds=1)).date() if end > start else end.date()
