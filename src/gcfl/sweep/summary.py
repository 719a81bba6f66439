"""What a sweep found: its runs in groups, as files and as a figure, by the report's means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gcfl.base.files import write_atomic, write_json
from gcfl.base.text import csv_bytes, markdown
from gcfl.report import tables
from gcfl.report.tables import best_note
from gcfl.results import equal
from gcfl.results.groups import ACCURACY, Group, Study, named, settings_text
from gcfl.results.measures import measure
from gcfl.results.run import Run
from gcfl.results.styles import Spread, spread
from gcfl.results.verdict import verdicts
from gcfl.sweep.plan import Cell, Plan
from gcfl.sweep.runner import Outcome, finished_folder


def grouped(outcomes: Sequence[Outcome]) -> Study:
    """Finished runs, by what tells them apart besides the seed, in the sweep's order."""
    found: dict[str, tuple[Cell, list[Run]]] = {}  # by its text, since a value may be a list
    for outcome in outcomes:
        if outcome.folder is not None:
            alike = found.setdefault(repr(outcome.cell.differs), (outcome.cell, []))
            alike[1].append(Run(outcome.folder))
    groups = []
    for cell, runs in found.values():
        values = dict(cell.differs)
        line = settings_text(named(values, runs[0]), scene=False) or runs[0].label
        groups.append(Group(values, values, runs, line, settings_text(values, scene=True)))
    columns = list(dict.fromkeys(name for group in groups for name in group.values))
    return Study([run for group in groups for run in group.runs], {}, columns, [], groups)


def there(plan: Plan, folder: Path) -> list[Outcome]:
    """The cells whose finished runs lie at or below a folder, at any depth. Nothing is played."""
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("summary.json")):
        found.setdefault(path.parent.name, path.parent.parent)
    outcomes = []
    for cell in plan.cells:
        home = found.get(cell.experiment().folder_name())
        if home is not None and (run := finished_folder(cell, home)) is not None:
            outcomes.append(Outcome(cell, run, was_finished=True))
    return outcomes


def facts(group: Group) -> dict[str, Any]:
    """What the summary says of it: first what repeats, then what it cost this time."""
    found: dict[str, Any] = {**group.values, "seeds": len(group.runs)}
    accuracy = group.accuracy
    found |= {"accuracy": accuracy.mean, "sd": accuracy.sd} if accuracy else {}
    for name in ("clean_share", "samples", "bytes", "cpu_seconds"):
        value = group.over(measure(name))
        found[name] = value.mean if value else None
    return found


def write_summary(plan: Plan, outcomes: Sequence[Outcome], study: Study, out: Path) -> Path:
    """summary.json, summary.csv and summary.md, and sweep.json for reports; returns summary.md."""
    rows = [facts(group) for group in study.groups]
    for name, values in _equal(plan, study).items():
        for row, value in zip(rows, values, strict=True):
            row[name] = value.mean if value else None
    failed = [
        {"run": outcome.cell.label, "problem": outcome.problem}
        for outcome in outcomes
        if outcome.problem
    ]
    found = {"title": plan.title, "rows": rows, "failed": failed, "paper": dict(plan.paper)}
    write_json(out / "summary.json", found)
    labels = {
        outcome.folder.name: label
        for outcome in outcomes
        if outcome.folder is not None and (label := dict(outcome.cell.differs).get("label"))
    }
    beside = _beside(plan, study)
    write_json(out / "sweep.json", {"title": plan.title, "labels": labels, "paper": beside})
    write_atomic(out / "summary.csv", csv_bytes(rows))
    table = tables.as_md(study, more=more_columns(plan, study))
    lines = [f"# {markdown(str(plan.title))}", "", table]
    lines += [markdown(f"not finished: {one['run']}: {one['problem']}") for one in failed]
    for note in notes(plan, study)[1:] if best_note(study) else notes(plan, study):
        lines += ["", markdown(note)]
    text = "\n".join(lines).rstrip() + "\n"
    write_atomic(out / "summary.md", text.encode(errors="backslashreplace"))
    return out / "summary.md"


def draw(plan: Plan, study: Study, path: Path) -> Path | None:
    """The picture that [figure] asks for; None where there is none, or nothing to show."""
    if not plan.figure or not study.groups:
        return None
    from gcfl.report.charts import figure
    from gcfl.report.matplotlib_ import save
    from gcfl.report.partition import clients_of

    if plan.figure.get("kind") == "heatmap":
        section = clients_of(plan.cells[0].experiment())
    else:
        section = figure(study, plan.title, plan.figure)
    kind = path.suffix.lower().lstrip(".")
    # A line has its colour whether or not those before it are there; the one to look at, the first.
    names = [str(dict(cell.differs).get("label", "")) for cell in plan.cells]
    names = [str(plan.figure.get("highlight", "")), *names]
    return save([section], path, kind, names)[0] if section.plots else None


def _paper_values(plan: Plan, study: Study) -> list[float | None]:
    """What the paper reports of each group, by the values that name it."""
    paper = {str(one["label"]): one["value"] for one in plan.paper.get("rows", [])}
    names = [" ".join(str(value) for value in group.values.values()) for group in study.groups]
    return [paper.get(name) for name in names]


def notes(plan: Plan, study: Study) -> list[str]:
    """What to know when reading the table."""
    paper = plan.paper.get("note")
    line = plan.figure.get("highlight") if plan.figure else None
    found = [best_note(study), *verdicts(study)]
    if line:
        found.append(
            f"At equal samples, passes, CPU-seconds: at the last evaluation before more was spent "
            f"than {line} spent in all (seconds where the processor is the same). At equal rounds: "
            f"after as many as the shortest run has. {measure('passes').note}"
        )
    found.append(f"The paper: {paper}" if paper else "")
    if plan.scale == "smoke":
        found.append(
            "This is the scale smoke: it shows that everything runs, and its numbers mean nothing."
        )
    return [note for note in found if note]


def _equal(plan: Plan, study: Study) -> Mapping[str, Sequence[Spread | None]]:
    """Accuracies at what the sweep's highlighted line cost; none where it has no such line."""
    line = plan.figure.get("highlight") if plan.figure else None
    return equal.columns(study, str(line)) if line else {}


def more_columns(plan: Plan, study: Study) -> dict[str, list[str]]:
    """What else a table has: accuracies at equal cost, and what the paper reports."""
    values = {equal.HEADS[name]: found for name, found in _equal(plan, study).items()}
    paper = {"paper": [spread([value]) for value in _paper_values(plan, study)]}
    return {
        head: [ACCURACY.text_of(value) for value in found]
        for head, found in {**values, **paper}.items()
    }


def _beside(plan: Plan, study: Study) -> list[dict[str, Any]]:
    """The paper's figures next to ours, for a report; empty where the paper has none."""
    rows = [
        {
            "label": " ".join(str(one) for one in group.values.values()),
            "paper": value,
            "ours": round(group.accuracy.mean, 4),
        }
        for group, value in zip(study.groups, _paper_values(plan, study), strict=True)
        if value is not None and group.accuracy
    ]
    title = f"The paper: {plan.title}"
    return [{"title": title, "note": plan.paper.get("note", ""), "rows": rows}] if rows else []
