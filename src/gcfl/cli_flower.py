"""`gcfl flower`: an experiment as a Flower app."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gcfl.arguments import settings_of
from gcfl.errors import ConfigError


def add_verb(verbs: Any, common: argparse.ArgumentParser, kind: type[argparse.ArgumentParser]) -> None:
    flower = verbs.add_parser("flower", help="the same experiment on Flower: gcfl flower export", parents=[common])
    actions = flower.add_subparsers(dest="action", metavar="ACTION", parser_class=kind, required=True)
    export = actions.add_parser(
        "export",
        help="write a complete Flower app",
        usage="gcfl flower export [CONFIG.toml|RUN] [--key value ...] --to DIR",
        description="Write a Flower app that plays the experiment of a configuration, a run folder or flags: flwr run DIR runs it.",
        parents=[common],
        allow_abbrev=False,
    )
    export.add_argument("--to", type=Path, required=True, help="the folder of the app")


def run_verb(options: argparse.Namespace, rest: list[str]) -> None:
    try:
        from gcfl.flower.export import export
    except ImportError:
        raise ConfigError("Flower is not installed: pip install 'gcfl[flower]'") from None
    if rest and not rest[0].startswith("--") and (Path(rest[0]) / "config.toml").exists():
        rest = [str(Path(rest[0]) / "config.toml"), *rest[1:]]
    built, _, _ = settings_of(rest)
    for path in export(built, options.to):
        print(path)
