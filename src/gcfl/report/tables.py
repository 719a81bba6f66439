"""The summary table: groups of runs, accuracy next to cost; as csv, json and md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gcfl.base.errors import ConfigError
from gcfl.base.files import read_json
from gcfl.base.text import csv_bytes, markdown
from gcfl.report.sites import sites_of
from gcfl.results.contribution import Contribution, contributions
from gcfl.results.frames import data_frame
from gcfl.results.groups import Group, Study, named, short, shown
from gcfl.results.measures import measure, seen_in
from gcfl.results.run import Run
from gcfl.results.styles import Spread

RATIO = "CPU of FedAvg's"
RARE = (
    "A low cosine can come from wrong labels or from classes that are rare elsewhere: look at who "
    "holds what beside it."
)
_MOST_CLIENTS = 30
_SAMPLES = {"held out": "held-out clean samples", "clean set": "clean set"}


def rows(study: Study) -> list[dict[str, Any]]:
    """By group: its settings, seeds and state, whether it is the best of its scene, and a `Spread`
    (or None) for each measure.
    """
    full = {scene: _full_cost(groups) for scene, groups in study.scenes.items()}
    found = []
    for group in study.groups:
        cpu, reference = group.over(measure("cpu_seconds")), full[group.scene]
        found.append(
            {
                "group": group,
                "settings": group.values,
                "seeds": [run.seed for run in group.runs],
                "state": group.state,
                "best": group in study.best,
                "cpu_of_fedavg": cpu.mean / reference if cpu and reference else None,
                **{one.name: group.over(one) for one in seen_in("table", "file")},
            }
        )
    return found


def _full_cost(groups: list[Group]) -> float | None:
    """CPU-seconds of the scene's only finished method without any device of its own."""
    plain = [group for group in groups if group.is_plain and group.finished]
    found = plain[0].over(measure("cpu_seconds")) if len(plain) == 1 else None
    return found.mean if found else None


def cells(
    study: Study, more: Mapping[str, Sequence[str]] | None = None
) -> tuple[list[str], list[list[str]]]:
    """Heads and texts; `more` columns at the end. Those that no run fills are left out."""
    made = rows(study)
    settings = [named(row["settings"], row["group"].runs[0]) for row in made]
    columns = [
        (short(name), [shown(one.get(name), name) for one in settings]) for name in study.columns
    ] or [("method", [row["group"].line for row in made])]
    for one in seen_in("table"):
        texts = [one.text_of(row[one.name]) for row in made]
        if one.name == "accuracy":
            stars = [" ★" if row["best"] else "" for row in made]
            texts = [text + star for text, star in zip(texts, stars, strict=True)]
        columns.append((one.head, texts))
        if one.name == "cpu_seconds":
            ratios = [row["cpu_of_fedavg"] for row in made]
            columns.append((RATIO, ["-" if one is None else f"{one:.2f}" for one in ratios]))
    columns.append(("runs", [row["state"] for row in made]))
    columns += [(head, list(texts)) for head, texts in (more or {}).items()]
    filled = [(head, texts) for head, texts in columns if set(texts) - {"-"}]
    lines = zip(*(texts for _, texts in filled), strict=True)
    return [head for head, _ in filled], [list(line) for line in lines]


@dataclass(frozen=True)
class Contributions:
    """How much clients helped, lowest first, as texts. on: which samples told it. more: how many
    clients are not shown.
    """

    title: str
    on: str
    heads: list[str]
    lines: list[list[str]]
    more: int


def contribution_of(run: Run) -> Contributions | None:
    """By gain where all clients have one, else by cosine; None where the run did not record it."""
    found = contributions(run.rounds)
    if not found:
        return None
    by_gain = all(one.gain is not None for one in found.values())
    ranked = sorted(
        found, key=lambda one: (found[one].gain or 0.0) if by_gain else found[one].cosine
    )
    who = dict(enumerate(run.clients))
    named = any(one["name"] != str(client) for client, one in who.items())
    lines = []
    for client in ranked[:_MOST_CLIENTS]:
        one = who.get(client, {})
        name = [str(one.get("name", "-"))] if named else []
        samples = f"{one['samples']:,}" if "samples" in one else "-"
        lines.append([str(client), *name, samples, *_helped(found[client])])
    on = next(record.contribution_on for record in reversed(run.rounds) if record.contribution)
    order = "least gain first" if by_gain else "lowest cosine first"
    return Contributions(
        f"Contribution, {order}",
        f"on the server's {_SAMPLES.get(on or '', 'clean samples')}",
        ["client", *(["name"] if named else []), "samples", "cosine", "norm", "gain", "95%"],
        lines,
        max(0, len(found) - _MOST_CLIENTS),
    )


def _helped(one: Contribution) -> list[str]:
    low_high = "-" if one.interval is None else "{:+.4f} to {:+.4f}".format(*one.interval)
    gain = "-" if one.gain is None else f"{one.gain:+.4f}"
    return [f"{one.cosine:+.3f}", f"{one.norm:.3g}", gain, low_high]


def as_json(study: Study, left_out: Sequence[tuple[str, str]]) -> str:
    def plain(value: Any) -> Any:
        return dict(value.__dict__) if isinstance(value, Spread) else value

    groups = []
    for row in rows(study):
        members = row.pop("group").runs
        runs = [
            {
                "name": run.name,
                "seed": run.seed,
                "state": run.state,
                "accuracy": measure("accuracy").of(run),
                **({"sites": run.sites["sites"]} if run.sites else {}),
            }
            for run in members
        ]
        groups.append({name: plain(value) for name, value in row.items()} | {"runs": runs})
    skipped = [{"name": name, "why": why} for name, why in left_out]
    found = {"common": study.common, "groups": groups, "left_out": skipped}
    return json.dumps(found, indent=2, allow_nan=False) + "\n"


def frame(study: Study) -> Any:
    """A row for each group, as csv has it, as a pandas DataFrame."""
    return data_frame(_numbers(study))


def as_csv(study: Study) -> str:
    """Plain numbers: accuracy and clean share as shares, bytes as bytes."""
    lines = [{name: _raw(value) for name, value in line.items()} for line in _numbers(study)]
    return csv_bytes(lines).decode()


def _numbers(study: Study) -> list[dict[str, Any]]:
    lines = []
    for row in rows(study):
        line: dict[str, Any] = dict(row["settings"]) or {"method": row["group"].line}
        line["seeds"] = " ".join(map(str, row["seeds"]))
        line |= {name: row[name] for name in ("state", "best", "cpu_of_fedavg")}
        for one in seen_in("table", "file"):
            value = row[one.name]
            for part, none in (("mean", None), ("sd", None), ("n", 0)):
                line[f"{one.name}_{part}"] = none if value is None else getattr(value, part)
        lines.append(line)
    return lines


def _raw(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else shown(value)


def as_md(
    study: Study,
    left_out: Sequence[tuple[str, str]] = (),
    more: Mapping[str, Sequence[str]] | None = None,
) -> str:
    heads, lines = cells(study, more)
    notes = [
        best_note(study),
        *(f"Left out: {markdown(name)}: {markdown(why)}" for name, why in left_out),
    ]
    text = [*_md_table(heads, lines), "", *(note for note in notes if note)]
    for run in study.runs:
        if (found := sites_of(run)) is not None:
            sites = _md_table(found.heads, found.lines)
            text += ["", f"Sites of {markdown(run.name)}:", "", *sites]
    return "\n".join(text) + "\n"


def _md_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    table = ["| " + " | ".join(markdown(cell) for cell in line) + " |" for line in (heads, *lines)]
    return [table[0], "|" + "---|" * len(heads), *table[1:]]


def best_note(study: Study) -> str:
    """What the star means, and what ± is."""
    notes = []
    if any(len(group.used) > 1 for group in study.groups):
        notes.append("± is the standard deviation over seeds.")
    if study.best:
        marks = dict.fromkeys(group.line for group in study.groups if group.knows_truth)
        apart = f", apart from what is told the truth ({', '.join(marks)})" if marks else ""
        notes.append(
            f"★ is ahead of every other row with the same data{apart} by more than the spread of "
            "three seeds or more: the standard deviation of the difference, seed by seed."
        )
    return " ".join(notes)


@dataclass(frozen=True)
class Beside:
    """One table. rows: label, the paper's value, ours, their difference, as texts."""

    title: str
    rows: list[list[str]]
    note: str = ""


def beside(given: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> list[Beside]:
    """One mapping or several to tables. Values are numbers, text such as '47.4 ± 0.3', or None
    where one side has nothing.
    """
    if given is None:
        return []
    several: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
    tables = []
    for one in several:
        rows = one.get("rows") if isinstance(one, Mapping) else None
        if not isinstance(rows, list | tuple) or not isinstance(one.get("title"), str):
            raise ConfigError(
                "the paper's figures must be a mapping with a title and a list of rows, or several "
                f"of these, got {one!r}"
            )
        tables.append(Beside(one["title"], [_row(row) for row in rows], str(one.get("note", ""))))
    return tables


def left_by_sweeps(folders: Iterable[Path]) -> list[Any]:
    """What sweeps left for reports: sweep.json of these folders, and of the folders in them."""
    files = [
        file
        for folder in folders
        for pattern in ("sweep.json", "*/sweep.json")
        for file in sorted(folder.glob(pattern))
    ]
    return [read_json(file) for file in dict.fromkeys(files)]


def _row(row: Any) -> list[str]:
    if not isinstance(row, Mapping) or set(row) != {"label", "paper", "ours"}:
        raise ConfigError(f"a row of the paper's figures has label, paper and ours, got {row!r}")
    paper, ours = row["paper"], row["ours"]
    numbers = isinstance(paper, int | float) and isinstance(ours, int | float)
    difference = f"{ours - paper:+.3g}" if numbers else "-"
    return [str(row["label"]), _text(paper), _text(ours), difference]


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
