"""The geometry of the charts: rows in, coordinates out. ``templates/charts.html.j2`` draws the marks.

Rules
- No Spark and no markup. Names stay as they are; the templates escape them.
- A chart as wide as the page is laid out twice, WIDE and NARROW, and the page shows the one that fits: shrunk to a
  phone, the labels of a wide SVG could not be read.
- Loss is drawn in the classes of ``scales``. Unknown loss is drawn as unknown, not as 0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from bccnd.pipeline.report.rows import Bin, Block, Pair, Recorder, Silence, share
from bccnd.pipeline.report.scales import Linear, Log, Tick, TimeAxis, log_limits, loss_class, nice_ceiling
from bccnd.pipeline.report.wording import (
    Clock,
    arrow,
    brief,
    compact,
    counted,
    latency,
    listed,
    percent,
    shown,
)

# Pixels: the page's column on a screen, and on a phone.
WIDE, NARROW = 1040, 360
NARROW_SIGNS, WIDE_SIGNS = frozenset(" .,:;/|!'()[]fijlrt1-"), frozenset("mwMW%@<>_=+→…")
# Up to so many rows and columns, a number fits into each field.
FEW_HOSTS = 14
THUMBNAIL_SIZE = 360


def breadth(text: str) -> float:
    """The width in pixels of a label at 12 pixels, in the widest font a system may have: labels are never cut off."""
    return round(
        sum(5.2 if sign in NARROW_SIGNS else 11.5 if sign in WIDE_SIGNS else 7.9 for sign in text), 1
    )


class Field(NamedTuple):
    """A field of the heat map. ``colour`` is the class of loss, -1 if unknown, -2 for a host and itself."""

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


def heat_map(
    pairs: Iterable[Pair], senders: Sequence[str], receivers: Sequence[str], where: str = ""
) -> HeatMap:
    """A row for each sender, a column for each receiver. ``where`` they lost, for the tips. A link is the sender to
    hosts of its uplinks alone: its other fields are empty.
    """
    found = {(pair.sender, pair.receiver): pair for pair in pairs}
    links = {sender for (sender, _), pair in found.items() if pair.basis == "link"}
    count = max(len(senders), len(receivers))
    numbers = count <= FEW_HOSTS
    side = 76 if count <= 5 else 60 if count <= 10 else 48 if numbers else 26 if count <= 24 else 20
    down, across = [shown(name, 18) for name in senders], [shown(name, 18) for name in receivers]
    broadest = max(map(breadth, across), default=0)
    slanted = broadest > side - 6
    left, top = round(32 + max(map(breadth, down), default=0)), round(34 + (broadest if slanted else 14))
    number = brief if side < 76 else _in_full
    fields = [
        Field(left + x * side, top + y * side, -2, "", f"{shown(sender)}: not to {shown(receiver)}")
        if sender in links and (sender, receiver) not in found
        else _field(
            left + x * side,
            top + y * side,
            (sender, receiver),
            found.get((sender, receiver)),
            number if numbers else None,
            where,
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
    """Whether a screen has room for a table beside the heat map."""
    return receivers <= 8


def at_least(pair: Pair) -> bool:
    """Whether the loss may be more than what gaps in the numbers show."""
    return pair.basis in ("gaps", "both") and pair.lost > 0


def _field(
    x: float, y: float, hosts: tuple[str, str], pair: Pair | None, number: Callable[[float], str] | None,
    where: str,
) -> Field:  # fmt: skip
    sender, receiver = hosts
    name = f"{shown(sender)} to {shown(receiver)}"
    if sender == receiver:
        return Field(x, y, -2, "", f"{name}: the same host")
    if pair is None or not pair.sent:
        return Field(x, y, -1, "?" if number else "", f"{name}: unknown")
    least = at_least(pair)
    noun = "datagram" if pair.basis == "link" else "message"
    lost = f"{'at least ' * least}{percent(pair.loss)} lost{where}"
    tip = f"{name}: {lost}, {pair.lost:,} of {counted(pair.sent, noun)}"
    if pair.repaired:
        tip += f"; on the way {percent(share(pair.missed, pair.sent))}"
    return Field(x, y, loss_class(pair.loss), "≥" * least + number(pair.loss) if number else "", tip)


class Thumbnail(NamedTuple):
    """``paths`` has an SVG path for each class of loss; ``side`` is how many fields are in a row."""

    side: int
    paths: list[tuple[int, str]]


def thumbnail(blocks: Iterable[Block], side: int) -> Thumbnail:
    """One path for each class, a stroke for each run of neighbours; 40,000 rectangles would be megabytes."""
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
    """Loss over time: steps and the area under them, broken where nothing was sent. ``x`` and ``y`` are ticks."""

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
    bins: Sequence[Bin], axis: tuple[datetime, datetime], seconds: int, width: int, height: int
) -> Curve:
    """The curve of one pair, or of all pairs together, on a scale from 0 to a round number above the peak."""
    peak = max((one.lost / one.sent for one in bins if one.sent), default=0.0)
    ceiling = nice_ceiling(peak) if peak else 0.01
    levels = {f"{100 * ceiling * part:g} %": ceiling * part for part in (0, 0.5, 1)}
    left, right, top, bottom = 10 + max(map(breadth, levels)), width - 12.0, 10.0, height - 24.0
    time = TimeAxis(*axis, left, right)
    scale = Linear(0, ceiling, bottom, top)
    area, line, before = [], [], None
    for one in bins:
        if not one.sent:
            continue
        start = time(one.start)
        end = max(start + 0.8, time(one.start + timedelta(seconds=seconds)))
        level = scale(one.lost / one.sent)
        if before is not None and abs(before - start) < 1:
            line.append(f"V{level:g}H{end:.1f}")
        else:
            line.append(f"M{start:g} {level:g}H{end:.1f}")
        if one.lost:
            area.append(f"M{start:g} {bottom:g}V{level:g}H{end:.1f}V{bottom:g}Z")
        before = end
    ticks = [Tick(scale(value), label) for label, value in levels.items()]
    return Curve(
        width, height, left, right, top, bottom, "".join(area), "".join(line),
        time.ticks(max(2, int((right - left) / 70))), ticks,
    )  # fmt: skip


class Strip(NamedTuple):
    """The latency of one pair: a box from ``p50`` to ``p90``, a whisker to ``p99``, a dot at the largest."""

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


def latency_strips(pairs: Sequence[Pair], width: int) -> Strips:
    """A strip for each pair, on a logarithmic scale: some take microseconds, some seconds."""
    letters = 30 if width >= WIDE else 15
    labels = [shown(arrow(pair.sender, pair.receiver), letters) for pair in pairs]
    left = 12 + max(map(breadth, labels), default=0)
    right, row = width - (72.0 if width >= WIDE else 16.0), 26
    scale = Log(*log_limits([value for pair in pairs for value in (pair.p50, pair.top)]), left, right)
    strips = []
    for place, (pair, label) in enumerate(zip(pairs, labels, strict=True)):
        tip = (
            f"{shown(pair.sender)} to {shown(pair.receiver)}: half within {latency(pair.p50)}, 90 percent within "
            f"{latency(pair.p90)}, 99 percent within {latency(pair.p99)}, at most {latency(pair.top)}"
        )
        p50, p90, p99, top = (scale(value) for value in (pair.p50, pair.p90, pair.p99, pair.top))
        strips.append(Strip(10 + (place + 0.5) * row, label, tip, p50, p90, p99, top, latency(pair.p99)))
    powers = list(scale.powers())
    powers = powers[:: -(-len(powers) // (8 if width >= WIDE else 4))]
    bottom = 10.0 + len(pairs) * row
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
    # A class of style.css: covered, silent or lasting.
    kind: str
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
    """A lane for each source, those still silent first; a lasting silence reaches the right edge."""
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
    """A lane for each recorder, from its first to its last record, without its pauses."""
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
        note = f"{compact(row.unrecorded)} missed" if row.unrecorded and notes else ""
        lanes.append(Lane(10 + place * LANE, shown(row.host, letters), shown(row.host), stretches, note))
    return _timeline(lanes, time, width)


def bar(value: float, most: float) -> float:
    """The length of a bar in a table, in percent; never too short to be seen."""
    return round(max(1.0, 100 * value / most), 1) if value > 0 and most > 0 else 0.0
