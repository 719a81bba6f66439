"""The same plots through matplotlib, as png or svg files: for papers and slides."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from gcfl.base.errors import RunError
from gcfl.report.charts import Bars, Chart, Heat, Plot, Section
from gcfl.report.svg import log_ticks, number

_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#b5528b",
    "#6b7280",
    "#c98a00",
    "#3aa0dc",
    "#111111",
    "#882255",
    "#117733",
)
_STYLES = ("-", "--", ":", "-.")
_ACROSS = 3
_LEGEND_COLUMNS = 2  # for each panel in a row


def look(place: int) -> tuple[str, str]:
    """Colour and dashes of the line at a place: those of the page, and different for 40 lines."""
    return _COLOURS[place % len(_COLOURS)], _STYLES[(place + place // len(_COLOURS)) % len(_STYLES)]


def save(sections: Sequence[Section], out: Path, format: str, lines: Sequence[str]) -> list[Path]:
    """All figures in one file where `out` ends in .png or .svg, else a file per section in the
    folder `out`.
    """
    wanted = [section for section in sections if section.plots]
    if not wanted:
        raise RunError("these runs have nothing to draw: no round was evaluated")
    # names are text, never formulas
    settings: dict[Any, Any] = {"text.parse_math": False, "font.size": 9}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing")
        if out.suffix.lower() == f".{format}":
            out.parent.mkdir(parents=True, exist_ok=True)
            _write(wanted, out, format, lines)
            return [out]
        out.mkdir(parents=True, exist_ok=True)
        files = []
        for section in wanted:
            files.append(
                out / f"{re.sub(r'[^a-z0-9]+', '-', section.title.lower()).strip('-')}.{format}"
            )
            _write([section], files[-1], format, lines)
    return files


def _write(sections: Sequence[Section], path: Path, format: str, lines: Sequence[str]) -> None:
    wide = min(_ACROSS, max(len(section.plots) for section in sections))
    rows = [math.ceil(len(section.plots) / wide) for section in sections]
    names = [
        sorted(
            {line.name for plot in section.plots if isinstance(plot, Chart) for line in plot.lines},
            key=lines.index,
        )
        for section in sections
    ]
    heights = [
        3.0 * high + 0.6 + 0.25 * math.ceil(len(called) / (_LEGEND_COLUMNS * wide))
        for high, called in zip(rows, names, strict=True)
    ]
    figure = Figure(figsize=(max(4.8, 4.2 * wide), sum(heights)), dpi=150, layout="constrained")
    parts = figure.subfigures(len(sections), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, section, high, called in zip(parts, sections, rows, names, strict=True):
        part.suptitle(section.title, fontsize=11)
        grid = part.subplots(high, wide, squeeze=False).ravel()
        for axes, plot in zip(grid, section.plots, strict=False):
            _draw(axes, plot, lines)
        for axes in grid[len(section.plots) :]:
            axes.set_axis_off()
        drawn = {
            label: handle
            for axes in grid
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        labels = called or list(drawn)
        if labels:
            columns = min(_LEGEND_COLUMNS * wide, len(labels))
            part.legend(
                [drawn[label] for label in labels],
                labels,
                loc="outside lower center",
                ncols=columns,
                frameon=False,
            )
    figure.savefig(path, format=format, metadata={"Date": None} if format == "svg" else None)


def _draw(axes: Any, plot: Plot, lines: Sequence[str]) -> None:
    axes.set_title(plot.title, fontsize=9)
    if isinstance(plot, Heat):
        _heat(axes, plot)
        return
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if isinstance(plot, Bars):
        _bars(axes, plot)
        return
    for line in plot.lines:
        colour, style = look(lines.index(line.name))
        x, y = np.array(line.x), 100 * np.array(line.y)
        axes.plot(
            x,
            y,
            color=colour,
            linestyle=style,
            marker="o" if plot.points or len(x) == 1 else "",
            markersize=4,
            label=line.name,
        )
        if line.sd:
            sd = 100 * np.array(line.sd)
            axes.fill_between(x, y - sd, y + sd, color=colour, alpha=0.13, linewidth=0)
    if plot.log:
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xticks(places := log_ticks(low, high), list(map(number, places)))
        axes.set_xticks([], minor=True)
    axes.set_xlabel(f"{plot.x}, logarithmic" if plot.log else plot.x)
    axes.set_ylabel(plot.y)


def _bars(axes: Any, bars: Bars) -> None:
    names = [name for name, _ in bars.rows]
    left = np.zeros(len(names))
    for place, kind in enumerate(bars.kinds):
        values = np.array([row[place] for _, row in bars.rows])
        axes.barh(
            range(len(names)), values, left=left, color=_COLOURS[place], label=kind, height=0.6
        )
        left += values
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel(f"{bars.unit} per round")


def _heat(axes: Any, heat: Heat) -> None:
    values = np.array(heat.values)
    image = axes.imshow(values, aspect="auto", cmap="Blues", vmin=0, interpolation="nearest")
    for set_ticks, names in ((axes.set_xticks, heat.columns), (axes.set_yticks, heat.rows)):
        step = max(1, len(names) // 12)
        set_ticks(range(0, len(names), step), [name[:10] for name in names[::step]], fontsize=7)
    axes.set_xlabel(heat.x)
    axes.set_ylabel(heat.y)
    axes.figure.colorbar(image, ax=axes, label="samples")
