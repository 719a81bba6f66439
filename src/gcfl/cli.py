"""The command line: verbs. Heavy imports are inside the verbs, so that help answers at once."""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gcfl import __version__, cli_data, cli_flower, cli_report, cli_sweep
from gcfl.arguments import settings_of
from gcfl.errors import ConfigError, GcflError, Interrupted

if TYPE_CHECKING:
    from gcfl.api import Result

USAGE_ERROR = 2

_RUN_HELP = """\
Train with one method and write a run folder. Settings come from CONFIG.toml, and from the command
line, which wins.

everyday settings:
  --method M      gcfl, fedavg, random, ..., or a composition such as skyline+random
                  (gcfl list methods)
  --data D        a name (gcfl list data) or a path to your own
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

Any other setting goes by its dotted name, for example --train.lr 0.05 --coreset.score distance;
`gcfl list settings` prints them all.
"""


class _Parser(argparse.ArgumentParser):
    """Errors as one sentence, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def _parser() -> argparse.ArgumentParser:
    common = _Parser(add_help=False)
    common.add_argument("--quiet", action="store_true", help="print the result only")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = _Parser(
        prog="gcfl", description="Federated learning that survives bad data.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"gcfl {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=_Parser)

    run = verbs.add_parser(
        "run",
        help="train with one method and write a run folder",
        usage="gcfl run [CONFIG.toml] [--key value ...] [--fresh] [--quiet]",
        description=_RUN_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
        allow_abbrev=False,
    )
    run.add_argument("--out", default="runs", help=argparse.SUPPRESS)
    run.add_argument(
        "--fresh",
        action="store_true",
        help="set an earlier run of the same settings aside and start again",
    )

    resume = verbs.add_parser(
        "resume",
        help="continue a run that was stopped or killed",
        parents=[common],
        allow_abbrev=False,
    )
    resume.add_argument("run", metavar="RUN", type=Path)
    resume.add_argument(
        "--workers", type=int, help="client processes; changes the time, never the result"
    )

    show = verbs.add_parser(
        "show",
        help="a run's result and curves in the terminal; of several, a line each",
        parents=[common],
        allow_abbrev=False,
    )
    show.add_argument("runs", metavar="RUN", type=Path, nargs="+")

    demo = verbs.add_parser(
        "demo",
        help="two scenes with 40%% wrong labels, six methods, three seeds",
        parents=[common],
        allow_abbrev=False,
    )
    demo.add_argument(
        "--out", type=Path, default=Path("demo"), help="where runs and the figure go (demo)"
    )
    demo.add_argument("--seeds", type=int, default=3, help="how many seeds (3)")
    demo.add_argument(
        "--rounds", type=int, help="fewer rounds than the demo's own, for a quick look"
    )

    listing = verbs.add_parser(
        "list",
        help="what there is: methods, data, models, settings",
        parents=[common],
        allow_abbrev=False,
    )
    listing.add_argument("what", choices=["methods", "data", "models", "settings"])
    cli_data.add_verb(verbs, common, _Parser)
    cli_sweep.add_verbs(verbs, common, _Parser)
    cli_flower.add_verb(verbs, common, _Parser)
    cli_report.add_verbs(verbs, common)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal that cannot show λ gets a question mark, not a traceback
            stream.reconfigure(errors="replace")
    try:
        options, rest = _parser().parse_known_args(given)
        if options.verb is None:
            _parser().print_help()
            return 0
        if rest and options.verb not in ("run", "data", "flower"):
            raise ConfigError(f"gcfl {options.verb} does not take {rest[0]}")
        _VERBS[options.verb](options, rest)
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        return 128 + stop.signal
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (GcflError, MemoryError, OSError) as error:
        if "--debug" in given:
            raise
        print(f"error: {error or 'out of memory'}", file=sys.stderr)
        return USAGE_ERROR
    return 0


def _run(options: argparse.Namespace, rest: list[str]) -> None:
    from gcfl.api import execute, warn_unused
    from gcfl.prepare import Given
    from gcfl.report.progress import Progress

    built, unused, explicit = settings_of(rest)
    with Progress(options.quiet) as progress:
        warn_unused(built, [name for name in unused if name in explicit])
        result = execute(
            built, Given(), Path(options.out), options.fresh, progress.start, progress.round
        )
    _print_result(result, options.quiet, progress.started, " (--fresh starts again)")


def _resume(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.api import resume
    from gcfl.report.progress import Progress

    with Progress(options.quiet) as progress:
        result = resume(options.run, options.workers, progress.start, progress.round)
    _print_result(result, options.quiet, progress.started)


def _print_result(result: Result, quiet: bool, started: bool, again: str = "") -> None:
    from gcfl.report.terminal import hint, one_line

    if not started and not quiet:
        print(f"already finished: nothing to do{again}", file=sys.stderr)
    print(one_line(result))
    if not quiet:
        if advice := hint(result):
            print(f"hint: {advice}", file=sys.stderr)
        print(f"gcfl show {result.folder}", file=sys.stderr)


def _show(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.api import load
    from gcfl.report.terminal import one_line, show

    if len(options.runs) == 1:
        show(load(options.runs[0]))
        return
    for folder in options.runs:
        result = load(folder)
        print(f"{folder}: {one_line(result) if result.rounds else 'no round finished yet'}")


def _demo(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.demo import demo

    if options.seeds < 1:
        raise ConfigError(f"--seeds must be at least 1, got {options.seeds}")
    if options.rounds is not None and options.rounds < 1:
        raise ConfigError(f"--rounds must be at least 1, got {options.rounds}")
    demo(options.out, options.seeds, options.rounds, options.quiet)


def _list(options: argparse.Namespace, _: list[str]) -> None:
    from gcfl.report.listing import listing

    for name, line in listing(options.what):
        print(f"{name:<26} {line}")


_VERBS = {
    "run": _run,
    "resume": _resume,
    "show": _show,
    "demo": _demo,
    "list": _list,
    "data": cli_data.run_verb,
    "sweep": cli_sweep.sweep,
    "paper": cli_sweep.paper,
    "flower": cli_flower.run_verb,
    **cli_report.VERBS,
}


if __name__ == "__main__":
    sys.exit(main())
