"""`gcfl run`, `resume`, `show` and `list`: one run, what came out, what there is."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcfl.base.errors import GcflError
from gcfl.base.text import visible
from gcfl.cli.settings import add_verb, settings_of

if TYPE_CHECKING:
    from gcfl.results.run import Run

_RUN_HELP = """\
Train with one method and write a run folder. Settings come from CONFIG.toml, and from the command
line, which wins.

everyday settings:
  --method M      gcfl, fedavg, random, ..., or a composition such as skyline+random
                  (gcfl list methods)
  --data D        a name (gcfl list data) or a path to your own
  --label C       tables: the column of the labels
  --group C       tables: the column of the groups; a client for each
  --columns A,B   tables: only these columns are features
  --drop A,B      tables: columns that are no features
  --text C        tables: the column of texts, which alone is read
  --image_size N  image folders: pixels per side after resizing
  --labels FILE   labels that somebody looked through, such as cleaned.csv of gcfl audit
  --model M       logistic, mlp, cnn (gcfl list models)
  --rounds T      communication rounds
  --clients N     how many clients share the data
  --noise R       share of each client's labels that is flipped, in [0, 1)
  --budget B      share of each client's samples in its coreset, in (0, 1]
  --seed S        the only source of randomness
  --workers W     client processes; changes the time, never the result
  --lr E          learning rate of local SGD
  --epochs E      passes over a client's coreset per round
  --device D      cpu, cuda, mps
  --out DIR       where run folders go (runs)

Several methods, seeds or both are compared: --method fedavg,gcfl,robust --seeds 3 --jobs 2 prints
one table with a verdict, and leaves one page about all runs.

Any other setting goes by its dotted name, for example --train.lr 0.05 --coreset.score distance;
`gcfl list settings` prints them all.
"""


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    run = add_verb(
        verbs,
        common,
        "run",
        _run,
        "train with one method and write a run folder, or compare several",
        usage="gcfl run [CONFIG.toml] [--key value ...] [--seeds N] [--jobs N] [--fresh] [--quiet]",
        description=_RUN_HELP,
    )
    run.set_defaults(takes_settings=True)
    run.add_argument("--out", default="runs", help=argparse.SUPPRESS)
    run.add_argument("--seeds", type=int, help="so many seeds, from --seed on: a comparison")
    run.add_argument("--jobs", type=int, help="runs of a comparison at a time (one per core)")
    fresh = "set an earlier run of the same settings aside and start again"
    run.add_argument("--fresh", action="store_true", help=fresh)

    resume = add_verb(verbs, common, "resume", _resume, "continue a run that was stopped or killed")
    resume.add_argument("run", metavar="RUN", type=Path)
    workers = "client processes; changes the time, never the result"
    resume.add_argument("--workers", type=int, help=workers)

    about = "a run's result and curves in the terminal; of several, a line each"
    show = add_verb(verbs, common, "show", _show, about)
    where = "a run's folder, or a folder that contains some"
    show.add_argument("runs", metavar="RUN", type=Path, nargs="*", help=f"{where} (runs)")
    every = "of one run, also its rounds and the parts of its cost"
    show.add_argument("--all", action="store_true", help=every)

    about = "whether the files of runs are what was written"
    verify = add_verb(verbs, common, "verify", _verify, about)
    verify.add_argument("runs", metavar="RUN", type=Path, nargs="+", help=where)

    about = "what there is: methods, data, models, settings"
    listing = add_verb(verbs, common, "list", _list, about)
    listing.add_argument("what", choices=["methods", "data", "models", "settings"])


def _run(options: argparse.Namespace, rest: list[str]) -> None:
    from gcfl.api import execute, warn_unused
    from gcfl.cli.compare import compared
    from gcfl.engine.prepare import Given
    from gcfl.report.progress import Progress

    if compared(options, rest):
        return
    built, unused = settings_of(rest)
    with Progress(options.quiet) as progress:
        warn_unused(built, unused)
        result = execute(
            built,
            Given(),
            Path(options.out),
            options.fresh,
            progress.start,
            progress.round,
            on_client=progress.client,
        )
    _print_result(result, options.quiet, progress.started, " (--fresh starts again)")


def _resume(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.api import resume
    from gcfl.report.progress import Progress

    with Progress(options.quiet) as progress:
        told = (progress.start, progress.round, progress.client)
        result = resume(options.run, options.workers, *told)
    _print_result(result, options.quiet, progress.started)


def _print_result(run: Run, quiet: bool, started: bool, again: str = "") -> None:
    from gcfl.report.terminal import hint, one_line

    if not started and not quiet:
        print(f"already finished: nothing to do{again}", file=sys.stderr)
    print(one_line(run))
    if not quiet:
        if advice := hint(run):
            print(f"hint: {advice}", file=sys.stderr)
        print(f"gcfl show {shlex.quote(str(run.folder))}", file=sys.stderr)


def _show(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.api import load
    from gcfl.report.terminal import one_line, show
    from gcfl.results.collect import below, folders_of

    options.runs = folders_of(options.runs or [Path("runs")])
    folders = [folder for path in options.runs for folder in below(path)]
    if folders == options.runs[:1] and not options.quiet:
        show(load(folders[0]), every=options.all)
        if not options.all:
            again = f"gcfl show {shlex.quote(str(folders[0]))} --all"
            print(f"the rounds, and the parts of the cost: {again}", file=sys.stderr)
        return
    for folder in folders:
        try:
            run = load(folder)
            line = one_line(run) if run.rounds else "no round finished yet"
            state = "" if run.finished else f" ({run.state})"
        except GcflError as error:
            if folder in options.runs:
                raise
            line, state = str(error), ""
        print(visible(line if folders == options.runs[:1] else f"{folder}: {line}{state}"))


def _verify(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.api import verify
    from gcfl.base.errors import RunError
    from gcfl.results.collect import below, folders_of
    from gcfl.results.run import NO_DIGESTS, Run

    problems = []
    for folder in [folder for path in folders_of(options.runs) for folder in below(path)]:
        try:
            lacking = verify(folder)
            problem = f"{folder} lacks {', '.join(lacking)}" if lacking else ""
        except GcflError as error:
            problem = str(error)
        problems += [problem] if problem else []
        if not problem and not options.quiet:
            whole = "whole" if Run(folder).has_digests else NO_DIGESTS
            print(f"{folder}: {whole}")
    for problem in problems[:-1]:
        print(f"error: {problem}", file=sys.stderr)
    if problems:
        raise RunError(problems[-1])


def _list(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.cli.listing import listing

    for name, line in listing(options.what):
        print(f"{name:<26} {line}")
