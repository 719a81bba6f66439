"""The plots of the page: one legend for all lines, two columns where there is room, below each plot
its table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from gcfl.report.axes import number
from gcfl.report.markup import html_table
from gcfl.report.plots import Bars, Chart, Heat, Plot, Section, line_names, table
from gcfl.report.svg import draw, swatch

_HIDES = "A name hides and shows its line."
_MOST_COLUMNS = 20  # of a heatmap in half a page


def curves(sections: Sequence[Section], lines: Sequence[str]) -> list[str]:
    """All plots. lines: the names of all lines of the page, in the order of their colours."""
    if not sections:
        return []
    names = set(line_names(sections))
    used = [name for name in lines if name in names]
    legend = "".join(_switch(name, lines.index(name)) for name in used)
    parts = ["<h2>Curves</h2>"]
    if len(used) > 1:
        parts.append(f'<ul class="legend lines" title="{_HIDES}">{legend}</ul>')
    every = Counter(note for section in sections for note in section.notes)
    shared = [note for note, times in every.items() if times > 1]  # told once, for all
    parts += [f'<p class="note">{escape(" ".join(shared))}</p>'] if shared else []
    cells = "".join(_section(section, lines, shared) for section in sections)
    return [*parts, f'<div class="panels">{cells}</div>']


def _section(section: Section, lines: Sequence[str], told: Sequence[str]) -> str:
    """A cell of the grid, or a row of it where there are several plots, or a wide one. told: notes
    that stand above.
    """
    words = " ".join(note for note in section.notes if note not in told)
    notes = f'<p class="note">{escape(words)}</p>' if words else ""
    bars = [plot for plot in section.plots if isinstance(plot, Bars)]
    legend = ""
    if bars:
        blocks = "".join(_block(kind, place) for place, kind in enumerate(bars[0].kinds))
        legend = f'<ul class="legend">{blocks}</ul>'
    wide = any(isinstance(one, Heat) and len(one.columns) > _MOST_COLUMNS for one in section.plots)
    kind = ' class="row"' if len(section.plots) > 1 or wide else ""
    plots = "".join(_figure(plot, lines) for plot in section.plots)
    if len(section.plots) > 1:
        plots = f'<div class="panels">{plots}</div>'
    return f"<section{kind}><h3>{escape(section.title)}</h3>{legend}{plots}{notes}</section>"


def _switch(name: str, place: int) -> str:
    button = f'<button type="button" data-shows="{place}" aria-pressed="true">'
    return f"<li>{button}{swatch(place)}{escape(name)}</button></li>"


def _block(kind: str, place: int) -> str:
    square = f'<rect class="fill c{place}" width="1" height="1"/>'
    block = f'<svg class="block" viewBox="0 0 1 1" aria-hidden="true">{square}</svg>'
    return f"<li><span>{block}{escape(kind)}</span></li>"


def _figure(plot: Plot, lines: Sequence[str]) -> str:
    heads, rows = table(plot)
    texts = [[cell if isinstance(cell, str) else number(cell) for cell in row] for row in rows]
    caption = f"<figcaption>{escape(plot.title)}</figcaption>" if plot.title else ""
    unit = ""
    if isinstance(plot, Chart) and not plot.points:
        words = f"{plot.y.head} after so many rounds; long runs show some of them."
        unit = f'<p class="note">{escape(words)}</p>'
    return (
        f'<figure id="{plot.id}">{caption}{draw(plot, lines)}'
        f"<details><summary>Table</summary>{unit}{html_table(heads, texts)}</details></figure>"
    )
