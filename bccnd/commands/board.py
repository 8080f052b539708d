"""What ``bccn top`` shows: lines of text, made of figures and a view of them. No I/O here."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from bccnd.commands.columns import TABLES, amount, fit, rate
from bccnd.commands.rates import Figures, Row, rejected
from bccnd.commands.terminal import duration
from bccnd.commands.view import View
from bccnd.process.standard_streams import counted, printable

TITLE, ALERT, PLAIN = "title", "alert", "plain"

KEYS = """\
q, Ctrl-C   quit
c  s  b     show clients, sources, both
<  >        sort by the column to the left, to the right
r           reverse the order
/           show only rows with a text in name or user; empty: all rows
space       pause, or go on
+  -        lengthen, shorten the interval
?           show or leave this help

IN/S, OUT/S     messages per second from and to a client
PENDING         messages that wait for a client
DROPS           messages that a client has lost since it connected
HOLDS           publishers that wait for a client with the policy block
RECV/S          datagrams per second from a source
LOST, LOSS      datagrams of a source that never came, and percent of all
REPAIRED        datagrams of a source that were lost, asked for, and came
DUPL., LATE     datagrams of a source that came twice, or out of order
RESTARTS        how often a source began with new numbers
SILENT          how long ago a source was last heard
"""


class Line(NamedTuple):
    text: str
    style: str = PLAIN


def draw(
    view: View,
    figures: Figures | None,
    trouble: str,
    *,
    width: int,
    height: int | None = None,
    clock: str = "",
) -> list[Line]:
    """``trouble``: why there are no newer figures; ``height``: None for all rows."""
    if height is None:
        return _body(view, figures, trouble, clock, width, None)
    lines = _body(view, figures, trouble, clock, width, height - 1)[: height - 1]
    lines += [Line("")] * (height - 1 - len(lines))
    return [*lines, Line(view.foot()[:width].ljust(width), TITLE)]


def _body(
    view: View, figures: Figures | None, trouble: str, clock: str, width: int, height: int | None
) -> list[Line]:
    if view.help:
        return [Line(line[:width]) for line in KEYS.splitlines()]
    lines = _header(figures, trouble, clock, width)
    if figures is not None:
        lines += _tables(view, figures, width, None if height is None else max(height - len(lines), 0))
    return lines


def _header(figures: Figures | None, trouble: str, clock: str, width: int) -> list[Line]:
    alert = [Line(printable(trouble)[:width], ALERT)] if trouble else []
    if figures is None:
        return alert
    status, rates = figures.status, {name: f"{rate(value)}/s" for name, value in figures.rates.items()}
    counters, queued = status["counters"], status["queued"]
    title = printable(f"bccnd {status['version']} on {status['host']}, pid {status['pid']}")
    title += f", up {duration(status['uptime'])}"
    heard = status["sources"] if "sources" in figures.cut else len(figures.sources)
    kernel, repair = status.get("kernel", {}).get("dropped", 0), status.get("repair", {})
    texts = {
        "messages": f"{rates['published']} published, {rates['delivered']} delivered, {rates['dropped']} dropped",
        "datagrams": f"{rates['received']} in, {rates['sent']} out, {rates['rejected']} rejected, "
        f"{rates['kernel']} kernel drops",
        "in all": f"{amount(counters['dropped'])} dropped, {amount(rejected(status))} rejected, "
        f"{amount(kernel)} kernel drops, {amount(counters['unsent'])} unsent, "
        f"{amount(repair.get('repaired', 0))} repaired",
        "now": f"{counted(status['clients'], 'client')}, {status['slow']} too slow, "
        f"{counted(heard, 'source')}, {counted(queued['packets'], 'packet')} queued",
    }
    gap = max(width - len(title) - len(clock), 2)
    lines = [title + " " * gap + clock, *(f"{name:<9}  {text}" for name, text in texts.items())]
    return [*(Line(line[:width].rstrip()) for line in lines), *alert]


def _tables(view: View, figures: Figures, width: int, room: int | None) -> list[Line]:
    rows = {"clients": figures.clients, "sources": figures.sources}
    shown = {name: _chosen(view, rows[name]) for name in view.tables}
    rooms = _shares([len(each) + 3 for each in shown.values()], room)
    lines: list[Line] = []
    for (name, chosen), share in zip(shown.items(), rooms, strict=True):
        more = "; and more (--rows N)" if name in figures.cut else ""
        lines += _table(view, name, chosen, len(rows[name]), more, width, share)
    return lines


def _chosen(view: View, rows: list[Row]) -> list[Row]:
    """The rows that have the text of the filter in their name, user or address."""
    wanted = view.filter.casefold()
    return [
        row
        for row in rows
        if wanted in " ".join(str(row.get(key, "")) for key in ("name", "src", "user", "peer")).casefold()
    ]


def _shares(wanted: Sequence[int], room: int | None) -> list[int]:
    """Lines for each table. Where room is short, short tables get all they want and the others share the rest."""
    if room is None:
        return list(wanted)
    shares = [0] * len(wanted)
    waiting = sorted(range(len(wanted)), key=lambda at: wanted[at])
    for done, at in enumerate(waiting):
        shares[at] = min(wanted[at], room // (len(waiting) - done))
        room -= shares[at]
    return shares


def _table(view: View, name: str, rows: list[Row], of: int, more: str, width: int, room: int) -> list[Line]:
    """An empty line, a headline and the table, in at most ``room`` lines."""
    columns, sort = TABLES[name], view.sort(name)
    by = next(column for column in columns if column.key == sort.key)
    noun = name if of != 1 else name.removesuffix("s")
    count = f"{len(rows)} of {of} {noun} with {view.filter!r}" if view.filter else f"{of} {noun}"
    order = ("Z to A", "A to Z") if by.left else ("highest first", "lowest first")
    head = f"{count} by {by.title}, {order[not sort.descending]}"
    if not rows:
        return [Line(""), Line(f"{count}{more}"[:width])][:room]
    rows = sorted(rows, key=lambda row: _order(by.value(row)), reverse=sort.descending)
    if len(rows) + 3 > room:
        rows = rows[: max(room - 3, 0)]
        head += f", {len(rows)} shown"
    titles, *lines = fit(columns, rows, width)
    return [
        Line(""),
        Line(f"{head}{more}"[:width]),
        Line(titles.ljust(width), TITLE),
        *(
            Line(text, ALERT if row.get("slow") is not None else PLAIN)
            for text, row in zip(lines, rows, strict=True)
        ),
    ][:room]


def _order(value: Any) -> Any:
    return -1 if value is None else value
