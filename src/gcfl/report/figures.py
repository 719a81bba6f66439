"""Figures, for eyes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

# One colour and line style per method, told apart by colour-blind readers and in grey print too.
_STYLES = (
    ("#7f7f7f", "-"),
    ("#e69f00", "--"),
    ("#0072b2", "-"),
    ("#56b4e9", "-."),
    ("#cc79a7", ":"),
    ("#009e73", "-"),
    ("#d55e00", "--"),
    ("#000000", ":"),
)


@dataclass(frozen=True)
class Curve:
    """One line: a value per round, for each seed."""

    label: str
    values: list[list[float]]


@dataclass(frozen=True)
class Panel:
    title: str
    x: str
    y: str
    floor: float
    curves: list[Curve]


def save_curves(panels: list[Panel], path: Path) -> None:
    """Panels side by side, mean over seeds with a band of one standard deviation, one
    legend below.
    """
    figure = Figure(figsize=(5.2 * len(panels), 4.4), dpi=150, layout="constrained")
    for axes, panel in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
        for (colour, style), curve in zip(_STYLES, panel.curves, strict=False):
            values = np.array(curve.values, dtype=float)
            rounds = np.arange(values.shape[1])
            middle = values.mean(axis=0)
            axes.plot(
                rounds, middle, color=colour, linestyle=style, linewidth=1.8, label=curve.label
            )
            if len(values) > 1:
                spread = values.std(axis=0, ddof=1)
                axes.fill_between(
                    rounds, middle - spread, middle + spread, color=colour, alpha=0.12, linewidth=0
                )
        axes.set_title(panel.title, fontsize=11)
        axes.set_xlabel(panel.x)
        axes.set_ylabel(panel.y)
        axes.set_ylim(panel.floor, 1.0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
