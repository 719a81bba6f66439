"""`gcfl recommend`: which method to take, from short trials."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcfl.base.text import count
from gcfl.cli.settings import add_verb, wanted_of

if TYPE_CHECKING:
    from gcfl.api import Recommendation

_HELP = """\
Try a few methods for a tenth of the rounds, and say which to take, why, and at what cost. Takes
what `gcfl run` takes; a method that is named is tried beside the others.

Methods are judged on a part of the server's clean set that no trial trains on. The test set is not
looked at. Stopped, the same command goes on where it was.
"""


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    recommend = add_verb(
        verbs,
        common,
        "recommend",
        _recommend,
        "which method to take, from short trials on held-out clean samples",
        usage="gcfl recommend [CONFIG.toml] [--key value ...] [--out DIR] [--quiet]",
        description=_HELP,
    )
    recommend.set_defaults(takes_settings=True)
    recommend.add_argument("--out", default="recommend", help="where trials go (recommend)")


def _recommend(options: argparse.Namespace, rest: list[str]) -> None:
    from gcfl.api import recommended
    from gcfl.engine.prepare import Given
    from gcfl.report.progress import Trials

    wanted = wanted_of(rest)
    with Trials(options.quiet) as progress:
        found = recommended(wanted, Given(), Path(options.out), progress.trial, progress.round)
    if not options.quiet:
        _show(found)
    print(found.command)


def _show(found: Recommendation) -> None:
    from rich.console import Console

    from gcfl.api.recommendation import WHAT
    from gcfl.report.fitting import print_fitting, room_of, that_fit
    from gcfl.report.progress import escape

    console = Console(highlight=False)
    console.print(escape(str(found.facts)), "\n", soft_wrap=True)
    heads, lines = found.table
    kept = that_fit(heads, lines, room_of(console), [WHAT])
    some = [[line[place] for place in kept] for line in lines]
    print_fitting(console, found.title, [heads[place] for place in kept], some)
    if len(kept) < len(heads):  # below the table there is room for it
        for line in lines:
            console.print(escape(f"{line[0]}: {line[1]}"), soft_wrap=True)
    console.print(escape(f"{found.why}."), soft_wrap=True)
    full, spent = found.expected, found.cost
    rounds = count(found.experiment.rounds, "round")
    console.print(
        f"The full run of {rounds} would take about {full.cpu:.3g} "
        f"CPU-seconds and train on {full.samples:,} samples; the trials took {spent.cpu:.3g} "
        f"CPU-seconds ({spent.cpu / max(full.cpu, 1e-9):.2f} of that).",
        soft_wrap=True,
    )
    print(f"trials: {found.folder}", file=sys.stderr)
