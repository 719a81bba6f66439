"""`gcfl predict`: what a run's model says of a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from gcfl.cli.settings import add_verb

_HELP = """\
What the model of a finished run says of the samples in FILE, which may be of any format that gcfl
reads (gcfl list data) and needs no labels. A line for each: its id, the class, its probability.
"""


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    about = "what a run's model says of the samples in a file"
    predict = add_verb(verbs, common, "predict", _predict, about, description=_HELP)
    predict.add_argument("run", metavar="RUN", type=Path)
    predict.add_argument("file", metavar="FILE", type=Path)
    out = "the CSV file to write; without it, the lines are printed"
    predict.add_argument("-o", "--out", type=Path, metavar="OUT.csv", help=out)
    every = "the probability of every class, too"
    predict.add_argument("--proba", action="store_true", help=every)


def _predict(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.api import predict
    from gcfl.base.files import write_atomic
    from gcfl.base.text import count, visible

    found = predict(options.run, options.file)
    lines = found.to_csv(options.proba)
    if options.out is None:
        print(lines.decode(), end="")
    else:
        write_atomic(options.out, lines)
        if not options.quiet:
            print(f"{len(found.ids):,} samples predicted: {options.out}")
    if found.unseen and not options.quiet:
        columns = ", ".join(f"{visible(name)} ({n:,})" for name, n in found.unseen.items())
        what = count(sum(found.unseen.values()), "cell")
        print(f"{what} with a value that is new to the model, as other: {columns}", file=sys.stderr)
