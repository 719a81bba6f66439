"""What verbs share: how one is added, and [CONFIG.toml] [--name value ...]."""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcfl.base.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from gcfl.api.candidates import Wanted
    from gcfl.experiment import Experiment

# Numbers as people write them, which TOML does not take: .2 and 5.
_NUMBER = re.compile(r"[+-]?(\d+\.|\.\d+)([eE][+-]?\d+)?")
_FLAGS = ("out", "fresh", "quiet", "debug", "seeds", "jobs")


def add_verb(
    verbs: Any,
    common: argparse.ArgumentParser,
    name: str,
    call: Callable[[argparse.Namespace, list[str]], None],
    help: str,
    **more: Any,
) -> argparse.ArgumentParser:
    """A verb that calls `call`; a description is printed as it stands."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=help,
        parents=[common],
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **more,
    )
    parser.set_defaults(call=call)
    return parser


def add_group(verbs: Any, common: argparse.ArgumentParser, name: str, help: str) -> Any:
    """A verb that only leads to others: what to add those to."""
    group = verbs.add_parser(name, help=help, parents=[common])
    kind = type(common)
    return group.add_subparsers(dest="action", metavar="ACTION", parser_class=kind, required=True)


def overrides(rest: list[str]) -> tuple[list[str], dict[str, tuple[str, Any]]]:
    """What stands alone, and the settings: ['my.toml', '--train.lr', '0.1'] to (['my.toml'],
    {'train.lr': ('--train.lr', 0.1)}).

    Values are read as in TOML, or are numbers such as .2, else text.
    """
    from gcfl.experiment import RENAMED, SHORT, every_setting, suggestion

    known = every_setting()
    alone: list[str] = []
    found: dict[str, tuple[str, Any]] = {}
    words = iter(rest)
    for word in words:
        if not word.startswith("--"):
            alone.append(word)
            continue
        flag, has_value, text = word.partition("=")
        name = flag[2:].replace("-", "_")
        name = SHORT.get(name, name)
        name = RENAMED.get(name, name)
        if name not in known:
            short = did_you_mean(name, [*SHORT, *_FLAGS])
            near = short if "did you mean" in short and "." not in name else suggestion(name)
            near = near.replace("did you mean ", "did you mean --")
            raise ConfigError(f"unknown option {flag}{near}")
        if not has_value:
            following = next(words, None)
            if following is None or (following.startswith("--") and not following[2:3].isdigit()):
                raise ConfigError(f"{flag} needs a value")
            text = following
        if name in found:
            raise ConfigError(f"{flag} is given twice")
        found[name] = (flag, _value(text))
    return alone, found


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return float(text) if _NUMBER.fullmatch(text) else text


def wanted_of(rest: list[str]) -> Wanted:
    """[CONFIG.toml] [--name value ...], read but not checked yet."""
    from gcfl.api.candidates import Wanted

    files, explicit = overrides(rest)
    if len(files) > 1:
        raise ConfigError(
            f"unexpected argument {files[1]!r}: one configuration file, and settings as --name "
            "value"
        )
    values = {name: value for name, (_, value) in explicit.items()}
    flags = {name: flag for name, (flag, _) in explicit.items()}
    return Wanted(Path(files[0]) if files else None, values, flags)


def settings_of(rest: list[str]) -> tuple[Experiment, list[str]]:
    """The experiment of [CONFIG.toml] [--name value ...], and which flags its method ignores."""
    from gcfl.experiment import compose

    wanted = wanted_of(rest)
    return compose(wanted.file, wanted.explicit, wanted.flags)
