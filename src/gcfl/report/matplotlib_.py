"""The same plots through matplotlib, as png or svg files: for papers and slides."""

from __future__ import annotations

import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from gcfl.base.errors import RunError
from gcfl.report.curves import FONT, draw_chart, name_ends
from gcfl.report.plots import PALETTE, Bars, Chart, Heat, Plot, Section, line_names

_ACROSS = 3
_LETTERS = 13.5  # of a legend, to an inch
_MOST_LABELLED = 8  # lines that have their names at their ends
_LARGEST_NUMBERED = 14


@contextmanager
def names_as_they_are() -> Iterator[None]:
    """Names of classes, clients and methods are text, never formulas, in whatever script."""
    settings: dict[Any, Any] = {"text.parse_math": False, "font.size": FONT}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing")
        yield


def save(
    sections: Sequence[Section], out: Path, format: str, lines: Sequence[str] = ()
) -> list[Path]:
    """All figures in one file where `out` ends in .png or .svg, else a file per section in the
    folder `out`. lines: names in the order of their colours; others follow.
    """
    wanted = [section for section in sections if section.plots]
    if not wanted:
        raise RunError("these runs have nothing to draw: no round was evaluated")
    order = list(dict.fromkeys([*lines, *line_names(wanted)]))
    with names_as_they_are():
        if out.suffix.lower() == f".{format}":
            out.parent.mkdir(parents=True, exist_ok=True)
            _write(wanted, out, format, order)
            return [out]
        out.mkdir(parents=True, exist_ok=True)
        files = []
        for section in wanted:
            name = re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-")
            files.append(out / f"{name}.{format}")
            _write([section], files[-1], format, order)
    return files


def _size(plot: Plot, alone: bool = False) -> tuple[float, float]:
    """Inches across and down; a chart that stands alone is larger."""
    if isinstance(plot, Heat):
        across, down = 0.55 * len(plot.columns) + 2.6, 0.36 * len(plot.rows) + 1.4
        return float(np.clip(across, 5.0, 16.0)), float(np.clip(down, 3.0, 14.0))
    if isinstance(plot, Bars):
        return 4.6, 1.1 + 0.28 * len(plot.rows)
    return (6.4, 3.8) if alone else (4.6, 3.2)


def _write(sections: Sequence[Section], path: Path, format: str, lines: Sequence[str]) -> None:
    across = min(_ACROSS, max(len(section.plots) for section in sections))
    sizes = [[_size(plot, across == 1) for plot in section.plots] for section in sections]
    width = max(wide for section in sizes for wide, _ in section) * across
    rows = [math.ceil(len(section.plots) / across) for section in sections]
    labelled = [_labelled(section) for section in sections]
    legends = [
        [] if at_ends else _legend(section, lines)
        for at_ends, section in zip(labelled, sections, strict=True)
    ]
    columns = [_columns(names, width) for names in legends]
    heights = [
        many * max(high for _, high in section) + 0.5 + 0.2 * math.ceil(len(names) / beside)
        for section, many, names, beside in zip(sizes, rows, legends, columns, strict=True)
    ]
    figure = Figure(figsize=(width, sum(heights)), dpi=150, layout="constrained")
    parts = figure.subfigures(len(sections), 1, height_ratios=heights, squeeze=False)[:, 0]
    named: list[tuple[Any, Chart]] = []
    for place, (part, section) in enumerate(zip(parts, sections, strict=True)):
        parts_of = section.title.split("; ")
        title = "\n".join(line for one in parts_of for line in textwrap.wrap(one, int(11 * width)))
        part.suptitle(title, fontsize=FONT + 1, fontweight="bold")
        grid = part.subplots(rows[place], across, squeeze=False).ravel()
        drawn: dict[str, Any] = {}
        for axes, plot in zip(grid[: len(section.plots)], section.plots, strict=True):
            _draw(axes, plot, lines)
            if labelled[place] and isinstance(plot, Chart):
                named.append((axes, plot))
            handles, names = axes.get_legend_handles_labels()
            drawn |= dict(zip(names, handles, strict=True))
        for axes in grid[len(section.plots) :]:
            axes.set_axis_off()
        if names := legends[place]:
            part.legend(
                [drawn[name] for name in names],
                names,
                loc="outside lower center",
                ncols=columns[place],
                frameon=False,
                handlelength=3,
            )
    name_ends(figure, named, lines)
    figure.savefig(path, format=format, metadata={"Date": None} if format == "svg" else None)


def _labelled(section: Section) -> bool:
    """Whether its lines have their names at their ends: few lines, and panels wide enough."""
    charts = [plot for plot in section.plots if isinstance(plot, Chart)]
    few = all(len(chart.lines) <= _MOST_LABELLED for chart in charts)
    return bool(charts) and len(charts) == len(section.plots) <= _ACROSS - 1 and few


def _legend(section: Section, lines: Sequence[str]) -> list[str]:
    """The lines of its charts, in the order of their colours, and what its bars are made of."""
    kinds = [plot.kinds for plot in section.plots if isinstance(plot, Bars)]
    stacked = list(kinds[0]) if kinds and len(kinds[0]) > 1 else []
    return sorted(line_names([section]), key=lines.index) + stacked


def _columns(names: Sequence[str], width: float) -> int:
    """So many names stand beside each other in a legend of this width, in equal rows."""
    longest = max(map(len, names), default=0) + 8  # with the piece of line before it
    most = max(1, int(_LETTERS * width / longest))
    rows = max(1, math.ceil(len(names) / most))
    return max(1, math.ceil(len(names) / rows))


def _draw(axes: Any, plot: Plot, lines: Sequence[str]) -> None:
    axes.set_title(plot.title, fontsize=FONT)
    if isinstance(plot, Heat):
        _heat(axes, plot)
        return
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if isinstance(plot, Bars):
        _bars(axes, plot)
    else:
        draw_chart(axes, plot, lines)


def _bars(axes: Any, bars: Bars) -> None:
    names = [name for name, _ in bars.rows]
    left = np.zeros(len(names))
    for place, kind in enumerate(bars.kinds):
        values = np.array([row[place] for _, row in bars.rows])
        colour = PALETTE[place % len(PALETTE)][0]
        axes.barh(range(len(names)), values, left=left, color=colour, label=kind, height=0.6)
        left += values
    if len(bars.kinds) == 1:
        sd = np.array(bars.sd or np.zeros(len(names)))
        axes.errorbar(left, range(len(names)), xerr=sd if bars.sd else None, fmt="none", ecolor="k")
        for place, (value, more) in enumerate(zip(left, sd, strict=True)):
            axes.text(value + more, place, f" {value:.3g}", va="center", fontsize=8)
        axes.set_xlim(0, 1.15 * float((left + sd).max()) or 1.0)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel(bars.x)


def _heat(axes: Any, heat: Heat) -> None:
    """Numbers in the cells while they can be read; grey where there is nothing."""
    values = np.array(heat.values, dtype=float)
    colours = matplotlib.colormaps["Blues"].with_extremes(bad="lightgrey")
    image = axes.imshow(
        values, aspect="auto", cmap=colours, vmin=0, vmax=heat.top, interpolation="nearest"
    )
    if max(values.shape) <= _LARGEST_NUMBERED:
        dark = 0.6 * (heat.top or max(1, np.nanmax(values)))
        for row, column in np.argwhere(np.isfinite(values)):
            value = values[row, column]
            colour = "white" if value > dark else "black"
            axes.text(
                column, row, f"{value:.0f}", ha="center", va="center", fontsize=7, color=colour
            )
    for set_ticks, names, most in (
        (axes.set_xticks, heat.columns, 24),
        (axes.set_yticks, heat.rows, 36),
    ):
        step = max(1, len(names) // most)
        cut = [name if len(name) <= 14 else f"{name[:13]}…" for name in names[::step]]
        long = set_ticks == axes.set_xticks and max(map(len, cut)) > 4
        turned = {"rotation": 45, "ha": "right"} if long else {}
        set_ticks(range(0, len(names), step), cut, fontsize=8, **turned)
    axes.set_xlabel(heat.x)
    axes.set_ylabel(heat.y)
    axes.figure.colorbar(image, ax=axes, label=heat.unit)
