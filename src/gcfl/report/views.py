"""The table view of a plot: the same numbers, for those who read rather than look."""

from __future__ import annotations

from typing import Any

from gcfl.report.charts import Bars, Chart, Heat, Line, Plot

_MOST_ROWS = 24


def table(plot: Plot) -> tuple[list[str], list[list[Any]]]:
    """The same numbers as a table: heads, and rows of numbers or text."""
    if isinstance(plot, Heat):
        return [plot.y, *plot.columns], [
            [name, *row] for name, row in zip(plot.rows, plot.values, strict=True)
        ]
    if isinstance(plot, Bars):
        return ["", *(f"{kind}, {plot.unit}" for kind in plot.kinds)], [
            [name, *values] for name, values in plot.rows
        ]
    if plot.points:
        xs = sorted({x for line in plot.lines for x in line.x})
        rows = [
            [x, *(_cell(line, line.x.index(x)) if x in line.x else "-" for line in plot.lines)]
            for x in xs
        ]
        return [plot.x, *(line.name for line in plot.lines)], rows
    return _course_table(plot)


def _course_table(chart: Chart) -> tuple[list[str], list[list[Any]]]:
    """By round; where the axis is a cost, that is told beside each value. Long runs show some
    rounds only.
    """
    every = sorted({number for line in chart.lines for number in line.rounds})
    step = -(-len(every) // _MOST_ROWS)
    cost = chart.x != "rounds"
    heads = [
        "rounds",
        *(
            head
            for line in chart.lines
            for head in ((f"{line.name}: {chart.x}", line.name) if cost else (line.name,))
        ),
    ]
    rows: list[list[Any]] = []
    for number in sorted({*every[::step], every[-1]}):
        row: list[Any] = [number]
        for line in chart.lines:
            place = line.rounds.index(number) if number in line.rounds else None
            row += ([line.x[place] if place is not None else "-"] if cost else []) + [
                "-" if place is None else _cell(line, place)
            ]
        rows.append(row)
    return heads, rows


def _cell(line: Line, place: int) -> str:
    tail = f" ± {100 * line.sd[place]:.1f}" if line.sd else ""
    return f"{100 * line.y[place]:.1f}{tail}"
