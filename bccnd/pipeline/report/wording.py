"""Numbers, times and names as a person reads them; the same words in sentences, labels and tables.

Names of hosts, sources and channels were chosen by others, forgers among them: ``shown`` bounds them and makes what
cannot be seen visible. Markup is the templates' affair, which escape everything.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

NAME_LIMIT = 72  # characters of a name: a channel may have 1024, and a page must not break at one
SOON = timedelta(minutes=1)


def counted(count: int, noun: str, plural: str = "") -> str:
    """``1 message``, ``1,204 messages``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(words: Sequence[str], limit: int = 3) -> str:
    """``a``, ``a and b``, ``a, b and c``, ``a, b, c and 4 more``; ``limit`` is how many are named."""
    rest = len(words) - limit
    named = [*words[:limit], f"{rest:,} more"] if rest > 0 else list(words)
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def percent(share: float, sign: str = " percent") -> str:
    """Of a share from 0 to 1: as many digits as tell something, and neither 0 nor 100 unless it is exactly that."""
    value = share * 100
    if value in (0, 100):
        return f"{value:.0f}{sign}"
    if value < 0.001:
        return f"less than 0.001{sign}" if sign.startswith(" ") else f"<0.001{sign}"
    if value > 99.95:
        return f"more than 99.9{sign}" if sign.startswith(" ") else f">99.9{sign}"
    digits = 1 if value >= 0.95 else 2 if value >= 0.095 else 3
    return f"{value:.{digits}f}{sign}"


def brief(share: float) -> str:
    """At most six signs, for a field of the heat map."""
    value = share * 100
    if 0 < value < 0.1:
        return "<0.1%"
    if 99.5 <= value < 100:
        return ">99%"
    return "0" if not value else f"{value:.1f}%" if value < 9.95 else f"{value:.0f}%"


def compact(number: float) -> str:
    """For axes and tiles: ``950``, ``12.3 k``, ``4 M``."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= limit:
            scaled = number / (1e3 if unit == "k" else limit)
            return (
                f"{scaled:.0f} {unit}" if scaled >= 100 else f"{scaled:.1f}".removesuffix(".0") + f" {unit}"
            )
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 100 else f"{number:.2g}"


def size(count: float) -> str:
    """Bytes, in decimal units."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.3g} {unit}" if count < 999.5 * limit else f"{count / limit:,.0f} {unit}"
    return f"{count:,.0f} B"


def latency(microseconds: float) -> str:
    """``85 µs``, ``1.2 ms``, ``2.5 s``; a clock's error may make it negative."""
    value = abs(microseconds)
    sign = "-" if microseconds < 0 else ""
    if value < 999.5:
        return f"{sign}{value:.0f} µs"
    if value < 999_500:
        return f"{sign}{_three(value / 1e3)} ms"
    return f"{sign}{_three(value / 1e6)} s"


def _three(value: float) -> str:
    """Three digits at most, no idle zeros."""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds: float) -> str:
    """Its two largest units: ``12 seconds``, ``3 minutes``, ``2 hours 5 minutes``, ``1 day 4 hours``."""
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
    if units[first][1] == "minute" and units[first][0] >= 10:  # seconds say nothing any more
        return counted(*units[first])
    return " ".join(counted(*unit) for unit in units[first : first + 2] if unit[0])


def shown(name: str, limit: int = NAME_LIMIT) -> str:
    """A name of foreign origin: printable (what turns the direction of writing is not), at most so long."""
    visible = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in name)
    return visible if len(visible) <= limit else f"{visible[: limit - 1]}…"


class Clock:
    """Times in UTC; with the date wherever the report's own period does not say it already."""

    def __init__(self, start: datetime | None, end: datetime | None) -> None:
        self.start, self.end = start, end
        self.dated = start is None or end is None or start.astimezone(UTC).date() != last_date(start, end)

    def at(self, moment: datetime) -> str:
        """``14:05``, ``14:05:30`` when it is not a whole minute, ``2026-08-01 14:05`` with the date."""
        moment = moment.astimezone(UTC)
        time = f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
        return f"{moment:%Y-%m-%d} {time}" if self.dated else time

    def between(self, start: datetime, end: datetime) -> str:
        """``between 14:05 and 14:20``; the second date only if it is another one."""
        same_day = start.astimezone(UTC).date() == last_date(start, end)
        until = Clock(end, end).at(end) if self.dated and same_day else self.at(end)
        if self.dated and same_day and end.astimezone(UTC).date() != start.astimezone(UTC).date():
            until = "24:00"
        return f"between {self.at(start)} and {until}"

    def period(self) -> str:
        """The report's own, for its head."""
        if self.start is None or self.end is None:
            return "no time at all"
        dated = Clock(None, None)
        start, end = self.start.astimezone(UTC), self.end.astimezone(UTC)
        return (
            f"{dated.at(start)} to {dated.at(end) if start.date() != end.date() else Clock(end, end).at(end)}"
        )


def last_date(start: datetime, end: datetime) -> object:
    """The date on which a period ends: midnight belongs to the day before, unless the period is that moment."""
    end = end.astimezone(UTC)
    return (end - timedelta(microseconds=1)).date() if end > start else end.date()
