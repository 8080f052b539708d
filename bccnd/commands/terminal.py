"""What people see: tables and times."""

import time
from collections.abc import Sequence

from bccnd.process.standard_streams import printable

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def iso_time(time_ns: int) -> str:
    """``2026-01-31T23:59:59.123456Z``."""
    seconds, rest = divmod(time_ns, 10**9)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest // 1000:06d}Z"


def unix_time(time_ns: int) -> str:
    """Seconds with nine decimals."""
    seconds, rest = divmod(time_ns, 10**9)
    return f"{seconds}.{rest:09d}"


def duration(seconds: float) -> str:
    """The two largest units: ``3 d 4 h``, ``59 s``."""
    left = int(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size} {unit}")
            left %= size
        elif parts:
            break
    return " ".join(parts[:2])


def table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of aligned columns, numbers to the right, text to the left."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    numeric = [all(isinstance(row[at], int | float) for row in rows) for at in range(len(titles))]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in [titles, *cells]
    ]
