"""A sweep's figure: one line per method, over a setting, over rounds, over CPU-seconds or over
bytes; a panel per data set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gcfl.api import Result
from gcfl.base.errors import ConfigError, did_you_mean
from gcfl.report.charts import FAR, LOG_FROM, SWEPT
from gcfl.report.describe import draw_clients
from gcfl.report.drawn import look
from gcfl.sweep.plan import Plan
from gcfl.sweep.table import Row

_RUNNING = {"round": "round", "cpu": "CPU-seconds", "bytes": "MB sent"}
_VALUES = {
    "accuracy": "accuracy on clean test data",
    "clean_share": "clean share of the samples trained on",
    "best": "best accuracy on clean test data",
    "cpu_per_round": "CPU-seconds per round",
}


def draw(plan: Plan, rows: Sequence[Row], path: Path) -> Path | None:
    """The picture that [figure] asks for; None where it asks for none or nothing is finished."""
    wish = plan.figure
    if not wish or not rows:
        return None
    if wish.get("kind") == "heatmap":
        return draw_clients(plan.cells[0].experiment(), path)
    x, y = str(wish.get("x", "round")), str(wish.get("y", "accuracy"))
    if y not in _VALUES:
        raise ConfigError(f"figure.y {y!r} is unknown{did_you_mean(y, _VALUES)}")
    by = wish.get("panels")
    panels = (
        list(dict.fromkeys(repr(dict(row.differs).get(by)) for row in rows)) if by else ["None"]
    )
    figure = Figure(figsize=(5.0 * len(panels) + 0.2, 4.3), dpi=150, layout="constrained")
    grid = np.atleast_1d(figure.subplots(1, len(panels), squeeze=False)[0])
    differing = [
        name
        for name in dict(rows[0].differs)
        if len({repr(dict(row.differs).get(name)) for row in rows}) > 1
    ]
    names = [name for name in differing if name not in (x, by)]
    labels = list(dict.fromkeys(_line_of(row, names) for row in rows))
    for axes, panel in zip(grid, panels, strict=True):
        mine = [row for row in rows if not by or repr(dict(row.differs).get(by)) == panel]
        (_bars if x == "label" else _over_run if x in _RUNNING else _over_setting)(
            axes, mine, names, labels, x, y
        )
        axes.set_title(panel.strip("'") if by else plan.title, fontsize=10)
        if x != "label":  # bars name their lines on this axis
            axes.set_ylabel(_VALUES[y])
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    if x != "label":
        handles = {
            label: handle
            for axes in grid
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=_columns(handles, len(panels)),
            frameon=False,
            fontsize=8,
            handlelength=3,
        )
    if by:
        figure.suptitle(plan.title, fontsize=11)
    figure.savefig(path)
    return path


def _line_of(row: Row, names: Sequence[str]) -> str:
    """What a line is called: whatever differs besides the axis and the panel."""
    rest = [
        f"{value}" if name in ("label", "method") else f"{name} {value}"
        for name, value in row.differs
        if name in names
    ]
    return ", ".join(rest) or row.label


def _columns(labels: Iterable[str], panels: int) -> int:
    """So many labels stand beside each other in a legend below the panels; about 75 letters fit
    below each.
    """
    longest = max(map(len, labels)) + 8  # with the piece of line before it
    return max(1, min(5, 84 * panels // longest))


def _style(labels: Sequence[str], label: str) -> Mapping[str, Any]:
    colour, line = look(labels.index(label))
    return {"color": colour, "linestyle": line, "linewidth": 1.7, "label": label}


def _value(result: Result, y: str) -> float:
    if y == "accuracy":
        return result.accuracy
    if y == "best":
        return max(result.curve)
    if y == "cpu_per_round":
        return float(result.cost["cpu"]) / len(result.rounds)
    share = result.rounds[-1]["coreset"]["clean_share"]
    return float("nan") if share is None else float(share)


def _over_setting(
    axes: Any, rows: Sequence[Row], names: Sequence[str], labels: Sequence[str], x: str, y: str
) -> None:
    lines: dict[str, list[tuple[float, list[float]]]] = {}
    for row in rows:
        place = dict(row.differs).get(x)
        if not isinstance(place, int | float):
            raise ConfigError(
                f"figure.x {x!r} must be a setting of the sweep with numbers, 'round', 'cpu', "
                "'bytes' or 'label'"
            )
        lines.setdefault(_line_of(row, names), []).append(
            (float(place), [_value(result, y) for result in row.results])
        )
    for label, points in lines.items():
        points.sort(key=lambda point: point[0])
        places = [place for place, _ in points]
        means = [float(np.mean(values)) for _, values in points]
        spread = [float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for _, values in points]
        axes.errorbar(
            places,
            means,
            spread if any(spread) else None,
            marker="o",
            markersize=3.5,
            capsize=2,
            **_style(labels, label),
        )
    axes.set_xlabel(SWEPT.get(x, x))
    apart = sorted({place for points in lines.values() for place, _ in points})
    if apart[0] > 0 and apart[-1] >= FAR * apart[0]:
        axes.set_xscale("log")
        axes.set_xticks(apart, [f"{place:g}" for place in apart])
        axes.minorticks_off()


def _over_run(
    axes: Any, rows: Sequence[Row], names: Sequence[str], labels: Sequence[str], x: str, y: str
) -> None:
    for row in rows:
        curves = [_curve(result, x, y) for result in row.results]
        shortest = min(len(values) for _, values in curves)
        if not shortest:
            continue
        places = np.mean([places[:shortest] for places, _ in curves], axis=0)
        values = np.array([values[:shortest] for _, values in curves])
        style = _style(labels, _line_of(row, names))
        axes.plot(places, values.mean(axis=0), **style)
        if len(values) > 1:
            low, high = (
                values.mean(axis=0) - values.std(axis=0, ddof=1),
                values.mean(axis=0) + values.std(axis=0, ddof=1),
            )
            axes.fill_between(places, low, high, color=style["color"], alpha=0.12, linewidth=0)
    ends = [float(line.get_xdata()[-1]) for line in axes.lines if len(line.get_xdata())]
    if x == "round":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    elif ends and max(ends) > LOG_FROM * min(ends) > 0:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(_RUNNING[x])


def _curve(result: Result, x: str, y: str) -> tuple[list[float], list[float]]:
    """Places and values over a run; what the axis counts adds up from round to round."""
    places, values, total = [], [], 0.0
    for record in result.rounds:
        if x == "cpu":
            total += sum(record["time"][kind]["cpu"] for kind in ("select", "train", "aggregate"))
        elif x == "bytes":
            total += sum(sum(names.values()) for names in record["bytes"].values()) / 1e6
        else:
            total = record["round"] + 1
        value = record["coreset"]["clean_share"] if y == "clean_share" else record["accuracy"]
        if value is not None:
            places.append(total)
            values.append(float(value))
    return places, values


def _bars(
    axes: Any, rows: Sequence[Row], _: Sequence[str], __: Sequence[str], ___: str, y: str
) -> None:
    values = [[_value(result, y) for result in row.results] for row in rows]
    names = [row.label for row in rows]
    spread = [float(np.std(one, ddof=1)) if len(one) > 1 else 0.0 for one in values]
    axes.barh(
        names,
        [float(np.mean(one)) for one in values],
        xerr=spread if any(spread) else None,
        color=look(0)[0],
        height=0.6,
    )
    axes.invert_yaxis()
    axes.set_xlim(
        0,
        1.15 * max(float(np.mean(one)) + extra for one, extra in zip(values, spread, strict=True))
        or 1.0,
    )
    axes.set_xlabel(_VALUES[y])
    for place, one in enumerate(values):
        axes.text(
            float(np.mean(one)) + spread[place],
            place,
            f" {np.mean(one):.3f}",
            va="center",
            fontsize=8,
        )
