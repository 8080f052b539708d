"""Charts of the figures, as SVG and PNG: bars compare contenders, lines show growth.

The data need no library. Drawing needs matplotlib, from the extra ``bench``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

Runs = Sequence[float]  # the values of one contender, a value a run

# A contender looks the same in all charts. The colours suit the colour-blind too (Okabe and Ito).
COLOURS = {
    "bccnd": "#0072b2",
    "bccnd packed": "#56b4e9",
    "limit": "#444444",
    "nats": "#e69f00",
    "redis": "#d55e00",
    "mosquitto": "#009e73",
    "dbus": "#cc79a7",
    "repair": "#0072b2",
    "nats over tcp": "#e69f00",
    "copies = 2": "#009e73",
    "nothing": "#444444",
    "backbone": "#0072b2",
    "bare loop": "#444444",
    "bare loop, divided": "#999999",
    "uplinks": "#0072b2",
}
SPARE_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#444444")


@dataclass(frozen=True)
class Bars:
    """``groups``: group -> contender -> runs. Bars are medians; thin lines go from the lowest to the highest run."""

    name: str
    title: str
    unit: str
    groups: Mapping[str, Mapping[str, Runs]]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Lines:
    """``series``: contender -> x -> runs. Lines join medians, the band reaches from the lowest to the highest run."""

    name: str
    title: str
    x: str
    unit: str
    series: Mapping[str, Mapping[float, Runs]]
    logarithmic: bool = True  # the x axis, by powers of two
    magnitudes: bool = False  # the y axis, by powers of ten
    lowest: float = 0.0  # of the y axis

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


Chart = Bars | Lines


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def draw(chart: Chart, folder: Path) -> list[Path]:
    """The files that were written."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(9, 5), layout="constrained")
    axes = canvas.subplots()
    axes.set_title(chart.title, loc="left", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    if isinstance(chart, Bars):
        _draw_bars(axes, chart)
    else:
        _draw_lines(axes, chart)
    files = [folder / f"{chart.name}.{ending}" for ending in ("svg", "png")]
    for file in files:
        canvas.savefig(file, dpi=120)
    return files


def _draw_bars(axes: Any, chart: Bars) -> None:
    contenders = list(dict.fromkeys(name for group in chart.groups.values() for name in group))
    alone = len(chart.groups) == 1  # then each bar has its name below it, and there is no legend
    width = 0.9 if alone else 0.86 / len(contenders)
    for index, contender in enumerate(contenders):
        for place, group in enumerate(chart.groups.values()):
            if not (runs := group.get(contender)):
                continue
            middle = index if alone else place + width * (index + 0.5 - len(contenders) / 2)
            height, lowest, highest = median(runs), min(runs), max(runs)
            label = contender if place == 0 else None
            axes.bar(middle, height, width * 0.9, label=label, color=_colour(contender, index))
            axes.vlines(middle, lowest, highest, color="#777777", linewidth=1.2)
            above = {"textcoords": "offset points", "xytext": (0, 3), "ha": "center", "fontsize": 8}
            axes.annotate(_short(height), (middle, highest), **above)
    names = contenders if alone else list(chart.groups)
    axes.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    axes.tick_params(axis="x", length=0)
    _finish(axes, chart, [] if alone else contenders)


def _draw_lines(axes: Any, chart: Lines) -> None:
    for index, (contender, points) in enumerate(chart.series.items()):
        xs = list(points)
        colour = _colour(contender, index)
        axes.plot(
            xs, [median(points[x]) for x in xs], marker="o", markersize=4, label=contender, color=colour
        )
        lowest, highest = [min(points[x]) for x in xs], [max(points[x]) for x in xs]
        axes.fill_between(xs, lowest, highest, color=colour, alpha=0.15, linewidth=0)
    if chart.logarithmic:
        axes.set_xscale("log", base=2)
        xs = sorted({x for points in chart.series.values() for x in points})
        axes.set_xticks(xs, [f"{x:g}" for x in xs])
        axes.minorticks_off()
    axes.set_xlabel(chart.x)
    _finish(axes, chart, list(chart.series))
    if chart.magnitudes:
        axes.set_yscale("log")
        axes.autoscale(axis="y")
        axes.yaxis.set_major_formatter(lambda value, _: _short(value))
    elif chart.lowest:
        axes.set_ylim(chart.lowest, axes.dataLim.y1 + (axes.dataLim.y1 - chart.lowest) / 20)


def _finish(axes: Any, chart: Chart, contenders: Sequence[str]) -> None:
    axes.set_ylabel(chart.unit)
    axes.yaxis.set_major_formatter(lambda value, _: _short(value))
    axes.set_ylim(0, axes.dataLim.y1 * 1.12)
    if len(contenders) > 1:
        axes.legend(frameon=False, ncols=len(contenders), loc="upper center", bbox_to_anchor=(0.5, -0.12))


def _colour(contender: str, index: int) -> str:
    return COLOURS.get(contender, SPARE_COLOURS[index % len(SPARE_COLOURS)])


def _short(value: float) -> str:
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"
