"""Charts of what was measured: bars for contenders side by side, lines for how something grows; as SVG and PNG.

The data need no library; drawing needs matplotlib, which is the extra ``bench``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

Runs = Sequence[float]  # the values of one contender, a value a run

# A contender looks the same in all charts. The colour-blind tell them apart, too (Okabe and Ito).
COLOURS = {
    "bccnd": "#0072b2",
    "bccnd packed": "#56b4e9",
    "limit": "#000000",
    "nats": "#e69f00",
    "redis": "#d55e00",
    "mosquitto": "#009e73",
    "dbus": "#cc79a7",
}
SPARE_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000")


@dataclass(frozen=True)
class Bars:
    """``groups``: group -> contender -> runs. Bars are medians, whiskers reach from the lowest to the highest run."""

    name: str
    title: str
    unit: str
    groups: Mapping[str, Mapping[str, Runs]]
    logarithmic: bool = False

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
    logarithmic: bool = True  # the x axis; and y, where it is a rate

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
    width = 0.8 / len(contenders)
    for index, contender in enumerate(contenders):
        places, heights, spread = [], [], ([], [])  # type: ignore[var-annotated]
        for place, group in enumerate(chart.groups.values()):
            if runs := group.get(contender):
                places.append(place - 0.4 + width * (index + 0.5))
                heights.append(median(runs))
                spread[0].append(median(runs) - min(runs))
                spread[1].append(max(runs) - median(runs))
        bars = axes.bar(places, heights, width * 0.92, label=contender, color=_colour(contender, index))
        axes.errorbar(places, heights, yerr=spread, fmt="none", ecolor="#555555", capsize=2, linewidth=1)
        axes.bar_label(bars, [_short(height) for height in heights], padding=4, fontsize=8)
    axes.set_xticks(range(len(chart.groups)), list(chart.groups))
    axes.tick_params(axis="x", length=0)
    _finish(axes, chart, contenders)


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
        axes.set_xticks(xs, [_short(x) for x in xs])
        axes.minorticks_off()
    axes.set_xlabel(chart.x)
    _finish(axes, chart, list(chart.series))


def _finish(axes: Any, chart: Chart, contenders: Sequence[str]) -> None:
    axes.set_ylabel(chart.unit)
    if isinstance(chart, Bars) and chart.logarithmic:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: _short(value))
    axes.margins(y=0.12)
    if len(contenders) > 1:
        axes.legend(
            frameon=False, ncols=min(4, len(contenders)), loc="upper center", bbox_to_anchor=(0.5, -0.12)
        )


def _colour(contender: str, index: int) -> str:
    return COLOURS.get(contender, SPARE_COLOURS[index % len(SPARE_COLOURS)])


def _short(value: float) -> str:
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"
