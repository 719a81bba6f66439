"""Two runs side by side in the terminal: settings that differ, result, cost, curves."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gcfl.report.collect import Run, read
from gcfl.report.study import shown
from gcfl.report.terminal import chart, human

_GAP = "   "
_SCALE = 7  # letters of the scale on the left of a chart
_NARROW = 72

Amount = Callable[[Run], float | None]
# What to compare: the name, the number, and how it is written.
_AMOUNTS: tuple[tuple[str, Amount, Callable[[float], str]], ...] = (
    (
        "accuracy, %",
        lambda run: None if run.accuracy is None else 100 * run.accuracy,
        "{:.2f}".format,
    ),
    (
        "best accuracy, %",
        lambda run: 100 * max(run_curve(run)) if run_curve(run) else None,
        "{:.2f}".format,
    ),
    (
        "clean share, %",
        lambda run: None if run.clean_share is None else 100 * run.clean_share,
        "{:.1f}".format,
    ),
    ("CPU-seconds, without evaluation", lambda run: run.cost["cpu"], "{:.3g}".format),
    ("  select", lambda run: run.cost["cpu_seconds"].get("select"), "{:.3g}".format),
    ("  train", lambda run: run.cost["cpu_seconds"].get("train"), "{:.3g}".format),
    ("  aggregate", lambda run: run.cost["cpu_seconds"].get("aggregate"), "{:.3g}".format),
    ("wall-clock seconds", lambda run: run.cost["wall"], "{:.3g}".format),
    ("samples trained on", lambda run: run.cost["samples"].get("backward", 0), "{:,.0f}".format),
    ("sent down", lambda run: sum(run.cost["bytes"]["down"].values()), human),
    ("sent up", lambda run: sum(run.cost["bytes"]["up"].values()), human),
)


def run_curve(run: Run) -> list[float]:
    return [float(record["accuracy"]) for record in run.scored]


def compare(
    first: str | os.PathLike[str], second: str | os.PathLike[str], console: Console | None = None
) -> None:
    """Print it. Both must be run folders that can be read."""
    console = console or Console(highlight=False)
    runs = [read(Path(path)) for path in (first, second)]
    for letter, run in zip("AB", runs, strict=True):
        console.print(escape(f"{letter}: {run.name} ({run.state})"), soft_wrap=True)
    console.print(_differences(*runs))
    console.print(_amounts(*runs))
    for line in _charts(runs[0], runs[1], console.width):
        console.print(line, markup=False, soft_wrap=True)


def _differences(first: Run, second: Run) -> Table | str:
    names = [
        name
        for name in {**first.settings, **second.settings}
        if first.settings.get(name) != second.settings.get(name)
    ]
    if not names:
        return "the settings are the same"
    table = Table("setting", "A", "B", title="settings that differ", title_justify="left")
    for name in names:
        table.add_row(
            *map(escape, (name, shown(first.settings.get(name)), shown(second.settings.get(name))))
        )
    return table


def _amounts(first: Run, second: Run) -> Table:
    table = Table("", title="result and cost", title_justify="left")
    for name in ("A", "B", "B / A"):
        table.add_column(name, justify="right")
    for name, of, text in _AMOUNTS:
        values = [of(run) if run.records else None for run in (first, second)]
        if values != [None, None]:
            table.add_row(
                name, *("-" if value is None else text(value) for value in values), _ratio(*values)
            )
    return table


def _ratio(first: float | None, second: float | None) -> str:
    return f"{second / first:.2f}" if first and second is not None else "-"


def _charts(first: Run, second: Run, width: int) -> list[str]:
    """Both curves on one scale, beside each other where the terminal is wide enough."""
    curves = [run_curve(run) for run in (first, second)]
    values = [value for curve in curves for value in curve]
    if not values:
        return ["no round was evaluated yet"]
    scale = (min(values), max(values))
    room = (
        min(64, (width - len(_GAP)) // 2 - _SCALE) if width >= _NARROW else min(64, width - _SCALE)
    )
    # A run with fewer rounds is as much shorter as it has fewer.
    longest = max(map(len, curves))
    blocks = []
    for letter, run, curve in zip("AB", (first, second), curves, strict=True):
        drawn = chart(curve, max(1, round(min(room, longest) * len(curve) / longest)), scale=scale)
        blocks.append(
            [f"{letter}: accuracy, {len(run.records)} rounds", *(drawn or ["not evaluated"])]
        )
    if width < _NARROW:
        return [*blocks[0], "", *blocks[1]]
    wide = room + _SCALE
    return [
        f"{left:<{wide}.{wide}}{_GAP}{right}" for left, right in zip_longest(*blocks, fillvalue="")
    ]
