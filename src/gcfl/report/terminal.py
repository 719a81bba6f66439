"""A run in the terminal: one line, or a table with curves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console
from rich.table import Table

from gcfl.api import Result

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 8
_WIDTH = 64


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
    return (
        f"{result.config['method']}: accuracy {result.accuracy:.4f} after {len(result.rounds)} rounds{clean}; "
        f"{cost['cpu']:.3g} CPU-seconds, {cost['samples'].get('backward', 0):,} samples trained on, {human(traffic)} sent"
    )


def show(result: Result) -> None:
    """The result, the cost split, and accuracy over rounds."""
    console = Console(highlight=False)
    records = result.rounds
    console.print(str(result.folder), soft_wrap=True)
    if not records:
        console.print(f"no round finished yet; gcfl resume {result.folder}", soft_wrap=True)
        return
    if not result.finished:
        total = result.config["rounds"]
        console.print(f"not finished: {len(records)} of {total} rounds; gcfl resume {result.folder}", soft_wrap=True)
    console.print(one_line(result), soft_wrap=True)
    console.print()
    curve = [record["accuracy"] for record in records if record["accuracy"] is not None]
    for line in chart(curve):
        console.print(line)
    console.print(f"{'':>7}accuracy on the test set, round 1 to {len(records)}\n")
    console.print(_rounds_table(result))
    console.print(_cost_table(result))
    left_out = [(record["round"], record["left_out"]) for record in records if record["left_out"]]
    for number, clients in left_out[:10]:
        for client, reason in clients.items():
            console.print(f"round {number}: client {client} was left out: {reason}", soft_wrap=True, markup=False)


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
            str(record["round"] + 1),
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
    table.add_row("samples forward / backward", f"{cost['samples'].get('forward', 0):,} / {cost['samples'].get('backward', 0):,}")
    table.add_row("local steps", f"{cost['steps']:,}")
    return table


def chart(values: Sequence[float], width: int = _WIDTH, height: int = _HEIGHT) -> list[str]:
    """A block chart with the scale on the left, one line per row."""
    if not values:
        return []
    columns = min(width, len(values))
    bounds = [round(column * len(values) / columns) for column in range(columns + 1)]
    means = [sum(values[low:high]) / (high - low) for low, high in pairwise(bounds)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    # The lowest point still shows as one eighth of a row.
    levels = [1 + round((value - low) / span * (height * 8 - 1)) for value in means]
    lines = []
    for row in range(height - 1, -1, -1):
        cells = "".join(_BLOCKS[min(8, max(0, level - 8 * row))] for level in levels)
        label = f"{high:6.3f}" if row == height - 1 else f"{low:6.3f}" if row == 0 else " " * 6
        lines.append(f"{label} {cells}")
    return lines
