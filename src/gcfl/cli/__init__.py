"""The command line. Heavy imports are inside the verbs, so that help answers at once.

Each module of `GROUPS` has `add(verbs, common)`, which adds its verbs; a verb's parser says in
`call` what to call, and with `takes_settings` that it takes any setting as --name value.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from typing import NoReturn

from gcfl import __version__
from gcfl.base.errors import ConfigError, GcflError, Interrupted, did_you_mean
from gcfl.base.text import visible
from gcfl.cli import audit, completion, data, flower, predict, recommend, report, run, sweep

GROUPS = (run, recommend, predict, audit, data, sweep, flower, report, completion)
USAGE_ERROR = 2


class _Parser(argparse.ArgumentParser):
    """Errors as one sentence, exit code 2."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)$", message)
        near = did_you_mean(wrong[1], re.findall(r"[\w-]+", wrong[2])) if wrong else ""
        raise ConfigError(message + near * near.startswith("; did"))


def _parser() -> argparse.ArgumentParser:
    common = _Parser(add_help=False)
    common.set_defaults(takes_settings=False)
    common.add_argument("--quiet", action="store_true", help="print the result only")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = _Parser(
        prog="gcfl", description="Federated learning that survives bad data.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"gcfl {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=_Parser)
    for group in GROUPS:
        group.add(verbs, common)
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
            if rest:
                raise ConfigError(f"gcfl does not take {rest[0]}; gcfl --help shows what it does")
            _parser().print_help()
            return 0
        if rest and not options.takes_settings:
            verb = " ".join(filter(None, (options.verb, getattr(options, "action", None))))
            raise ConfigError(f"gcfl {verb} does not take {rest[0]}")
        options.call(options, rest)
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
        print(f"error: {visible(str(error)) or 'out of memory'}", file=sys.stderr)
        return USAGE_ERROR
    return 0
