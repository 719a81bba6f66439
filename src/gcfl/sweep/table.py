"""What a sweep found: one row per combination of settings, over its seeds."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from gcfl.api import Result, load
from gcfl.base.files import write_atomic, write_json
from gcfl.sweep.plan import Cell, Plan
from gcfl.sweep.runner import Outcome


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seed only."""

    differs: tuple[tuple[str, Any], ...]
    results: tuple[Result, ...]

    @property
    def label(self) -> str:
        named = dict(self.differs)
        return str(named.get("label", named.get("method", "")))

    @property
    def accuracies(self) -> list[float]:
        return [result.accuracy for result in self.results]

    def cost(self, what: str) -> float:
        """cpu, backward, sent: the mean over seeds."""
        return mean(_cost(result, what) for result in self.results)

    @property
    def clean_share(self) -> float | None:
        shares = [result.rounds[-1]["coreset"]["clean_share"] for result in self.results]
        return None if any(share is None for share in shares) else mean(shares)

    def facts(self) -> dict[str, Any]:
        """What the summary says of it: first what repeats from run to run, then what it cost this
        time.
        """
        values = self.accuracies
        return {
            **dict(self.differs),
            "seeds": len(values),
            "accuracy": mean(values),
            "sd": stdev(values) if len(values) > 1 else None,
            "clean_share": self.clean_share,
            "samples": self.cost("backward"),
            "bytes": self.cost("sent"),
            "cpu_seconds": self.cost("cpu"),
        }


def _cost(result: Result, what: str) -> float:
    cost = result.cost
    if what == "sent":
        return float(sum(sum(names.values()) for names in cost["bytes"].values()))
    return float(cost["cpu"] if what == "cpu" else cost["samples"].get("backward", 0))


def rows_of(outcomes: Sequence[Outcome]) -> list[Row]:
    """Finished runs, by what tells them apart besides the seed, in the sweep's order."""
    grouped: dict[str, tuple[Cell, list[Result]]] = {}  # by its text, since a value may be a list
    for outcome in outcomes:
        if outcome.folder is not None:
            grouped.setdefault(repr(outcome.cell.differs), (outcome.cell, []))[1].append(
                load(outcome.folder)
            )
    return [Row(cell.differs, tuple(results)) for cell, results in grouped.values()]


def write_summary(plan: Plan, outcomes: Sequence[Outcome], rows: Sequence[Row], out: Path) -> Path:
    """summary.json, summary.csv and summary.md, and sweep.json for reports; returns summary.md."""
    facts = [row.facts() for row in rows]
    failed = [
        {"run": outcome.cell.label, "problem": outcome.problem}
        for outcome in outcomes
        if outcome.problem
    ]
    write_json(
        out / "summary.json",
        {"title": plan.title, "rows": facts, "failed": failed, "paper": dict(plan.paper)},
    )
    labels = {
        outcome.folder.name: dict(outcome.cell.differs).get("label")
        for outcome in outcomes
        if outcome.folder is not None
    }
    known = {run: label for run, label in labels.items() if label}
    write_json(
        out / "sweep.json", {"title": plan.title, "labels": known, "paper": _beside(plan, rows)}
    )
    text = io.StringIO()
    if facts:
        writer = csv.DictWriter(text, list(dict.fromkeys(name for row in facts for name in row)))
        writer.writeheader()
        writer.writerows(facts)
    write_atomic(out / "summary.csv", text.getvalue().encode())
    write_atomic(out / "summary.md", markdown(plan, rows, failed).encode())
    return out / "summary.md"


def _key(row: Row) -> str:
    """A row's name among the paper's."""
    return " ".join(str(value) for _, value in row.differs)


def _papers(plan: Plan) -> dict[str, float]:
    return {str(one["label"]): one["value"] for one in plan.paper.get("rows", [])}


def _beside(plan: Plan, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The paper's figures next to ours, as a report shows them; empty where the paper gives none
    for any row.
    """
    paper, ours = _papers(plan), {_key(row): round(mean(row.accuracies), 4) for row in rows}
    found = [
        {"label": name, "paper": paper[name], "ours": value}
        for name, value in ours.items()
        if name in paper
    ]
    return (
        [{"title": f"The paper: {plan.title}", "note": plan.paper.get("note", ""), "rows": found}]
        if found
        else []
    )


def markdown(plan: Plan, rows: Sequence[Row], failed: Sequence[dict[str, Any]] = ()) -> str:
    """The table for eyes, the paper's numbers beside ours where it has some."""
    names = list(dict.fromkeys(name for row in rows for name, _ in row.differs))
    paper = _papers(plan)
    head = [*names, "accuracy", "clean samples", "CPU-seconds", "samples trained on", "sent, MB"]
    head += ["paper"] if paper else []
    lines = [f"# {plan.title}", "", _line(head), _line(["---"] * len(head))]
    for row in rows:
        own, values = dict(row.differs), row.accuracies
        spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
        share = "-" if row.clean_share is None else f"{row.clean_share:.0%}"
        cells = [str(own.get(name, "")) for name in names]
        cells += [f"{mean(values):.3f}{spread}", share, f"{row.cost('cpu'):.1f}"]
        cells += [f"{row.cost('backward'):,.0f}", f"{row.cost('sent') / 1e6:.1f}"]
        if paper:
            cells.append(str(paper.get(_key(row), "")))
        lines.append(_line(cells))
    lines += ["", *(f"not finished: {one['run']}: {one['problem']}" for one in failed)]
    if note := plan.paper.get("note"):
        lines += ["", f"The paper: {note}"]
    return "\n".join(lines).rstrip() + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
