"""Plots as plain numbers, with their palette and their table view; drawing them is the business of
svg.py and matplotlib_.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gcfl.report.axes import rounded
from gcfl.results.measures import Measure
from gcfl.results.styles import Spread

# On light paper and on dark; told apart by colour-blind readers, and by their dashes in grey print.
PALETTE = (
    ("#0072b2", "#4ba9ea"),
    ("#d55e00", "#ff8b4a"),
    ("#009e73", "#2fd3a2"),
    ("#b5528b", "#ec9cc9"),
    ("#6b7280", "#a5adb8"),
    ("#c98a00", "#f5bd41"),
    ("#3aa0dc", "#93d6fb"),
    ("#111111", "#f4f4f4"),
    ("#882255", "#d98bb5"),
    ("#117733", "#7cc48a"),
)
DASHES = 4  # different ones that a drawing must have
ALIKE = 1.02  # lines that end closer than this have cost the same
_MOST_ROWS = 24
_AIR = 0.03


def look(place: int) -> tuple[int, int]:
    """The colour and the dashes of the line at a place, by number; different for 40 lines."""
    return place % len(PALETTE), (place + place // len(PALETTE)) % DASHES


@dataclass(frozen=True)
class Line:
    """name: who; x and y (n,); sd (n,) over seeds, None where there is one seed; rounds (n,): after
    how many, over time. strong: the one to look at. level: it spends nothing of what x counts, so
    it has a height, that of its only point, and no course.
    """

    name: str
    x: list[float]
    y: list[float]
    sd: list[float] | None
    rounds: list[int] = field(default_factory=list)
    strong: bool = False
    level: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines over an axis; y says how its values are written. points: mark each, since they are few
    and no course of time. floor: where the axis of y starts, if not below the lowest value. equal:
    where the line that spends least ends, so that all can be compared there.
    """

    id: str
    title: str
    x: str
    y: Measure
    lines: list[Line]
    log: bool = False
    points: bool = False
    floor: float | None = None
    equal: float | None = None

    @property
    def courses(self) -> list[Line]:
        return [line for line in self.lines if not line.level]

    def range(self) -> tuple[float, float]:
        """Round numbers around the lowest and the highest value, bands included, within what y can
        be.
        """
        bands = [
            (y - sd, y + sd)
            for line in self.lines
            for y, sd in zip(line.y, line.sd or [0.0] * len(line.y), strict=True)
        ]
        low, high = min(low for low, _ in bands), max(high for _, high in bands)
        scale, top = self.y.style.scale, self.y.style.top
        air = _AIR * (high - low)  # a line on the axis would not be seen
        low, high = max(low - air, min(low, 0.0)), high + air
        if top is not None:
            low, high = max(low, 0.0), min(high, top)
        low = low if self.floor is None else self.floor
        if high <= low:
            low, high = (0.0, top or 1.0) if low == 0 else (0.95 * low, 1.05 * low)
        bottom, end = (one / scale for one in rounded(scale * low, scale * high))
        return bottom if self.floor is None else self.floor, end

    def by_then(self) -> list[tuple[Line, float]]:
        """Lines that go on beyond `equal`, and their heights there, between the points around."""
        if self.equal is None:
            return []
        further = [line for line in self.courses if line.x[-1] > ALIKE * self.equal]
        return [(line, float(np.interp(self.equal, line.x, line.y))) for line in further]


@dataclass(frozen=True)
class Bars:
    """A stacked bar for each name: what it is made of, in the order of `kinds`. x: the axis; unit:
    behind a number; sd: of each whole bar.
    """

    id: str
    title: str
    x: str
    unit: str
    kinds: Sequence[str]
    rows: list[tuple[str, list[float]]]
    sd: list[float] | None = None


@dataclass(frozen=True)
class Heat:
    """values (rows, columns) in `unit`, NaN where there is nothing; top: the largest possible."""

    id: str
    title: str
    x: str
    y: str
    columns: list[str]
    rows: list[str]
    values: list[list[Any]]
    unit: str = "samples"
    top: float | None = None


Plot = Chart | Bars | Heat


@dataclass(frozen=True)
class Section:
    """Plots that belong together, and what to know when reading them."""

    title: str
    notes: list[str]
    plots: Sequence[Plot]


def line_names(sections: Iterable[Section]) -> list[str]:
    """The names of all lines, each once."""
    charts = [plot for section in sections for plot in section.plots if isinstance(plot, Chart)]
    return list(dict.fromkeys(line.name for chart in charts for line in chart.lines))


def table(plot: Plot) -> tuple[list[str], list[list[Any]]]:
    """The same numbers for those who read rather than look: heads, and rows of numbers or text."""
    if isinstance(plot, Heat):
        rows = [[name, *row] for name, row in zip(plot.rows, plot.values, strict=True)]
        return [plot.y, *plot.columns], rows
    if isinstance(plot, Bars):
        heads = ["", *(f"{kind}, {plot.unit}" for kind in plot.kinds)]
        return heads, [[name, *values] for name, values in plot.rows]
    if plot.points:
        xs = sorted({x for line in plot.lines for x in line.x})
        rows = [[x, *(_at(plot, line, line.x, x) for line in plot.lines)] for x in xs]
        return [plot.x, *(line.name for line in plot.lines)], rows
    return _course_table(plot)


def _course_table(chart: Chart) -> tuple[list[str], list[list[Any]]]:
    """By round, a cost told beside each value. Long runs show some rounds only."""
    every = sorted({number for line in chart.lines for number in line.rounds})
    step = -(-len(every) // _MOST_ROWS)
    cost = chart.x != "rounds"
    heads = ["rounds"]
    for line in chart.lines:
        heads += [f"{line.name}: {chart.x}", line.name] if cost else [line.name]
    rows: list[list[Any]] = []
    for number in sorted({*every[::step], every[-1]}):
        rows.append([number])
        for line in chart.lines:
            if cost:
                there = number in line.rounds
                rows[-1].append(line.x[line.rounds.index(number)] if there else "-")
            rows[-1].append(_at(chart, line, line.rounds, number))
    return heads, rows


def _at(chart: Chart, line: Line, places: Sequence[float], place: float) -> str:
    """A line's value where `places` has this place."""
    if place not in places:
        return "-"
    here = places.index(place)
    return chart.y.text_of(Spread(line.y[here], line.sd[here] if line.sd else None, 1))
