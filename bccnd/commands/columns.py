"""The tables of ``bccn top``: their columns, how their numbers are written, and how they fit a width.

To add a column, add it to CLIENTS or SOURCES. The first column is a name. It keeps at least NAME_WIDTH characters,
and is cut at its beginning, because it ends in the pid.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bccnd.commands.rates import Row
from bccnd.commands.terminal import duration
from bccnd.process.standard_streams import printable

NAME_WIDTH = 18
_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Column:
    """``value`` of a row is what to sort by, and ``shown`` writes it. ``left``: it is text and stands to the left.

    ``spare``: where room is short, columns are left out from the highest down; 0 always stays.
    """

    key: str
    title: str
    value: Callable[[Row], Any]
    shown: Callable[[Any], str] = str
    spare: int = 0
    left: bool = False


def rate(value: float | None) -> str:
    """At most five characters: ``-`` for unknown, ``0``, ``0.5``, ``812``, ``12.3k``."""
    if value is None:
        return "-"
    if 0 < value < 0.05:
        return "<0.1"
    return f"{value:.1f}" if 0 < value < 9.95 else amount(round(value))


def amount(value: int) -> str:
    """At most five characters: ``9999``, ``123k``, ``4.57M``."""
    if value < 10_000:
        return str(value)
    size, unit = next(scale for scale in _SCALES if value >= 0.9995 * scale[0])
    return f"{value / size:.3g}{unit}"


def brief(seconds: float) -> str:
    """``3d4h``, ``59s``."""
    return duration(seconds).replace(" ", "").replace("min", "m")


def percent(value: float) -> str:
    """``0%`` stands for nothing at all, ``100%`` for everything."""
    if 0 < value < 0.1:
        return "<0.1%"
    return f"{value:.0f}%" if value in (0, 100) else f"{min(value, 99.9):.1f}%"


CLIENTS = (
    Column("name", "CLIENT", lambda row: row["name"], left=True),
    Column("pid", "PID", lambda row: row["pid"], spare=4),
    Column("user", "USER", lambda row: row.get("user", str(row["uid"])), spare=3, left=True),
    Column("subs", "SUBS", lambda row: row["subscriptions"], amount, spare=2),
    Column("pending", "PENDING", lambda row: row["queued"], amount),
    Column("in", "IN/S", lambda row: row["in"], rate),
    Column("out", "OUT/S", lambda row: row["out"], rate),
    Column("drops", "DROPS", lambda row: row["dropped"], amount),
    Column("holds", "HOLDS", lambda row: row["holds"], amount, spare=1),
    Column("policy", "POLICY", lambda row: row["policy"].removeprefix("drop-"), spare=6, left=True),
    Column("up", "UP", lambda row: row["seconds"], brief, spare=5),
)
SOURCES = (
    Column("name", "SOURCE", lambda row: row["src"], left=True),
    Column("from", "FROM", lambda row: row["peer"], spare=5, left=True),
    Column("received", "RECV/S", lambda row: row["rate"], rate),
    Column("lost", "LOST", lambda row: row["lost"], amount),
    Column("loss", "LOSS", lambda row: row["loss"], percent),
    Column("repaired", "REPAIRED", lambda row: row.get("repaired", 0), amount, spare=1),
    Column("duplicates", "DUPL.", lambda row: row["duplicates"], amount, spare=2),
    Column("late", "LATE", lambda row: row["late"], amount, spare=3),
    Column("restarts", "RESTARTS", lambda row: row["restarts"], amount, spare=4),
    Column("silent", "SILENT", lambda row: row["silent"], brief),
    Column("state", "STATE", lambda row: row.get("state") or "", spare=1, left=True),
)
TABLES = {"clients": CLIENTS, "sources": SOURCES}
SORT_KEYS = tuple(dict.fromkeys(column.key for columns in TABLES.values() for column in columns))


def fit(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[str]:
    """The line of titles and a line for each row, no wider than ``width``; numbers stand to the right."""
    cells = {
        column.key: [column.title, *(printable(column.shown(column.value(row))) for row in rows)]
        for column in columns
    }
    widths = {key: max(map(len, column)) for key, column in cells.items()}
    kept = [column for column in columns if any(cells[column.key][1:]) or not column.spare]
    first = columns[0].key
    while True:
        room = width - sum(widths[column.key] + 1 for column in kept[1:])
        spare = max(kept, key=lambda column: column.spare)
        if room >= min(widths[first], NAME_WIDTH) or not spare.spare:
            break
        kept.remove(spare)
    widths[first] = max(min(widths[first], room), 1)
    lines = []
    for at in range(len(rows) + 1):
        parts = [_shortened(cells[first][at], widths[first])]
        for column in kept[1:]:
            cell = cells[column.key][at]
            parts.append(cell.ljust(widths[column.key]) if column.left else cell.rjust(widths[column.key]))
        lines.append(" ".join(parts).rstrip()[:width])
    return lines


def _shortened(name: str, width: int) -> str:
    return name.ljust(width) if len(name) <= width else f"…{name[len(name) - width + 1 :]}"
