"""The geometry of the charts: rows in, places in a picture out. The marks are drawn by ``templates/charts.html.j2``.

Rules
- Pure: no Spark, no markup; names stay as they are until a template escapes them.
- A chart that lies along the width of the page is laid out twice, WIDE and NARROW, and the page shows the one that
  fits: an SVG that is merely shrunk to a phone has writing no one can read.
- Loss is drawn in the classes of ``scales``; what is not known is drawn as that, and not as 0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from bccnd.pipeline.report.rows import Bin, Block, Recorder, Silence, Way
from bccnd.pipeline.report.scales import Linear, Log, Tick, TimeAxis, log_limits, loss_class, nice_ceiling
from bccnd.pipeline.report.wording import Clock, brief, compact, counted, latency, listed, percent, shown

WIDE, NARROW = 1040, 360  # pixels: of the page's column on a screen, and on a phone
NARROW_SIGNS, WIDE_SIGNS = frozenset(" .,:;/|!'()[]fijlrt1-"), frozenset("mwMW%@<>_=+→…")
FEW_HOSTS = 14  # with so many rows and columns a number fits into each field
THUMBNAIL_SIZE = 360


def breadth(text: str) -> float:
    """Pixels of a label of 12 pixels in the broadest of the fonts a system may have; a label must not be cut off."""
    return round(
        sum(5.2 if sign in NARROW_SIGNS else 11.5 if sign in WIDE_SIGNS else 7.9 for sign in text), 1
    )


class Field(NamedTuple):
    """Of the heat map. ``colour``: class of loss, -1 where nothing is known, -2 for a host and itself."""

    x: float
    y: float
    colour: int
    text: str
    tip: str


class Label(NamedTuple):
    place: float
    text: str
    tip: str


class HeatMap(NamedTuple):
    width: float
    height: float
    left: float
    top: float
    side: float
    fields: list[Field]
    rows: list[Label]
    columns: list[Label]
    slanted: bool
    numbers: bool


def heat_map(ways: Iterable[Way], senders: Sequence[str], receivers: Sequence[str]) -> HeatMap:
    """Senders down, receivers across."""
    found = {(way.sender, way.receiver): way for way in ways}
    count = max(len(senders), len(receivers))
    numbers = count <= FEW_HOSTS
    side = 76 if count <= 5 else 60 if count <= 10 else 48 if numbers else 26 if count <= 24 else 20
    down, across = [shown(name, 18) for name in senders], [shown(name, 18) for name in receivers]
    broadest = max(map(breadth, across), default=0)
    slanted = broadest > side - 6
    left, top = round(32 + max(map(breadth, down), default=0)), round(34 + (broadest if slanted else 14))
    number = brief if side < 76 else _in_full
    fields = [
        _field(
            left + x * side,
            top + y * side,
            (sender, receiver),
            found.get((sender, receiver)),
            number if numbers else None,
        )
        for y, sender in enumerate(senders)
        for x, receiver in enumerate(receivers)
    ]
    rows = [Label(top + (y + 0.5) * side, text, shown(senders[y])) for y, text in enumerate(down)]
    columns = [Label(left + (x + 0.5) * side, text, shown(receivers[x])) for x, text in enumerate(across)]
    width, height = left + len(receivers) * side + 12, top + len(senders) * side + 8
    return HeatMap(width, height, left, top, side, fields, rows, columns, slanted, numbers)


def _in_full(loss: float) -> str:
    return percent(loss, " %") if loss else "0"


def has_room(receivers: int) -> bool:
    """For a table beside the heat map, on a screen."""
    return receivers <= 8


def _field(
    x: float, y: float, pair: tuple[str, str], way: Way | None, number: Callable[[float], str] | None
) -> Field:
    sender, receiver = pair
    name = f"{shown(sender)} to {shown(receiver)}"
    if sender == receiver:
        return Field(x, y, -2, "", f"{name}: the same host")
    if way is None or not way.sent:
        return Field(x, y, -1, "?" if number else "", f"{name}: not known")
    least = way.basis == "gaps" and way.lost > 0
    tip = f"{name}: {'at least ' * least}{percent(way.loss)} lost, {way.lost:,} of {counted(way.sent, 'message')}"
    return Field(x, y, loss_class(way.loss), "≥" * least + number(way.loss) if number else "", tip)


class Thumbnail(NamedTuple):
    """``paths``: by class of loss, the runs of fields of that class."""

    side: int
    paths: list[tuple[int, str]]


def thumbnail(blocks: Iterable[Block], side: int) -> Thumbnail:
    """One path for each class, a stroke for each run of neighbours: 40,000 rectangles would be megabytes."""
    classes: dict[int, dict[int, list[int]]] = {}
    for block in blocks:
        classes.setdefault(loss_class(block.loss), {}).setdefault(block.row, []).append(block.column)
    return Thumbnail(side, [(colour, _strokes(rows)) for colour, rows in sorted(classes.items()) if colour])


def _strokes(rows: Mapping[int, list[int]]) -> str:
    strokes = []
    for row, columns in sorted(rows.items()):
        start = end = -1
        for column in [*sorted(columns), -1]:
            if column != end or column < 0:
                if end > start:
                    strokes.append(f"M{start} {row}.5h{end - start}")
                start = column
            end = column + 1
    return "".join(strokes)


class Curve(NamedTuple):
    """Loss over time: steps and the area under them, broken where nothing was sent. ``x``, ``y``: the axes' ticks."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    area: str
    line: str
    x: list[Tick]
    y: list[Tick]


def curve(
    bins: Sequence[Bin], axis: tuple[datetime, datetime], minutes: int, width: int, height: int
) -> Curve:
    """Of one way, or of all; its own scale from 0 to a round number above the peak."""
    peak = max((one.lost / one.sent for one in bins if one.sent), default=0.0)
    left, right, top, bottom = 66.0 if peak < 1e-5 else 54.0, width - 12.0, 10.0, height - 24.0
    time = TimeAxis(*axis, left, right)
    ceiling = nice_ceiling(peak) if peak else 0.01
    scale = Linear(0, ceiling, bottom, top)
    area, line, before = [], [], None
    for one in bins:
        if not one.sent:
            continue
        start = time(one.start)
        end = max(start + 0.8, min(right, start + (right - left) * minutes * 60 / _seconds(axis)))
        level = scale(one.lost / one.sent)
        if before is not None and abs(before - start) < 1:
            line.append(f"V{level:g}H{end:.1f}")
        else:
            line.append(f"M{start:g} {level:g}H{end:.1f}")
        if one.lost:
            area.append(f"M{start:g} {bottom:g}V{level:g}H{end:.1f}V{bottom:g}Z")
        before = end
    ticks = [Tick(scale(ceiling * part), f"{100 * ceiling * part:g} %") for part in (0, 0.5, 1)]
    return Curve(
        width, height, left, right, top, bottom, "".join(area), "".join(line),
        time.ticks(max(2, int((right - left) / 70))), ticks,
    )  # fmt: skip


def _seconds(axis: tuple[datetime, datetime]) -> float:
    return max(1.0, (axis[1] - axis[0]).total_seconds())


class Strip(NamedTuple):
    """Percentiles of one way: box from ``p50`` to ``p90``, whisker to ``p99``, a dot at the largest."""

    y: float
    label: str
    tip: str
    p50: float
    p90: float
    p99: float
    top: float
    value: str


class Strips(NamedTuple):
    width: float
    height: float
    left: float
    right: float
    bottom: float
    strips: list[Strip]
    x: list[Tick]


def latency_strips(ways: Sequence[Way], width: int) -> Strips:
    """On a scale of powers of ten: there are microseconds and seconds side by side."""
    letters = 30 if width >= WIDE else 15
    labels = [shown(f"{way.sender} → {way.receiver}", letters) for way in ways]
    left = 12 + max(map(breadth, labels), default=0)
    right, row = width - (72.0 if width >= WIDE else 16.0), 26
    scale = Log(*log_limits([value for way in ways for value in (way.p50, way.top)]), left, right)
    strips = []
    for place, (way, label) in enumerate(zip(ways, labels, strict=True)):
        tip = (
            f"{shown(way.sender)} to {shown(way.receiver)}: half within {latency(way.p50)}, 90 percent within "
            f"{latency(way.p90)}, 99 percent within {latency(way.p99)}, at most {latency(way.top)}"
        )
        p50, p90, p99, top = (scale(value) for value in (way.p50, way.p90, way.p99, way.top))
        strips.append(Strip(10 + (place + 0.5) * row, label, tip, p50, p90, p99, top, latency(way.p99)))
    powers = list(scale.powers())
    powers = powers[:: -(-len(powers) // (8 if width >= WIDE else 4))]
    bottom = 10.0 + len(ways) * row
    return Strips(
        width,
        bottom + 26,
        left,
        right,
        bottom,
        strips,
        [Tick(scale(power), latency(power)) for power in powers],
    )


class Stretch(NamedTuple):
    x: float
    width: float
    kind: str  # a class of style.css: covered | silent | lasting
    tip: str


class Lane(NamedTuple):
    y: float
    label: str
    tip: str
    stretches: list[Stretch]
    note: str


class Timeline(NamedTuple):
    width: float
    height: float
    left: float
    right: float
    bottom: float
    lanes: list[Lane]
    x: list[Tick]


LANE = 22


def _timeline(lanes: list[Lane], time: TimeAxis, width: int) -> Timeline:
    bottom = 10.0 + len(lanes) * LANE
    ticks = time.ticks(max(2, int((time.right - time.left) / 70)))
    return Timeline(width, bottom + 26, time.left, time.right, bottom, lanes, ticks)


def silences(rows: Sequence[Silence], axis: tuple[datetime, datetime], clock: Clock, width: int) -> Timeline:
    """A lane for each source, those silent still first; a silence that lasts has an open end."""
    letters = 30 if width >= WIDE else 15
    by_source: dict[str, list[Silence]] = {}
    for row in sorted(rows, key=lambda row: (not row.ongoing, row.start - row.end)):
        by_source.setdefault(row.src, []).append(row)
    time = TimeAxis(
        *axis, 12 + max((breadth(shown(src, letters)) for src in by_source), default=0), width - 16.0
    )
    lanes = []
    for place, (src, found) in enumerate(by_source.items()):
        stretches = []
        for row in found:
            when = f"since {clock.at(row.start)}" if row.ongoing else clock.between(row.start, row.end)
            start, end = time(row.start), time.right if row.ongoing else time(row.end)
            tip = f"{shown(src)}: silent {when}, noticed by {listed([shown(name) for name in row.observers])}"
            stretches.append(
                Stretch(start, max(2.0, end - start), "lasting" if row.ongoing else "silent", tip)
            )
        lanes.append(Lane(10 + place * LANE, shown(src, letters), shown(src), stretches, ""))
    return _timeline(lanes, time, width)


def coverage(rows: Sequence[Recorder], axis: tuple[datetime, datetime], clock: Clock, width: int) -> Timeline:
    """A lane for each recorder, from its first to its last record, with the pauses left out."""
    letters = 20 if width >= WIDE else 12
    notes = any(row.unrecorded for row in rows) and width >= WIDE
    time = TimeAxis(
        *axis,
        12 + max((breadth(shown(row.host, letters)) for row in rows), default=0),
        width - (110.0 if notes else 16.0),
    )
    lanes = []
    for place, row in enumerate(rows):
        edges = [row.start, *(edge for gap in row.gaps for edge in (gap.start, gap.end)), row.end]
        stretches = []
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            tip = f"{shown(row.host)}: recorded {clock.between(start, end)}"
            stretches.append(Stretch(time(start), max(1.0, time(end) - time(start)), "covered", tip))
        note = f"{compact(row.unrecorded)} not kept" if row.unrecorded and notes else ""
        lanes.append(Lane(10 + place * LANE, shown(row.host, letters), shown(row.host), stretches, note))
    return _timeline(lanes, time, width)


def share(value: float, most: float) -> float:
    """Of a bar in a table: its length in percent, and never so short that it cannot be seen."""
    return round(max(1.0, 100 * value / most), 1) if value > 0 and most > 0 else 0.0
