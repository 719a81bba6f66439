"""What sweeps, the demo and comparisons share: many runs, and how they tell that they are alive."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gcfl.base.errors import ConfigError, RunError
from gcfl.base.text import count, visible

if TYPE_CHECKING:
    from gcfl.sweep import Plan
    from gcfl.sweep.plan import Cell
    from gcfl.sweep.runner import Going, Outcome


def at_least_one(options: argparse.Namespace, *names: str) -> None:
    for name in names:
        given = getattr(options, name)
        if given is not None and given < 1:
            raise ConfigError(f"--{name} must be at least 1, got {given}")


def play(plan: Plan, out: Path, jobs: int | None, quiet: bool) -> list[Outcome]:
    """All runs of a plan that are not finished yet, below `out`: with a bar on a terminal, a line
    for each run and each scene elsewhere.
    """
    from rich.console import Console
    from rich.progress import Progress

    from gcfl.report.progress import Seldom, columns, escape, so_far
    from gcfl.sweep import comparison
    from gcfl.sweep.runner import at_once

    console = Console(file=sys.stderr, highlight=False)
    lines = not (quiet or console.is_terminal)
    left = dict.fromkeys(map(_scene, plan.cells), 0)
    for cell in plan.cells:
        left[_scene(cell)] += 1
    jobs = jobs or at_once(plan.cells)
    total, started, done = len(plan.cells), time.monotonic(), 0

    def say(line: str) -> None:
        console.print(visible(line), soft_wrap=True, markup=False)

    if lines:
        say(f"{plan.title}: {count(total, 'run')}, {jobs} at a time, in {out}")
    silent = quiet or not console.is_terminal
    seldom, bars = Seldom(), {}
    with Progress(*columns("{task.description}"), console=console, disable=silent) as bar:
        task = bar.add_task("runs", total=total)

        def progress(cell: Cell, now: Going) -> None:
            if seldom.due(cell.label) and lines:
                say(f"{cell.label}: {so_far(now.rounds, now.of, now.clients, now.cohort)}")
            if not silent and cell.label not in bars:
                bars[cell.label] = bar.add_task(escape(cell.label), total=now.of)
            if not silent:
                bar.update(bars[cell.label], completed=now.rounds)

        def told(outcome: Outcome) -> None:
            nonlocal done
            done += 1
            bar.advance(task)
            if outcome.cell.label in bars:
                bar.remove_task(bars.pop(outcome.cell.label))
            scene = _scene(outcome.cell)
            left[scene] -= 1
            if outcome.problem:
                say(f"failed: {outcome.cell.label}: {outcome.problem}")
            elif lines:
                what = "finished before" if outcome.was_finished else "done"
                so_far = f"{done}/{total}, {time.monotonic() - started:.0f} s"
                say(f"{what}: {outcome.cell.label}{_accuracy(outcome)} ({so_far})")
            if lines and scene and not left[scene]:
                say(f"{scene}: all runs are done")

        return comparison.play(plan, out, jobs, told, on_progress=progress)


def _scene(cell: object) -> str:
    return str(dict(getattr(cell, "differs", ())).get("scene", ""))


def _accuracy(outcome: Outcome) -> str:
    from gcfl.results.run import Run

    if outcome.folder is None:
        return ""
    return f", accuracy {Run(outcome.folder).accuracy:.4f}"


def complain(outcomes: Sequence[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.problem]
    if failed:
        raise RunError(
            f"{len(failed)} of {len(outcomes)} runs failed; the same command tries them again"
        )
