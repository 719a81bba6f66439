"""A run in the terminal: one line, or a table with curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console
from rich.table import Table

from gcfl.api import Result
from gcfl.base.files import owner

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 8
_WIDTH = 64
_MOST_LINES = 10


def human(count: float) -> str:
    """1536000 -> '1.54 MB'."""
    for prefix in ("", "k", "M", "G"):
        if abs(count) < 1000:
            return f"{count:.3g} {prefix}B"
        count /= 1000
    return f"{count:.3g} TB"


def one_line(result: Result) -> str:
    """What came out, and what it cost."""
    cost = result.cost
    traffic = sum(sum(names.values()) for names in cost["bytes"].values())
    share = result.rounds[-1]["coreset"]["clean_share"]
    clean = "" if share is None else f", {share:.1%} of the training samples clean"
    accuracy = f"accuracy {result.curve[-1]:.4f}" if result.curve else "not evaluated yet"
    return (
        f"{result.config['method']}: {accuracy} after {len(result.rounds)} rounds{clean}; "
        f"{cost['cpu']:.3g} CPU-seconds, {cost['samples'].get('backward', 0):,} samples trained "
        f"on, {human(traffic)} sent"
    )


def hint(result: Result) -> str | None:
    """A word where the training has hardly begun: the loss is still near that of guessing,
    log C.
    """
    last = result.rounds[-1]
    if (
        last["train_loss"] is None
        or last["per_class"] is None
        or last["train_loss"] < 0.8 * math.log(len(last["per_class"]))
    ):
        return None
    return (
        "the training loss is still near that of guessing: more rounds, a higher train.lr or more "
        "train.epochs would help"
    )


def show(result: Result) -> None:
    """The result, the cost split, and accuracy over rounds."""
    console = Console(highlight=False)
    records = result.rounds
    console.print(str(result.folder), soft_wrap=True)
    if not result.finished:
        writer = owner(result.folder)
        what = (
            f"running now (process {writer})"
            if writer
            else f"not finished; to continue: {result.how_to_continue}"
        )
        console.print(f"{len(records)} of {result.config['rounds']} rounds, {what}", soft_wrap=True)
    if not records:
        return
    console.print(one_line(result), soft_wrap=True)
    console.print()
    for line in chart(result.curve):
        console.print(line)
    console.print(f"{'':>7}accuracy on the test set, round 0 to {len(records) - 1}\n")
    console.print(_rounds_table(result))
    console.print(_cost_table(result))
    left_out = [
        (record["round"], client, reason)
        for record in records
        for client, reason in record["left_out"].items()
    ]
    for number, client, reason in left_out[:_MOST_LINES]:
        console.print(
            f"round {number}: client {client} was left out: {reason}", soft_wrap=True, markup=False
        )
    if len(left_out) > _MOST_LINES:
        console.print(f"and {len(left_out) - _MOST_LINES} more; all are in rounds.jsonl")


def _rounds_table(result: Result) -> Table:
    table = Table(title="rounds", title_justify="left")
    for name in ("round", "accuracy", "loss", "train loss", "coreset", "clean share", "seconds"):
        table.add_column(name, justify="right")
    records = result.rounds
    step = max(1, len(records) // 10)
    shown = [record for record in records if record["round"] % step == 0 or record is records[-1]]
    for record in shown:
        coreset = record["coreset"]
        cells = (record["accuracy"], record["loss"], record["train_loss"])
        table.add_row(
            str(record["round"]),
            *("-" if cell is None else f"{cell:.4f}" for cell in cells),
            str(coreset["size"]) if record["cohort"] else "-",
            "-" if coreset["clean_share"] is None else f"{coreset['clean_share']:.1%}",
            f"{record['time']['round']['wall']:.3g}",
        )
    return table


def _cost_table(result: Result) -> Table:
    cost = result.cost
    table = Table(title="cost", title_justify="left")
    table.add_column("what")
    table.add_column("total", justify="right")
    for kind, seconds in cost["cpu_seconds"].items():
        table.add_row(f"{kind}, CPU-seconds", f"{seconds:.3g}")
    table.add_row("all rounds, wall-clock seconds", f"{cost['wall']:.3g}")
    for direction, names in cost["bytes"].items():
        for name, count in names.items():
            table.add_row(f"sent {direction}: {name}", human(count))
    table.add_row(
        "samples forward / backward",
        f"{cost['samples'].get('forward', 0):,} / {cost['samples'].get('backward', 0):,}",
    )
    table.add_row("local steps", f"{cost['steps']:,}")
    return table


def chart(
    values: Sequence[float],
    width: int = _WIDTH,
    height: int = _HEIGHT,
    scale: tuple[float, float] | None = None,
) -> list[str]:
    """A block chart with the scale (of these values, if none is given) on the left, one line per
    row.
    """
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
