"""Runs in the terminal: one line, a run with its curve, two side by side, a table of many."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise, zip_longest

from rich.console import Console
from rich.table import Table

from gcfl.base.text import count, visible
from gcfl.report import tables
from gcfl.report.fitting import print_fitting
from gcfl.report.progress import escape
from gcfl.report.sites import MEANING, NUMBERS, sites_of
from gcfl.results.collect import read
from gcfl.results.groups import Study, shown
from gcfl.results.measures import measure, seen_in
from gcfl.results.run import Run
from gcfl.results.styles import human

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 8
_WIDTH = 64
_MOST_LINES = 10
_GAP = "   "
_SCALE = 7  # letters of the scale on the left of a chart
_NARROW = 72
_PIPED = 136
# Columns of a table of groups, the one that a narrow terminal misses least first.
_LEAST_FIRST = (
    *("client_cpu_seconds", "noise_rate_error", "energy_kwh_estimate", tables.RATIO, "noise_rate"),
    *("client_spread", "worst_client", "client_accuracy", "clean_share", "samples", "bytes"),
    "cpu_seconds",
)


def one_line(run: Run) -> str:
    """What came out, and what it cost."""
    share = measure("clean_share").of(run)
    clean = "" if share is None else f", {share:.1%} of the training samples clean"
    accuracy = f"accuracy {run.accuracy:.4f}" if run.final else "not evaluated yet"
    cpu, samples, sent = (measure(name) for name in ("cpu_seconds", "samples", "bytes"))
    return (
        f"{visible(run.label)}: {accuracy} after {count(len(run.rounds), 'round')}{clean}; "
        f"{cpu.text(cpu.of(run))} CPU-seconds, {samples.text(samples.of(run))} samples trained "
        f"on, {sent.text(sent.of(run))} sent"
    )


def hint(run: Run) -> str | None:
    """A word where training has hardly begun: the loss is near that of guessing, log C, and the
    accuracy has always been nearer to guessing than to being right. Wrong labels alone keep a loss
    high, and more rounds mend no model that was better before.
    """
    last = run.rounds[-1] if run.rounds else None
    if last is None or last.train_loss is None or last.per_class is None:
        return None
    chance = 1 / len(last.per_class)
    best = max((one.accuracy for one in run.rounds if one.accuracy is not None), default=0.0)
    learnt = best > (1 + chance) / 2
    if learnt or last.train_loss < 0.8 * math.log(len(last.per_class)):
        return None
    return (
        "the training loss is still near that of guessing: more rounds, a higher train.lr or more "
        "train.epochs would help"
    )


def hardly_begun(study: Study) -> str | None:
    """A word where that holds for runs that are compared."""
    early = [group.label for group in study.groups if any(map(hint, group.used))]
    if not early:
        return None
    return (
        f"of {', '.join(map(visible, early))} the training loss is still near that of guessing, so "
        "this tells little of how methods compare: more rounds, a higher train.lr or more "
        "train.epochs would help"
    )


def show(run: Run, console: Console | None = None, every: bool = False) -> None:
    """Result, accuracy over rounds, and cost; every: all rounds and the cost's parts, too."""
    console = console or Console(highlight=False)
    console.print(visible(str(run.folder)), soft_wrap=True, markup=False)
    if not run.finished:
        what = f"not finished; to continue: {run.how_to_continue}"
        if run.writer:
            what = f"running now (process {run.writer})"
        done = f"{len(run.rounds)} of {count(run.config['rounds'], 'round')}, {what}"
        console.print(visible(done), soft_wrap=True, markup=False)
    if not run.rounds:
        return
    console.print(one_line(run), soft_wrap=True, markup=False)
    console.print()
    for line in chart(run.curve):
        console.print(line)
    console.print(f"{'':>7}accuracy on the test set, round 0 to {len(run.rounds) - 1}\n")
    if every:
        console.print(_rounds_table(run))
    table = _amounts([run], every)
    for way, names in run.cost["bytes"].items() if every else ():
        for name, size in names.items():
            table.add_row(escape(f"  sent {way}: {name}"), human(size))
    console.print(table)
    _sites(run, console)
    _contribution(run, console)
    for line in run.privacy:
        console.print(line, soft_wrap=True, markup=False)
    left_out = [
        f"round {record.round}: client {client} was left out: {reason}"
        for record in run.rounds
        for client, reason in record.left_out.items()
    ]
    for line in left_out[:_MOST_LINES]:
        console.print(visible(line), soft_wrap=True, markup=False)
    if len(left_out) > _MOST_LINES:
        console.print(f"and {len(left_out) - _MOST_LINES} more; all are in rounds.jsonl")


def compare(
    first: str | os.PathLike[str], second: str | os.PathLike[str], console: Console | None = None
) -> None:
    """Two runs side by side. Both must be run folders that can be read."""
    console = console or Console(highlight=False)
    runs = [read(folder) for folder in (first, second)]
    for letter, run in zip("AB", runs, strict=True):
        console.print(escape(f"{letter}: {run.name} ({run.state})"), soft_wrap=True)
    console.print(_differences(*runs))
    console.print(_amounts(runs))
    for line in _charts(runs, console.width):
        console.print(line, markup=False, soft_wrap=True)


def wide(console: Console | None = None) -> Console:
    """A console for tables; where nobody looks at it, they need not fit a terminal."""
    console = console or Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPED)


def print_table(
    study: Study,
    title: str,
    console: Console,
    more: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """The table of the report; what all rows say of their seeds stands in the title. more: columns
    at the end. Method and accuracy are never cut; costs that have no room are named below.
    """
    heads, lines = tables.cells(study)
    states = {line[-1] for line in lines}
    if len(states) == 1:
        title = f"{title}, {states.pop()}"
        heads, lines = heads[:-1], [line[:-1] for line in lines]
    for head, texts in (more or {}).items():
        if set(texts) - {"-"}:
            heads = [*heads, head]
            lines = [[*line, text] for line, text in zip(lines, texts, strict=True)]
    measured = {one.head for one in seen_in("table")} | {tables.RATIO, "runs", *(more or {})}
    named = sum(head not in measured for head in heads)
    costs = {one.name: one.head for one in seen_in("table")}
    may_go = [costs.get(name, name) for name in _LEAST_FIRST]
    print_fitting(console, title, heads, lines, [*may_go, *(more or {}), "runs"], named)


def _rounds_table(run: Run) -> Table:
    """Some ten of the rounds."""
    columns = seen_in("rounds")
    table = Table("round", title="rounds", title_justify="left")
    for one in columns:
        table.add_column(one.head, justify="right")
    step = max(1, len(run.rounds) // 10)
    for record in run.rounds:
        if record.round % step == 0 or record is run.rounds[-1]:
            values = [one.of_round(record) if one.of_round else None for one in columns]
            texts = [one.text(value) for one, value in zip(columns, values, strict=True)]
            table.add_row(str(record.round), *texts)
    return table


def _sites(run: Run, console: Console) -> None:
    """What sites told of their labels at the end, where they were asked."""
    found = sites_of(run)
    if found is None:
        return
    table = Table(title="Sites", title_justify="left")
    for head in found.heads:
        table.add_column(head, justify="right" if head in NUMBERS else "left")
    for line in found.lines:
        table.add_row(*map(escape, line))
    console.print(table)
    console.print(MEANING, soft_wrap=True)


def _contribution(run: Run, console: Console) -> None:
    """How much each client helped, where the run recorded it."""
    found = tables.contribution_of(run)
    if found is None:
        return
    table = Table(title=found.title, title_justify="left")
    for head in found.heads:
        table.add_column(head, justify="left" if head == "name" else "right")
    for line in found.lines:
        table.add_row(*map(escape, line))
    console.print(table)
    if found.more:
        console.print(f"and {found.more} more clients; all are in rounds.jsonl")
    gain = f"gain: the loss {found.on} without the client, less that with it"
    console.print(f"{gain}. {tables.RARE}", soft_wrap=True)


def _differences(first: Run, second: Run) -> Table | str:
    both = {**first.settings, **second.settings}
    names = [name for name in both if first.settings.get(name) != second.settings.get(name)]
    if not names:
        return "the settings are the same"
    table = Table("setting", "A", "B", title="settings that differ", title_justify="left")
    for name in names:
        values = [shown(run.settings.get(name)) for run in (first, second)]
        table.add_row(*map(escape, (name, *values)))
    return table


def _amounts(runs: Sequence[Run], every: bool = True) -> Table:
    """What came out and what it cost, of one run or of two; every: also the parts of a cost."""
    table = Table("", title="result and cost", title_justify="left")
    for head in ("A", "B", "B / A") if len(runs) == 2 else ("total",):
        table.add_column(head, justify="right")
    for one in seen_in("run"):
        values = [one.of(run) for run in runs]
        part = one.head.startswith(("  ", "of these"))
        if any(value is not None for value in values) and (every or not part):
            ratio = [_ratio(*values)] if len(values) == 2 else []
            table.add_row(one.head, *map(one.text, values), *ratio)
    return table


def _ratio(first: float | None, second: float | None) -> str:
    return f"{second / first:.2f}" if first and second is not None else "-"


def _charts(runs: Sequence[Run], width: int) -> list[str]:
    """Both curves on one scale, beside each other where the terminal is wide enough."""
    curves = [run.curve for run in runs]
    values = [value for curve in curves for value in curve]
    if not values:
        return ["no round was evaluated yet"]
    beside = width >= _NARROW
    room = min(_WIDTH, (width - len(_GAP)) // 2 - _SCALE if beside else width - _SCALE)
    # A run with fewer rounds is as much shorter as it has fewer.
    longest = max(map(len, curves))
    blocks = []
    for letter, run, curve in zip("AB", runs, curves, strict=True):
        wide = max(1, round(min(room, longest) * len(curve) / longest))
        drawn = chart(curve, wide, scale=(min(values), max(values))) or ["not evaluated"]
        blocks.append([f"{letter}: accuracy, {count(len(run.rounds), 'round')}", *drawn])
    if not beside:
        return [*blocks[0], "", *blocks[1]]
    wide = room + _SCALE
    return [
        f"{left:<{wide}.{wide}}{_GAP}{right}" for left, right in zip_longest(*blocks, fillvalue="")
    ]


def chart(
    values: Sequence[float],
    width: int = _WIDTH,
    height: int = _HEIGHT,
    scale: tuple[float, float] | None = None,
) -> list[str]:
    """A block chart with the scale on the left, one line per row."""
    if not values:
        return []
    columns = min(width, len(values))
    bounds = [round(column * len(values) / columns) for column in range(columns + 1)]
    means = [sum(values[low:high]) / (high - low) for low, high in pairwise(bounds)]
    low, high = scale or (min(means), max(means))
    span = (high - low) or 1.0
    # The lowest point still shows as one eighth of a row.
    levels = [1 + round((value - low) / span * (height * 8 - 1)) for value in means]
    lines = []
    for row in range(height - 1, -1, -1):
        cells = "".join(_BLOCKS[min(8, max(0, level - 8 * row))] for level in levels)
        label = f"{high:6.3f}" if row == height - 1 else f"{low:6.3f}" if row == 0 else " " * 6
        lines.append(f"{label} {cells}")
    return lines
