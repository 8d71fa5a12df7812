"""Plots of benchmarks as SVG: bars by group, and cost against size.

Equal figures give equal files: no dates, no random ids.  Needs matplotlib, which the extra `bench` brings.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib
from attrs import frozen
from matplotlib.figure import Figure

_STYLE: Any = {"svg.hashsalt": "streams", "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"}
_COLOURS = ("#0b6e4f", "#c84c09", "#4a6fa5", "#8fa9cc", "#b08ea2", "#9a9a9a", "#d6a99a")


@frozen
class Bars:
    """One system's runs in each group; an empty group has no bar."""

    name: str
    runs: Sequence[Sequence[float]]


def draw_bars(path: Path, title: str, unit: str, groups: Sequence[str], series: Sequence[Bars]) -> None:
    """Draw medians side by side, with a whisker from the least to the most."""
    with matplotlib.rc_context(_STYLE):
        _draw_bars(path, title, unit, groups, series)


def _draw_bars(path: Path, title: str, unit: str, groups: Sequence[str], series: Sequence[Bars]) -> None:
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(1, len(series))
    for number, bars in enumerate(series):
        shown = [(place, runs) for place, runs in enumerate(bars.runs) if runs]
        heights = [median(runs) for _, runs in shown]
        low = [height - min(runs) for height, (_, runs) in zip(heights, shown, strict=True)]
        high = [max(runs) - height for height, (_, runs) in zip(heights, shown, strict=True)]
        places = [place + (number - (len(series) - 1) / 2) * width for place, _ in shown]
        colour = _COLOURS[number % len(_COLOURS)]
        axes.bar(places, heights, width, yerr=[low, high], label=bars.name, color=colour, error_kw={"linewidth": 0.7})
    axes.set_xticks(range(len(groups)), groups)
    _finish(figure, path, title, unit)


def draw_cost(
    path: Path, title: str, size: str, unit: str, lines: Mapping[str, Mapping[float, Sequence[float]]]
) -> None:
    """Draw cost against size: for each name the runs at each size; the size has a logarithmic axis.

    The line goes through the medians, a whisker from the least to the most.
    """
    with matplotlib.rc_context(_STYLE):
        _draw_cost(path, title, size, unit, lines)


def _draw_cost(
    path: Path, title: str, size: str, unit: str, lines: Mapping[str, Mapping[float, Sequence[float]]]
) -> None:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for number, (name, points) in enumerate(lines.items()):
        sizes = sorted(points)
        middle = [median(points[at]) for at in sizes]
        low = [height - min(points[at]) for height, at in zip(middle, sizes, strict=True)]
        high = [max(points[at]) - height for height, at in zip(middle, sizes, strict=True)]
        colour = _COLOURS[number % len(_COLOURS)]
        axes.errorbar(sizes, middle, yerr=[low, high], label=name, color=colour, marker="o", markersize=3, capsize=2)
    axes.set_xscale("log")
    axes.set_xlabel(size)
    _finish(figure, path, title, unit)


def _finish(figure: Figure, path: Path, title: str, unit: str) -> None:
    (axes,) = figure.axes
    axes.set_title(title, loc="left")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:g}")
    axes.grid(axis="y", linewidth=0.4)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
