"""What a ``REPLAY`` asks for: from when to when, and which channels (``clients/BPMUX.md``, "Replays").

2026-11-21T10:00:00Z   2026-11-21T11:00+01:00   2026-11-21    ISO 8601; without an offset it is UTC
1795254013   1795254013.5                                     seconds since 1970
-10m   -1h30m   -0.5s                                         before now: of s, m, h, d
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

SECOND_NS = 10**9
# A time is a 64-bit number of nanoseconds, which ends in 2262.
LATEST_NS = 2**63 - 1

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
_SECONDS = re.compile(_NUMBER)
_BEFORE = re.compile(rf"-(?:{_NUMBER}[smhd])+")
_PART = re.compile(rf"({_NUMBER})([smhd])")
_FORMS = "must be ISO 8601, seconds since 1970, or before now as in -10m"


@dataclass(frozen=True, slots=True)
class Span:
    """``from_ns`` to ``to_ns``, both included; without an end, the live bus follows."""

    from_ns: int
    to_ns: int | None
    pattern: str

    @property
    def until_ns(self) -> int:
        return LATEST_NS if self.to_ns is None else self.to_ns


def parse(asked: str, now_ns: int) -> Span:
    """``<from> <to> <pattern>``, where ``<to>`` may be empty. Raises ``ValueError`` with a code and a line."""
    words = asked.split(" ")
    if len(words) != 3 or not words[0]:
        raise ValueError(
            "bad-packet REPLAY needs <from> <to> <pattern>, with one space between; <to> may be empty"
        )
    since, until, pattern = words
    if not pattern or pattern.startswith("!"):
        raise ValueError("bad-pattern a replay has a pattern, and not of directed messages")
    from_ns, to_ns = parse_time(since, now_ns), parse_time(until, now_ns) if until else None
    if to_ns is not None and to_ns < from_ns:
        raise ValueError(f"bad-value {since} is later than {until}")
    return Span(min(from_ns, now_ns), to_ns if to_ns is None else min(to_ns, now_ns), pattern)


def parse_time(text: str, now_ns: int) -> int:
    """Nanoseconds since 1970. Raises ``ValueError``."""
    if _BEFORE.fullmatch(text):
        seconds = sum(Decimal(number) * _UNITS[unit] for number, unit in _PART.findall(text))
        found = now_ns - int(seconds * SECOND_NS)
    elif _SECONDS.fullmatch(text):
        found = int(Decimal(text) * SECOND_NS)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"bad-value {text}: {_FORMS}") from None
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        since = aware - datetime(1970, 1, 1, tzinfo=UTC)
        found = (since.days * 86_400 + since.seconds) * SECOND_NS + since.microseconds * 1000
    return min(max(0, found), LATEST_NS)
