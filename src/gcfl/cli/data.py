"""`gcfl data`: what is there, fetch what is not, look at a federation before training on it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from gcfl.cli.settings import add_group, add_verb, settings_of

_DESCRIBE = """\
Build the federation of a configuration and look at it: who holds what, how much of it is noisy.
Writes clients.png (classes by clients), noise.png and samples.png. Takes the same settings as
gcfl run, for example:
  gcfl data describe --data cifar10 --noise 0.4 --data.noise_kind attribute
"""

_SCHEMA = """\
Write what each column of a table holds: numbers, dates, true or false, texts with the values that
stand in at least 5 rows; medians and most frequent values that fill gaps. All of it travels with
every model that is trained by it, so look at the file, and change it where it should say less.
For example:
  gcfl data schema public.csv --label diagnosis -o schema.json
  gcfl run --data patients.csv --label diagnosis --data.schema_file schema.json
"""


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    about = "list, fetch or look at data: gcfl data list|fetch|describe|schema"
    actions = add_group(verbs, common, "data", about)
    add_verb(actions, common, "list", _list, "which sets are there, and which are missing")
    fetch = add_verb(actions, common, "fetch", _fetch, "download sets from their publishers")
    fetch.add_argument("names", metavar="NAME", nargs="+")
    about = "though it is there; what is there is set aside as NAME.before"
    fetch.add_argument("--again", action="store_true", help=about)
    describe = add_verb(
        actions,
        common,
        "describe",
        _describe,
        "who holds what, and how noisy it is",
        usage="gcfl data describe [CONFIG.toml] [--key value ...] [--out DIR]",
        description=_DESCRIBE,
    )
    describe.set_defaults(takes_settings=True)
    out = "where the pictures go (data-look)"
    describe.add_argument("--out", type=Path, default=Path("data-look"), help=out)
    schema = add_verb(
        actions,
        common,
        "schema",
        _schema,
        "what each column of a table holds, as a file for data.schema_file",
        usage="gcfl data schema TABLE [--label COLUMN] [--key value ...] [-o schema.json]",
        description=_SCHEMA,
    )
    schema.set_defaults(takes_settings=True)
    out = "the JSON file to write (schema.json)"
    schema.add_argument("-o", "--out", type=Path, default=Path("schema.json"), help=out)


def _list(_: argparse.Namespace, __: list[str]) -> None:
    from gcfl.data import SOURCES
    from gcfl.data.fetch import BY_HAND, PUBLISHED
    from gcfl.data.source import data_home
    from gcfl.results.styles import human

    print(f"data home: {data_home()} (GCFL_DATA_HOME changes it)")
    for name, named in SOURCES.items():
        if not named.places:
            state = "there    comes with gcfl"
        elif (path := named.find()) is not None:
            state = f"there    {path}"
        elif name in BY_HAND:
            state = f"missing  gcfl data fetch {name} says how to make it"
        else:
            size = human(sum(remote.size for remote in PUBLISHED[name]))
            state = f"missing  gcfl data fetch {name} ({size})"
        print(f"{name:<14} {state}")
    cache = data_home() / "cache"
    kept = sum(file.stat().st_size for file in cache.iterdir()) if cache.is_dir() else 0
    if kept:
        print(f"what was made from data is kept in {cache}: {human(kept)}; safe to delete")


def _fetch(options: argparse.Namespace, _: list[str]) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from gcfl.data import SOURCES
    from gcfl.data.fetch import fetch

    console = Console(file=sys.stderr)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    for name in options.names:
        with Progress(
            *columns, console=console, disable=options.quiet or not console.is_terminal
        ) as bar:
            tasks: dict[str, Any] = {}

            def on_bytes(
                file: str, done: int, total: int, bar: Progress = bar, tasks: dict[str, Any] = tasks
            ) -> None:
                if file not in tasks:
                    tasks[file] = bar.add_task(file, total=total)
                bar.update(tasks[file], completed=done)

            where = fetch(name, on_bytes, again=options.again)
        print(f"{name}: {where if SOURCES[name].places else 'comes with gcfl'}")


def _describe(options: argparse.Namespace, rest: list[str]) -> None:
    from rich.console import Console

    from gcfl.report.describe import describe
    from gcfl.report.progress import Progress

    built, _ = settings_of(rest)
    with Progress(options.quiet):
        for file in describe(built, options.out, Console(highlight=False, quiet=options.quiet)):
            print(file)


def _schema(options: argparse.Namespace, rest: list[str]) -> None:
    from gcfl.base.files import write_atomic
    from gcfl.data import read, schema_of

    table = [word for word in rest[:1] if not word.startswith("--") and not word.endswith(".toml")]
    built, _ = settings_of([*(f"--data={word}" for word in table), *rest[len(table) :]])
    found = schema_of(read(built.data, built.seed), built.data)
    write_atomic(options.out, found.to_json().encode())
    if not options.quiet:
        print(f"{options.out}: {len(found.columns)} columns, {found.width} features")
