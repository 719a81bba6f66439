"""Charts through matplotlib: lines, the mark of equal cost, names at the ends of lines."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from gcfl.report.axes import apart, log_ticks, number, ticks
from gcfl.report.plots import DASHES, PALETTE, Chart, Line, look

FONT = 10.0  # points
_STYLES = ("-", "--", ":", "-.")[:DASHES]
_LABEL = 15  # letters of a line of a name at the end of a line
_GAP = 14.0  # points between a chart and the names beside it
_FEW = 5  # more bands than this hide each other


def _colour(line: Line, lines: Sequence[str]) -> str:
    return PALETTE[look(lines.index(line.name))[0]][0]


def draw_chart(axes: Any, chart: Chart, lines: Sequence[str]) -> None:
    scale = chart.y.style.scale
    few = len(chart.lines) <= _FEW
    for line in chart.lines:
        dashes, colour = look(lines.index(line.name))[1], _colour(line, lines)
        x, y = np.array(line.x), scale * np.array(line.y)
        look_of = {"color": colour, "linewidth": 2.8 if line.strong else 1.5, "label": line.name}
        above = 3 if line.strong else 2
        if line.level:
            axes.axhline(y[-1], linestyle=_STYLES[dashes], zorder=above, **look_of)
            continue
        marker = "o" if chart.points or len(x) == 1 else ""
        axes.plot(x, y, _STYLES[dashes], marker=marker, markersize=5, zorder=above, **look_of)
        if line.sd:
            sd = scale * np.array(line.sd)
            if chart.points:
                axes.errorbar(x, y, sd, fmt="none", ecolor=colour, elinewidth=1, capsize=2)
            else:
                alpha = 0.15 if line.strong else 0.13 if few else 0.06
                axes.fill_between(x, y - sd, y + sd, color=colour, alpha=alpha, linewidth=0)
    if chart.log:
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        points = sorted({x for line in chart.lines for x in line.x})
        places = points if chart.points and len(points) <= 8 else log_ticks(low, high)
        axes.set_xticks(places, list(map(number, places)))
        axes.set_xticks([], minor=True)
    elif not chart.points:
        axes.set_xlim(0, max(line.x[-1] for line in chart.courses))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=chart.x == "rounds"))
    low, high = chart.range()
    axes.set_ylim(scale * low, scale * high)
    places = ticks(scale * low, scale * high)
    axes.set_yticks(places, list(map(number, places)))
    axes.set_xlabel(f"{chart.x}, logarithmic" if chart.log else chart.x)
    axes.set_ylabel(chart.y.head)
    if chart.equal is not None:
        _equal(axes, chart, chart.equal, lines)


def _equal(axes: Any, chart: Chart, where: float, lines: Sequence[str]) -> None:
    """A mark where the line that spends least ends: what the others have by then."""
    axes.axvline(where, color="0.45", linewidth=1, linestyle=(0, (2, 2)), zorder=1)
    axes.annotate(
        f"equal cost: {number(where)}",
        (where, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(-5, 2),
        textcoords="offset points",
        ha="right",
        color="0.35",
        fontsize=FONT - 1,
    )
    then = chart.by_then()
    heights = [chart.y.style.scale * height for _, height in then]
    low, high = axes.get_ylim()
    points = axes.get_window_extent().height * 72 / axes.figure.dpi
    room = 1.3 * FONT * (high - low) / points  # of a number, as much of the axis
    middles = apart([one + room / 2 for one in heights], [room] * len(heights), low, high)
    for (line, _), y, middle in zip(then, heights, middles, strict=True):
        colour = _colour(line, lines)
        axes.plot([where], [y], "o", color=colour, markersize=6, zorder=4)
        axes.annotate(
            chart.y.style.mean(y),
            (where, middle),
            xytext=(-5, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            color=colour,
            fontweight="bold" if line.strong else None,
            fontsize=FONT - 0.5,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )


def name_ends(figure: Figure, named: Sequence[tuple[Any, Chart]], lines: Sequence[str]) -> None:
    """Names and last values at the right of charts, each by the end of its line, none on another.
    Where they stand depends on the room that they leave, so all are laid out once before.
    """
    texts = {
        (place, line.name): _name(axes, chart, line, lines)
        for place, (axes, chart) in enumerate(named)
        for line in chart.lines
        if line.y
    }
    if texts:
        figure.draw_without_rendering()
    for place, (axes, chart) in enumerate(named):
        outside = [line for line in chart.lines if line.y and not _inside(chart, line)]
        box, (low, high) = axes.get_window_extent(), axes.get_ylim()
        ends = [chart.y.style.scale * line.y[-1] for line in outside]
        ends = [(min(max(end, low), high) - low) / (high - low) for end in ends]
        boxes = [texts[place, line.name].get_window_extent() for line in outside]
        middles = apart(ends, [(one.height + 3) / box.height for one in boxes], -0.1, 1.1)
        for line, end, middle in zip(outside, ends, middles, strict=True):
            texts[place, line.name].xy = (1.0, middle)
            gap = _GAP * figure.dpi / 72 / box.width
            last = 1.0 if line.level else _across(axes, line.x[-1])
            axes.plot(
                [last, 1.0, 1.0 + 0.85 * gap],
                [end, end, middle],
                color=_colour(line, lines),
                linewidth=0.7,
                alpha=0.6,
                transform=axes.transAxes,
                clip_on=False,
                zorder=1,
            )


def _name(axes: Any, chart: Chart, line: Line, lines: Sequence[str]) -> Any:
    """At the end of a line that ends inside its chart, else at the right of the chart."""
    y = chart.y.style.scale * line.y[-1]
    words = textwrap.wrap(f"{line.name} {chart.y.style.mean(y)}", _LABEL, break_long_words=False)
    inside = _inside(chart, line)
    return axes.annotate(
        "\n".join(words),
        (line.x[-1], y) if inside else (1.0, 0.5),
        xycoords="data" if inside else "axes fraction",
        xytext=(_GAP / 2 if inside else _GAP, 0),
        textcoords="offset points",
        color=_colour(line, lines),
        fontsize=FONT - 0.5,
        fontweight="bold" if line.strong else None,
        va="center",
        linespacing=1.0,
        path_effects=[withStroke(linewidth=3, foreground="white")],  # lines pass behind it
    )


def _inside(chart: Chart, line: Line) -> bool:
    """A line over a setting that stops before the largest value."""
    return chart.points and line.x[-1] < max(one.x[-1] for one in chart.lines if one.x)


def _across(axes: Any, x: float) -> float:
    """Where a value of x stands, as a share of the width of its chart."""
    at = axes.transData.transform((x, 0.0))
    return float(axes.transAxes.inverted().transform(at)[0])
