"""`gcfl flower`: an experiment as a Flower app."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import Any

from gcfl.base.errors import ConfigError
from gcfl.cli.settings import add_group, add_verb, settings_of

_NAME = r"\w[\w.-]*"  # no dash first: it would be an option of some program
_TAKEN = ("superlink", "server", "ca")  # logs, keys and certificates of these names are there


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    about = "the same on Flower, across machines: gcfl flower export|up|down"
    actions = add_group(verbs, common, "flower", about)
    export = add_verb(
        actions,
        common,
        "export",
        _export,
        "write a complete Flower app",
        usage="gcfl flower export [CONFIG.toml|RUN] DIR [--key value ...]",
        description="Write a Flower app that plays the experiment of a configuration, a run\n"
        "folder or flags: flwr run DIR runs it.",
    )
    export.set_defaults(takes_settings=True)
    export.add_argument("--to", type=Path, help="the folder of the app, instead of DIR")
    about = "a,b,c: sites with their own data; --data is then the server's own clean samples"
    export.add_argument("--sites", help=about)
    about = "start a SuperLink and SuperNodes here, with TLS and node authentication"
    up = add_verb(actions, common, "up", _up, about)
    up.add_argument("--nodes", type=int, default=3, help="how many SuperNodes (3)")
    about = "a SuperNode for a site with its own data; once for each"
    up.add_argument("--site", action="append", metavar="NAME=PATH", help=about)
    down = add_verb(actions, common, "down", _down, "end what up started")
    for one in (up, down):
        place = Path("federation")
        one.add_argument("--in", dest="place", type=Path, default=place, help="its folder")


def _installed() -> None:
    try:
        import gcfl.flower  # noqa: F401
    except ImportError:
        raise ConfigError("Flower is not installed: pip install 'gcfl[flower]'") from None


def _up(options: argparse.Namespace, _: list[str]) -> None:
    _installed()
    from gcfl.flower import local

    if options.nodes < 1:
        raise ConfigError(f"--nodes must be at least 1, got {options.nodes}")
    started = local.up(options.place, options.nodes, _sites(options.site or []))
    print(
        f"a SuperLink on 127.0.0.1:{started['port']} and {len(started['nodes'])} SuperNodes, "
        f"logs in {options.place}"
    )
    home = shlex.quote(str(options.place.absolute() / "home"))
    print(
        f"run an app on it: FLWR_HOME={home} flwr run app {local.NAME} --stream -c "
        "\"out='$PWD/runs'\""
    )
    print(f"end it:           gcfl flower down --in {shlex.quote(str(options.place))}")


def _down(options: argparse.Namespace, _: list[str]) -> None:
    _installed()
    from gcfl.flower import local

    print(f"ended: {', '.join(local.down(options.place))}")


def _export(options: argparse.Namespace, rest: list[str]) -> None:
    _installed()
    from gcfl.flower import export

    rest, folder = _folder(rest, options.to)
    if rest and not rest[0].startswith("--") and (Path(rest[0]) / "config.toml").exists():
        rest = [str(Path(rest[0]) / "config.toml"), *rest[1:]]
    built, _ = settings_of(rest)
    sites = tuple(_names(options.sites)) if options.sites is not None else ()
    for path in export(built, folder, sites):
        print(path)


def _folder(rest: list[str], to: Path | None) -> tuple[list[str], Path]:
    """The words without the app's folder, and that folder: --to, or the last word before flags."""
    if to is not None:
        return rest, to
    count = next((place for place, word in enumerate(rest) if word.startswith("--")), len(rest))
    last = Path(rest[count - 1]) if count else None
    if last is None or (count == 1 and (last.is_file() or (last / "config.toml").exists())):
        raise ConfigError("say where the app shall go: gcfl flower export [CONFIG.toml|RUN] DIR")
    return rest[: count - 1] + rest[count:], last


def _names(sites: str) -> list[str]:
    names = [name.strip() for name in sites.split(",")]
    if not all(re.fullmatch(_NAME, name) for name in names):
        raise ConfigError(
            "--sites must be names of letters, digits, dots and dashes with commas between them, "
            f"got {sites!r}"
        )
    return names


def _sites(texts: list[str]) -> dict[str, Path]:
    sites: dict[str, Path] = {}
    for text in texts:
        name, _, place = text.partition("=")
        if not (re.fullmatch(_NAME, name) and place):
            raise ConfigError(
                "--site must be NAME=PATH, with a name of letters, digits, dots and dashes, got "
                f"{text!r}"
            )
        if name in (*sites, *_TAKEN):
            raise ConfigError(f"--site {name} cannot be had: the name is taken")
        sites[name] = Path(place).expanduser()
    return sites
