"""`gcfl audit`: which labels are wrong, at every site."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcfl.base.errors import ConfigError
from gcfl.base.text import visible
from gcfl.cli.settings import add_verb, settings_of

if TYPE_CHECKING:
    from gcfl.engine.audit import Audit

_HELP = """\
Which labels of a run's clients are wrong, which inputs are strange, and what the labels should be.
RUN is the folder of a finished run; a CONFIG.toml, or settings alone, train first. For example:
  gcfl audit runs/photos-cnn-robust-seed0-...
  gcfl audit --data photos/ --model cnn --clients 5
Below the run's folder, or --out, each site gets a folder of its own:
  audit.csv     a line per sample, worst first
  cleaned.csv   ids and labels of what is worth keeping, for gcfl run --labels
  audit.json    the site as a whole: its share of wrong labels, its confusions, its classes
and beside them audit.html, one offline page of all of them, and audit.json: the sites side by
side, and how right it all is where the truth is known.
"""


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    audit = add_verb(
        verbs,
        common,
        "audit",
        _audit,
        "which labels are wrong, at every site",
        usage="gcfl audit [RUN | CONFIG.toml] [--key value ...] [--out DIR]",
        description=_HELP,
    )
    audit.set_defaults(takes_settings=True)
    audit.add_argument("--out", type=Path, help="where findings go (RUN/audit)")
    audit.add_argument("--runs", type=Path, default=Path("runs"), help="where a run goes (runs)")
    threshold = "a label is called wrong above this probability (the run's audit.threshold, 0.5)"
    audit.add_argument("--threshold", type=float, help=threshold)
    correct = (
        "a wrong label is corrected where another is at least so likely, else dropped (the run's "
        "audit.correct, 0.9)"
    )
    audit.add_argument("--correct", type=float, help=correct)
    kinds = "audit.csv, or audit.parquet in its place"
    audit.add_argument("--format", choices=("csv", "parquet"), default="csv", help=kinds)


def _audit(options: argparse.Namespace, rest: list[str]) -> None:
    from gcfl.api import audit
    from gcfl.results.findings import need_parquet

    for name in ("threshold", "correct"):
        value = getattr(options, name)
        if value is not None and not 0 <= value <= 1:
            raise ConfigError(f"--{name} must be in [0, 1], got {value:g}")
    if options.format == "parquet":
        need_parquet()
    found = audit(_run_of(options, rest))
    threshold, correct = found.thresholds(options.threshold, options.correct)
    asked = {"threshold": threshold, "correct": correct, "format": options.format}
    out = found.write(options.out, **asked)
    _print(found, threshold, correct, options.quiet)
    print(out / "audit.html")


def _run_of(options: argparse.Namespace, rest: list[str]) -> Any:
    """The finished run that is named, or the one that the settings make."""
    if len(rest) == 1 and Path(rest[0]).is_dir():
        return rest[0]
    if len(rest) == 1 and not rest[0].endswith(".toml") and not rest[0].startswith("-"):
        raise ConfigError(f"{rest[0]} is neither a run folder nor a configuration")
    from gcfl.api import execute, warn_unused
    from gcfl.engine.audit import check_audit
    from gcfl.engine.prepare import Given
    from gcfl.report.progress import Progress

    built, unused = settings_of(rest)
    check_audit(built)  # before it trains for nothing
    with Progress(options.quiet) as progress:
        warn_unused(built, unused)
        return execute(built, Given(), options.runs, False, progress.start, progress.round)


def _print(found: Audit, threshold: float, correct: float, quiet: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from gcfl.report.audit_summary import NOT_HELPED, helped
    from gcfl.report.progress import escape
    from gcfl.results.findings import HEADS

    console = Console(highlight=False)
    table = Table(title="Labels, site by site")
    for name in HEADS:
        table.add_column(name, justify="left" if name == "site" else "right")
    recorded = any(site.contribution for site in found.sites)
    if recorded:
        table.add_column("helped", justify="right")
    for site in found.sites:
        row = [*site.row(threshold), *([helped([site])] if recorded else [])]
        table.add_row(*map(escape, row))
    if not quiet:
        console.print(table)
        notes = [note for site in found.sites for note in site.notes]
        for note in dict.fromkeys([*notes, *([] if recorded else [NOT_HELPED])]):
            console.print(visible(f"note: {note}"), soft_wrap=True, markup=False)
    if scores := found.scores(threshold, correct):
        texts = {
            name: "-" if math.isnan(value) else f"{value:.3f}" for name, value in scores.items()
        }
        print(
            "against the truth: AUROC {auroc}, average precision {average_precision}, precision "
            "{precision} and recall {recall} at {at:g}; {corrected_right} of corrected labels are "
            "right; AUROC of strange inputs {strange_auroc}; rates off by {rate_error}, {covered} "
            "of intervals hold the truth".format(**texts, at=threshold)
        )
