"""Methods side by side, from the command line and from Python: what a comparison plays, and what
comes back of it or of a sweep.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from gcfl import experiment as config
from gcfl.api import DEFAULT_OUT, brought, load
from gcfl.base.errors import ConfigError, RunError
from gcfl.base.options import flat, nested
from gcfl.base.text import count
from gcfl.engine import Given
from gcfl.methods import canonical, parse
from gcfl.report.build import report
from gcfl.report.fitting import room_of
from gcfl.report.markup import html_table
from gcfl.report.tables import best_note, cells, frame
from gcfl.report.terminal import print_table
from gcfl.results.groups import Study, study
from gcfl.results.run import Run
from gcfl.results.verdict import verdicts
from gcfl.sweep.plan import Plan, checked_plan, expand, read_plan
from gcfl.sweep.runner import OnOutcome, OnProgress, Outcome, at_once, run_cells
from gcfl.sweep.summary import draw, grouped, write_summary

_WIDTH = 136
_NAMED = 3  # methods in a title


@dataclass(frozen=True)
class Comparison:
    """Runs side by side. report: the page about them, where one was written. failed: of runs that
    did not come to an end, which and why.
    """

    study: Study
    title: str
    report: Path | None = None
    failed: tuple[str, ...] = ()

    @property
    def runs(self) -> list[Run]:
        return self.study.runs

    @property
    def verdict(self) -> str:
        """Which is ahead, by how much, and whether the seeds bear it out."""
        return " ".join(verdicts(self.study)) or "there is nothing to compare"

    @property
    def table(self) -> str:
        """Mean ± sd of accuracy and cost, a line for each method."""
        return self._table(None)

    def _table(self, room: int | None) -> str:
        """room: the columns of a terminal that it has to fit."""
        text = Console(
            file=StringIO(),
            width=room or _WIDTH,
            highlight=False,
            color_system=None,
            force_terminal=room is not None,
        )
        print_table(self.study, self.title, text)
        return str(text.file.getvalue()).rstrip()  # type: ignore[attr-defined]

    def to_frame(self) -> Any:
        """The same as a pandas DataFrame of plain numbers."""
        return frame(self.study)

    def __repr__(self) -> str:
        return "\n".join([self._table(room_of(Console())), self.verdict, *self._after()])

    def _repr_html_(self) -> str:
        heads, lines = cells(self.study)
        notes = [self.verdict, best_note(self.study), *self._after()]
        paragraphs = "".join(f"<p>{escape(note)}</p>" for note in notes if note)
        return f"<h4>{escape(self.title)}</h4>{html_table(heads, lines)}{paragraphs}"

    def _after(self) -> list[str]:
        failed = [f"failed: {one}" for one in self.failed]
        return failed + ([f"report: {self.report}"] if self.report else [])


def comparison_plan(
    methods: Sequence[str] | Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
    seeds: int | None = None,
) -> Plan:
    """All methods with the same settings, by dotted name, and the same seeds: so many from that of
    the settings on. methods: names, or tables of settings by the name that each is to have.
    """
    if not methods:
        raise ConfigError("name at least one method")
    shared = dict(settings)
    first = shared.pop("seed", 0)
    if not isinstance(first, int):
        raise ConfigError(f"seed must be a whole number, got {first!r}")
    sweep: dict[str, Any] = {"seed": list(range(first, first + (seeds or 1)))}
    if isinstance(methods, Mapping):
        sweep["cases"] = [{"label": name, **flat(table)} for name, table in methods.items()]
    else:
        sweep["method"] = _distinct(methods)
    raw = {"experiment": nested(shared), "sweep": sweep}
    names = list(methods)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    title = f"{', '.join(names[:_NAMED])}{more} on {shared.get('data.source', 'digits')}"
    return Plan("compare", title, expand(raw, None, "the comparison"))


def _distinct(methods: Sequence[str]) -> list[str]:
    """Their canonical names; the same method twice is an error."""
    found: dict[str, str] = {}
    for name in methods:
        parse(name)
        if (known := canonical(name)) in found:
            raise ConfigError(f"{name!r} is compared with itself: {found[known]!r} is the same")
        found[known] = name
    return list(found)


def conclude(plan: Plan, outcomes: Sequence[Outcome], out: Path) -> Comparison:
    """What the runs of a comparison came to, and one page about them below `out`."""
    failed = tuple(f"{one.cell.label}: {one.problem}" for one in outcomes if one.problem)
    folders = [one.folder for one in outcomes if one.folder is not None]
    if not folders:
        raise RunError(f"no run came to an end: {failed[0]}")
    found = Comparison(grouped(outcomes), plan.title, failed=failed)
    names = "\n".join(sorted(folder.name for folder in folders))
    page = out / f"compare-{hashlib.sha256(names.encode()).hexdigest()[:10]}.html"
    return replace(found, report=report(folders, page, title=plan.title)[0])


def compare(
    methods: Any,
    *others: Any,
    data: Any = None,
    model: Any = None,
    seeds: int = 1,
    jobs: int | None = None,
    out: str | os.PathLike[str] = DEFAULT_OUT,
    config_file: str | os.PathLike[str] | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
    **settings: Any,
) -> Comparison:
    """Play every method with the same data and seeds, or compare runs that are there.

        gcfl.compare(["fedavg", "gcfl"], data=(x, y), model=Net, seeds=3, noise=0.4)
        gcfl.compare({"plain": {"method": "fedavg"}, "gce": {"train.loss": "gce"}}, seeds=3)
        gcfl.compare(run, "runs/digits-...")

    data, model and settings: as for `gcfl.run`. jobs: runs at a time (one per core). What is
    finished already is not played again; one HTML page about all is left in `out`.
    """
    given_runs = [methods, *others] if others or _is_run(methods) else methods
    if isinstance(given_runs, list | tuple) and given_runs and all(map(_is_run, given_runs)):
        runs = [one if isinstance(one, Run) else load(one) for one in given_runs]
        return Comparison(study(runs), count(len(runs), "run"))
    if others:
        raise ConfigError("name several methods as a list: gcfl.compare(['fedavg', 'gcfl'])")
    if seeds < 1 or (jobs is not None and jobs < 1):
        raise ConfigError("seeds and jobs must be at least 1")
    asked = [methods] if isinstance(methods, str) else methods
    plain, given = brought(data, model, **settings)
    file = config.read_settings(Path(config_file)) if config_file else {}
    plan = comparison_plan(asked, {**flat(file), **plain}, seeds)
    outcomes = play(plan, Path(out), jobs, on_outcome, given)
    return conclude(plan, outcomes, Path(out))


def _is_run(one: Any) -> bool:
    return isinstance(one, Run | os.PathLike) or (
        isinstance(one, str) and (Path(one) / "config.toml").is_file()
    )


def sweep(
    source: str | os.PathLike[str] | Mapping[str, Any],
    *,
    scale: str | None = None,
    seeds: int | None = None,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> Comparison:
    """All runs of a sweep that are not finished yet; tables, the figure and the runs go to `out`
    (sweeps/NAME). source: a file, a recipe by its name, or what such a file holds as a dict.
    """
    if isinstance(source, Mapping):
        plan = checked_plan(source, "sweep", "the sweep", scale, seeds)
    else:
        plan = read_plan(os.fspath(source), scale, seeds)
    folder = plan.folder if out is None else Path(out)
    outcomes = play(plan, folder / "runs", jobs, on_outcome)
    failed = tuple(f"{one.cell.label}: {one.problem}" for one in outcomes if one.problem)
    made = grouped(outcomes)
    write_summary(plan, outcomes, made, folder)
    draw(plan, made, folder / "figure.png")
    return Comparison(made, str(plan.title), folder / "summary.md", failed)


def play(
    plan: Plan,
    out: Path,
    jobs: int | None = None,
    on_outcome: OnOutcome | None = None,
    given: Given | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> list[Outcome]:
    """All runs of a plan that are not finished yet, in folders below `out`."""
    out.mkdir(parents=True, exist_ok=True)
    told = on_outcome or (lambda _: None)
    return run_cells(plan.cells, out, jobs or at_once(plan.cells), told, given, on_progress)
