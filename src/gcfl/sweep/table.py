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
from gcfl.files import write_atomic, write_json
from gcfl.sweep.plan import Plan
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
        """What the summary says of it: first what repeats from run to run, then what it cost this time."""
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
    grouped: dict[tuple[tuple[str, Any], ...], list[Result]] = {}
    keys: dict[str, tuple[tuple[str, Any], ...]] = {}
    for outcome in outcomes:
        if outcome.folder is not None:
            key = keys.setdefault(repr(outcome.cell.differs), outcome.cell.differs)
            grouped.setdefault(_hashable(key), []).append(load(outcome.folder))
    return [Row(keys[repr_], tuple(grouped[_hashable(keys[repr_])])) for repr_ in keys]


def _hashable(key: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, repr(value)) for name, value in key)


def write_summary(plan: Plan, outcomes: Sequence[Outcome], rows: Sequence[Row], out: Path) -> Path:
    """summary.json, summary.csv and summary.md; returns the last."""
    facts = [row.facts() for row in rows]
    failed = [{"run": outcome.cell.label, "problem": outcome.problem} for outcome in outcomes if outcome.problem]
    write_json(out / "summary.json", {"title": plan.title, "rows": facts, "failed": failed, "paper": dict(plan.paper)})
    labels = {outcome.folder.name: dict(outcome.cell.differs).get("label") for outcome in outcomes if outcome.folder is not None}
    write_json(out / "sweep.json", {"title": plan.title, "labels": {run: label for run, label in labels.items() if label}})
    if beside := _beside(plan, rows):
        write_json(out / "paper.json", beside)
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


def _beside(plan: Plan, rows: Sequence[Row]) -> dict[str, Any] | None:
    """The paper's figures next to ours, as a report shows them; None where the paper gives none for any row."""
    paper = {str(one["label"]): one["value"] for one in plan.paper.get("rows", [])}
    found = [
        {"label": _key(row), "paper": paper[_key(row)], "ours": round(mean(row.accuracies), 4)}
        for row in rows
        if _key(row) in paper
    ]
    return {"title": f"The paper: {plan.title}", "note": plan.paper.get("note", ""), "rows": found} if found else None


def markdown(plan: Plan, rows: Sequence[Row], failed: Sequence[dict[str, Any]] = ()) -> str:
    """The table for eyes, the paper's numbers beside ours where it has some."""
    names = list(dict.fromkeys(name for row in rows for name, _ in row.differs))
    paper = {str(one["label"]): one["value"] for one in plan.paper.get("rows", [])}
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
