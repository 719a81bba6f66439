"""`gcfl sweep` and `gcfl paper`: many runs from one file, and the paper's experiments as such
files.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from gcfl.base.errors import ConfigError, RunError, did_you_mean


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    how = type(common)(add_help=False)
    how.add_argument(
        "--scale",
        choices=["smoke", "small", "paper"],
        help="how large: smoke (seconds), small, or the paper's set-up",
    )
    how.add_argument("--seeds", type=int, help="how many seeds, from 0")
    how.add_argument("--jobs", type=int, help="runs at a time (one per core)")
    how.add_argument(
        "--out",
        type=Path,
        help="where runs, tables and the figure go (sweeps/NAME, or sweeps/NAME-SCALE)",
    )
    sweep = verbs.add_parser(
        "sweep",
        help="all runs of a sweep file or a recipe that are not finished yet",
        parents=[common, how],
    )
    sweep.set_defaults(call=_sweep)
    sweep.add_argument("source", metavar="FILE|RECIPE")
    paper = verbs.add_parser(
        "paper", help="the paper's experiments: gcfl paper list|run|table", parents=[common]
    )
    actions = paper.add_subparsers(
        dest="action", metavar="ACTION", parser_class=type(common), required=True
    )
    known = actions.add_parser(
        "list", help="every experiment of the paper, and what it reports", parents=[common]
    )
    known.set_defaults(call=_list)
    run = actions.add_parser("run", help="run one of them", parents=[common, how])
    run.set_defaults(call=_recipe)
    run.add_argument("source", metavar="RECIPE")
    table = actions.add_parser(
        "table", help="what we found so far, beside the paper's numbers", parents=[common]
    )
    table.set_defaults(call=_table)
    table.add_argument(
        "--out", type=Path, default=Path("sweeps"), help="where sweeps were run (sweeps)"
    )


def _sweep(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.sweep.plan import read_plan

    for name in ("seeds", "jobs"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise ConfigError(f"--{name} must be at least 1, got {getattr(options, name)}")
    plan = read_plan(options.source, options.scale, options.seeds)
    scale = options.scale or ("small" if not options.source.endswith(".toml") else None)
    out = options.out or Path("sweeps") / "-".join(filter(None, (plan.name, scale)))
    _run(plan, out, options.jobs, options.quiet)


def _list(_: argparse.Namespace, __: list[str]) -> None:
    from gcfl.sweep.plan import read_recipe, recipe_names

    for name in recipe_names():
        raw = read_recipe(name)
        print(f"{name:<16} {raw.get('what', raw.get('title', ''))}")
        if note := raw.get("paper", {}).get("note"):
            print(f"{'':<16}   the paper: {note}")


def _recipe(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.sweep.plan import recipe_names

    if options.source not in recipe_names():
        near = did_you_mean(options.source, recipe_names())
        raise ConfigError(f"there is no recipe {options.source!r}{near}")
    _sweep(options, [])


def _table(options: argparse.Namespace, _: list[str]) -> None:
    found = sorted(options.out.glob("*/summary.md")) if options.out.is_dir() else []
    if not found:
        raise ConfigError(
            f"there is no finished sweep in {options.out}; gcfl paper run closed --scale small "
            "makes one"
        )
    for path in found:
        print(f"{path.read_text()}\n({path.parent})\n")


def _run(plan: Any, out: Path, jobs: int | None, quiet: bool) -> None:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from gcfl.sweep.figure import draw
    from gcfl.sweep.runner import Outcome, run_cells
    from gcfl.sweep.table import rows_of, write_summary

    out.mkdir(parents=True, exist_ok=True)
    workers = max(cell.experiment().engine.workers for cell in plan.cells)
    at_once = jobs or max(1, (os.cpu_count() or 1) // workers)
    console = Console(file=sys.stderr, highlight=False)
    bars = (
        TextColumn("runs"),
        MofNCompleteColumn(),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*bars, console=console, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("runs", total=len(plan.cells))

        def told(outcome: Outcome) -> None:
            bar.advance(task)
            if outcome.problem:
                console.print(
                    f"failed: {outcome.cell.label}: {outcome.problem}", soft_wrap=True, markup=False
                )
            elif not quiet and not console.is_terminal and not outcome.was_finished:
                console.print(f"done: {outcome.cell.label}", soft_wrap=True, markup=False)

        outcomes = run_cells(plan.cells, out / "runs", at_once, told)
    rows = rows_of(outcomes)
    summary = write_summary(plan, outcomes, rows, out)
    if not quiet:
        print(summary.read_text())
    figure = draw(plan, rows, out / "figure.png")
    for path in filter(None, (summary, figure)):
        print(path)
    failed = [outcome for outcome in outcomes if outcome.problem]
    if failed:
        raise RunError(
            f"{len(failed)} of {len(outcomes)} runs failed; the same command tries them again"
        )
