"""`gcfl report`, `gcfl compare`, `gcfl track`: what run folders say."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from gcfl.base.errors import ConfigError
from gcfl.base.text import count
from gcfl.cli.settings import add_verb

_REPORT = """\
One file about many runs: tables, curves, cost, settings, versions. RUNS are run folders, or folders
that contain some at any depth. Runs that differ in the seed alone are told as mean and standard
deviation. For example:
  gcfl report runs -o report.html
  gcfl report runs --format md
"""
_TRACK = """\
Send the rounds of run folders (or of all runs in a folder) to TensorBoard or MLflow. For example:
  gcfl track runs --tensorboard logs
  gcfl track runs --mlflow sqlite:///mlflow.db
"""


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    about = "one file about many runs: html, csv, json, md, png, svg"
    report = add_verb(verbs, common, "report", _report, about, description=_REPORT)
    report.add_argument("runs", metavar="RUNS", type=Path, nargs="+")
    out = "the file, or the folder of figures (report.html)"
    report.add_argument("-o", "--out", type=Path, help=out)
    format = "html, csv, json, md, png or svg; else the ending of --out says it"
    report.add_argument("--format", help=format)
    title = "the heading of the page (that of the sweep, where there is one)"
    report.add_argument("--title", help=title)
    paper = "a file with figures of a paper to show next to these"
    report.add_argument("--paper", metavar="JSON", type=Path, help=paper)
    no_data = "do not read the data to show who holds what"
    report.add_argument("--no-data", action="store_true", help=no_data)

    about = "two runs side by side: settings that differ, accuracy, cost, curves"
    compare = add_verb(verbs, common, "compare", _compare, about)
    compare.add_argument("first", metavar="A", type=Path)
    compare.add_argument("second", metavar="B", type=Path)

    about = "send the rounds of runs to TensorBoard or MLflow"
    track = add_verb(verbs, common, "track", _track, about, description=_TRACK)
    track.add_argument("runs", metavar="RUN", type=Path, nargs="+")
    logs = "write event files below this folder"
    track.add_argument("--tensorboard", metavar="DIR", type=Path, help=logs)
    track.add_argument("--mlflow", metavar="URI", help="a tracking server or database")


def _report(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.report.build import report

    paper = _paper(options.paper) if options.paper else None
    given = {"title": options.title, "paper": paper, "data": not options.no_data}
    for file in report(options.runs, options.out, options.format, **given):
        print(file)


def _paper(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None


def _compare(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.report.terminal import compare

    compare(options.first, options.second)


def _track(options: argparse.Namespace, _: list[str]) -> None:
    if options.tensorboard is None and options.mlflow is None:
        raise ConfigError("say where to: --tensorboard DIR or --mlflow URI")
    from gcfl.report import track as sinks
    from gcfl.results.collect import collect

    found = collect(options.runs)
    for name, why in found.left_out:
        print(f"warning: left out {name}: {why}", file=sys.stderr)
    for run in found.runs:
        if options.tensorboard is not None:
            sinks.TensorBoard(options.tensorboard).send(run.folder)
        if options.mlflow is not None:
            sinks.MLflow(options.mlflow).send(run.folder)
        if not options.quiet:
            print(f"{run.name}: {count(len(run.rounds), 'round')}")
