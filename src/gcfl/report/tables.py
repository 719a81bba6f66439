"""The summary table: a row for each group of runs, accuracy next to cost; and its csv, json and md
forms.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from typing import Any

from gcfl.report.collect import Run
from gcfl.report.study import Group, Spread, Study, short, shown, spread
from gcfl.report.terminal import human

_MEASURES: dict[str, Callable[[Run], float | None]] = {
    "accuracy": lambda run: run.accuracy,
    "best_accuracy": lambda run: max((record["accuracy"] for record in run.scored), default=None),
    "clean_share": lambda run: run.clean_share,
    "cpu_seconds": lambda run: run.cost["cpu"],
    "wall_seconds": lambda run: run.cost["wall"],
    "samples": lambda run: run.cost["samples"].get("backward", 0),
    "bytes": lambda run: sum(sum(names.values()) for names in run.cost["bytes"].values()),
    "energy_kwh_estimate": lambda run: whole_energy(run),
}


def whole_energy(run: Run) -> float | None:
    """What energy.json says, where all of the run was measured."""
    told = run.energy or {}
    kwh, rounds = told.get("kwh"), told.get("rounds")
    return (
        float(kwh)
        if isinstance(kwh, int | float)
        and math.isfinite(kwh)
        and rounds == len(run.records)
        and run.finished
        else None
    )


def rows(study: Study) -> list[dict[str, Any]]:
    """By group: its settings, seeds and state, whether it is the best of its scene, and a `Spread`
    (or None) for each measure.
    """
    full = {scene: _fedavg(groups) for scene, groups in study.scenes.items()}
    found = []
    for group in study.groups:
        measures = {name: spread(of(run) for run in group.used) for name, of in _MEASURES.items()}
        cpu, reference = measures["cpu_seconds"], full[group.scene]
        found.append(
            {
                "group": group,
                "settings": group.values,
                "seeds": [run.seed for run in group.runs],
                "state": group.state,
                "best": group in study.best,
                "cpu_of_fedavg": cpu.mean / reference if cpu and reference else None,
                **measures,
            }
        )
    return found


def _fedavg(groups: list[Group]) -> float | None:
    """CPU-seconds of the scene's only finished FedAvg."""
    plain = [
        group for group in groups if group.runs[0].settings["method"] == "fedavg" and group.finished
    ]
    found = spread(run.cost["cpu"] for run in plain[0].used) if len(plain) == 1 else None
    return found.mean if found else None


def cells(study: Study) -> tuple[list[str], list[list[str]]]:
    """Heads and texts for people. Columns that no run fills are left out."""
    made = rows(study)
    columns = [(short(name), _setting(name)) for name in study.columns] or [
        ("method", lambda row: str(row["group"].line))
    ]
    columns += [
        ("accuracy, %", lambda row: percent(row["accuracy"]) + (" ★" if row["best"] else "")),
        ("clean, %", lambda row: percent(row["clean_share"])),
        ("CPU-seconds", lambda row: plus_minus(row["cpu_seconds"])),
        (
            "CPU of FedAvg's",
            lambda row: "-" if row["cpu_of_fedavg"] is None else f"{row['cpu_of_fedavg']:.2f}",
        ),
        (
            "samples trained on",
            lambda row: "-" if row["samples"] is None else f"{row['samples'].mean:,.0f}",
        ),
        ("sent", lambda row: "-" if row["bytes"] is None else human(row["bytes"].mean)),
        ("energy, Wh (estimate)", lambda row: _watt_hours(row["energy_kwh_estimate"])),
        ("runs", lambda row: row["state"]),
    ]
    texts = [[of(row) for _, of in columns] for row in made]
    kept = [place for place, _ in enumerate(columns) if any(line[place] != "-" for line in texts)]
    return [columns[place][0] for place in kept], [
        [line[place] for place in kept] for line in texts
    ]


def _setting(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: shown(row["settings"][name], name)


def percent(value: Spread | None) -> str:
    """'70.9 ± 4.1'."""
    if value is None:
        return "-"
    return f"{100 * value.mean:.1f}" + (f" ± {100 * value.sd:.1f}" if value.sd is not None else "")


def plus_minus(value: Spread | None) -> str:
    if value is None:
        return "-"
    return f"{value.mean:.3g}" + (f" ± {value.sd:.2g}" if value.sd is not None else "")


def _watt_hours(value: Spread | None) -> str:
    return (
        "-"
        if value is None
        else plus_minus(
            Spread(1000 * value.mean, None if value.sd is None else 1000 * value.sd, value.n)
        )
    )


def as_json(study: Study, left_out: list[tuple[str, str]]) -> str:
    def plain(value: Any) -> Any:
        return (
            {"mean": value.mean, "sd": value.sd, "n": value.n}
            if isinstance(value, Spread)
            else value
        )

    groups = []
    for row in rows(study):
        runs = [
            {"name": run.name, "seed": run.seed, "state": run.state, "accuracy": run.accuracy}
            for run in row["group"].runs
        ]
        groups.append(
            {name: plain(value) for name, value in row.items() if name != "group"} | {"runs": runs}
        )
    told = [{"name": name, "why": why} for name, why in left_out]
    return (
        json.dumps(
            {"common": study.common, "groups": groups, "left_out": told}, indent=2, allow_nan=False
        )
        + "\n"
    )


def as_csv(study: Study) -> str:
    """Plain numbers: accuracy and clean share as shares, bytes as bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = [*(study.columns or ["method"]), "seeds", "state", "best", "cpu_of_fedavg"]
    writer.writerow(
        [*heads, *(f"{name}_{part}" for name in _MEASURES for part in ("mean", "sd", "n"))]
    )
    for row in rows(study):
        line = [_raw(value) for value in row["settings"].values()] or [row["group"].line]
        line += [
            " ".join(map(str, row["seeds"])),
            row["state"],
            str(row["best"]).lower(),
            _raw(row["cpu_of_fedavg"]),
        ]
        for name in _MEASURES:
            value = row[name]
            line += (
                ["", "", "0"] if value is None else [_raw(value.mean), _raw(value.sd), str(value.n)]
            )
        writer.writerow(line)
    return text.getvalue()


def _raw(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else shown(value)


def as_md(study: Study, left_out: list[tuple[str, str]]) -> str:
    heads, lines = cells(study)
    table = ["| " + " | ".join(_md(cell) for cell in line) + " |" for line in (heads, *lines)]
    table.insert(1, "|" + "---|" * len(heads))
    notes = [best_note(study), *(f"Left out: {_md(name)}: {_md(why)}" for name, why in left_out)]
    return "\n".join([*table, "", *(note for note in notes if note)]) + "\n"


def best_note(study: Study) -> str:
    """What the star means, and what ± is."""
    sd = (
        "± is the standard deviation over seeds. "
        if any(len(group.used) > 1 for group in study.groups)
        else ""
    )
    star = "★ is the best accuracy among rows with the same data" if study.best else ""
    truth = (
        ", Skyline apart, which is told the truth"
        if star and any(group.knows_truth for group in study.groups)
        else ""
    )
    return f"{sd}{star}{truth}{'.' if star else ''}".strip()


def _md(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
