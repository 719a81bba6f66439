"""`gcfl sweep`, `gcfl paper`, `gcfl demo`: many runs from one file."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcfl.base.errors import ConfigError, RunError, did_you_mean
from gcfl.base.text import count, visible
from gcfl.cli.playing import at_least_one, complain, play
from gcfl.cli.settings import add_group, add_verb

if TYPE_CHECKING:
    from gcfl.results.groups import Study
    from gcfl.sweep import Plan


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    how = type(common)(add_help=False, parents=[common])
    scale = "how large: smoke (seconds), small, or the paper's set-up"
    how.add_argument("--scale", choices=["smoke", "small", "paper"], help=scale)
    how.add_argument("--seeds", type=int, help="how many seeds, from 0")
    how.add_argument("--jobs", type=int, help="runs at a time (one per core)")
    out = "where runs, tables and the figure go (sweeps/NAME, or sweeps/NAME-SCALE)"
    how.add_argument("--out", type=Path, help=out)
    draw = "play nothing: the table and the figure of what is finished, at any depth below --out"
    how.add_argument("--draw", action="store_true", help=draw)
    figure = "where the figure goes, .png or .svg (figure.png in --out)"
    how.add_argument("--figure", metavar="FILE", type=Path, help=figure)
    about = "all runs of a sweep file or a recipe that are not finished yet"
    sweep = add_verb(verbs, how, "sweep", _sweep, about)
    sweep.add_argument("source", metavar="FILE|RECIPE")

    about = "two scenes with 40%% wrong labels, seven methods, three seeds"
    demo = add_verb(verbs, common, "demo", _demo, about)
    out = "where runs and the figure go (demo)"
    demo.add_argument("--out", type=Path, default=Path("demo"), help=out)
    demo.add_argument("--seeds", type=int, default=3, help="how many seeds (3)")
    rounds = "fewer rounds than the demo's own, for a quick look"
    demo.add_argument("--rounds", type=int, help=rounds)

    about = "the paper's experiments: gcfl paper list|run|table"
    actions = add_group(verbs, common, "paper", about)
    add_verb(actions, common, "list", _list, "every experiment of the paper, and what it reports")
    run = add_verb(actions, how, "run", _recipe, "run one of them")
    run.add_argument("source", metavar="RECIPE")
    about = "what we found so far, beside the paper's numbers"
    table = add_verb(actions, common, "table", _table, about)
    out = "where sweeps were run (sweeps, or in a checkout docs/results, where kept runs lie)"
    table.add_argument("--out", type=Path, help=out)


def _sweep(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.sweep import grouped, read_plan, write_summary
    from gcfl.sweep.summary import draw, there

    at_least_one(options, "seeds", "jobs")
    if options.figure and options.figure.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(f"--figure must end in .png or .svg, got {options.figure}")
    plan = read_plan(options.source, options.scale, options.seeds)
    out = options.out or plan.folder
    picture = options.figure or out / "figure.png"
    if options.draw:
        outcomes = there(plan, out)
        missing = len(plan.cells) - len(outcomes)
        if not outcomes:
            raise RunError(
                f"none of the {count(missing, 'run')} of {plan.name} is finished in {out}"
            )
        _tell(plan, grouped(outcomes), options.quiet)
        if missing:
            print(f"{missing} of {count(len(plan.cells), 'run')} not there, and left out")
    else:
        outcomes = play(plan, out / "runs", options.jobs, options.quiet)
        summary = write_summary(plan, outcomes, grouped(outcomes), out)
        _tell(plan, grouped(outcomes), options.quiet)
        print(summary)
    if figure := draw(plan, grouped(outcomes), picture):
        print(figure)
    complain(outcomes)


def _tell(plan: Plan, study: Study, quiet: bool) -> None:
    from gcfl.report.terminal import print_table, wide
    from gcfl.sweep.summary import more_columns, notes

    if not quiet and study.groups:
        print_table(study, str(plan.title), wide(), more_columns(plan, study))
        for line in notes(plan, study):
            print(visible(line))


def _demo(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.report.terminal import print_table, wide
    from gcfl.results.measures import measure
    from gcfl.results.verdict import verdicts
    from gcfl.sweep import grouped, read_plan, write_summary
    from gcfl.sweep.summary import draw

    at_least_one(options, "seeds", "rounds")
    changes = {"rounds": options.rounds} if options.rounds else {}
    plan = read_plan("demo", seeds=options.seeds, changes=changes)
    outcomes = play(plan, options.out / "runs", None, options.quiet)
    study = grouped(outcomes)
    write_summary(plan, outcomes, study, options.out)
    console = wide()
    for scene, groups in study.scenes.items():
        title = f"{scene}: {plan.title}"
        shown = replace(study, columns=["label"], groups=groups)
        print_table(shown, title, console)
        for line in verdicts(shown):
            console.print(line, soft_wrap=True, markup=False)
    for name in ("clean_share", "samples"):
        console.print(measure(name).note, soft_wrap=True)
    complain(outcomes)
    print(f"\nfigure: {draw(plan, study, options.out / 'demo.png')}")
    gcfl = _command()
    example = next(group for group in study.groups if group.line == "robust")
    print(f"one of the runs:    {gcfl} show {shlex.quote(str(example.runs[0].folder))}")
    print(f"on your own terms:  {gcfl} run --data digits --noise 0.3 --rounds 50")
    print("on your own data:   see 'Your own data and model' in the README")


def _command() -> str:
    """What to type for gcfl here: it may not be on the path, or be run as a module."""
    if shutil.which("gcfl"):
        return "gcfl"
    if Path(sys.argv[0]).name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m gcfl"
    return shlex.quote(sys.argv[0])


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
    from rich.markdown import Markdown

    from gcfl.report.terminal import wide

    usual = Path("sweeps"), Path("docs/results")
    home = options.out or next((one for one in usual if one.is_dir()), usual[0])
    console = wide()
    told = _tell_recipes(home)
    for path in sorted(home.glob("*/summary.md")) if home.is_dir() else []:
        if path.parent not in told:  # a sweep of somebody's own, or one whose runs are gone
            console.print(Markdown(path.read_text(encoding="utf-8")))
            console.print(f"({path.parent})\n", soft_wrap=True, markup=False)
            told.append(path.parent)
    if not told:
        raise ConfigError(
            f"there is no finished sweep in {home}; gcfl paper run closed --scale small makes one"
        )


def _tell_recipes(home: Path) -> list[Path]:
    """Tables of the paper's recipes from the runs that lie below a folder; where they lay."""
    from gcfl.report.terminal import wide
    from gcfl.sweep import grouped, read_plan
    from gcfl.sweep.plan import SCALES, read_recipe, recipe_names
    from gcfl.sweep.summary import there

    told = []
    for name in recipe_names():
        scales = {*read_recipe(name).get("scale", {}), "paper"}
        places = [(name, "paper"), *((f"{name}-{one}", one) for one in SCALES if one in scales)]
        for folder, scale in ((home / place, scale) for place, scale in places):
            plan = read_plan(name, scale) if folder.is_dir() else None
            if plan and (outcomes := there(plan, folder)):
                _tell(plan, grouped(outcomes), quiet=False)
                of_all = f"{len(outcomes)} of {count(len(plan.cells), 'run')}"
                wide().print(f"({folder}, {of_all})\n", soft_wrap=True, markup=False)
                told.append(folder)
    return told
