"""Settings as nested tables: reading them, naming them by dots, and saying what is wrong with one.

{"data": {"noise": 0.4}} is called data.noise.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from gcfl.base.errors import ConfigError, one_of
from gcfl.base.options import Options

OptionsT = TypeVar("OptionsT", bound=Options)
_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list such as [64, 32]",
    "dict_type": "a table",
}


def read_toml(path: Path) -> dict[str, Any]:
    """The settings of a file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; a configuration is a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"data": {"noise": 0.4}} to {"data.noise": 0.4}."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        table = isinstance(value, Mapping)
        found |= flat(value, f"{prefix}{key}.") if table else {f"{prefix}{key}": value}
    return found


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flat`."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        assign(found, name, value)
    return found


def assign(settings: dict[str, Any], name: str, value: Any) -> None:
    """settings["a"]["b"] = value for the name a.b."""
    *path, last = name.split(".")
    for step in path:
        inner = settings.setdefault(step, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{name} cannot be set: {step} is not a table of settings")
        settings = inner
    settings[last] = value


def renamed(settings: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Nested settings with old dotted names replaced by those of today; today's win over old."""
    found = {key: dict(one) if isinstance(one, Mapping) else one for key, one in settings.items()}
    for old, new in names.items():
        section, _, leaf = old.rpartition(".")
        table = found.get(section) if section else found
        if not isinstance(table, dict) or leaf not in table:
            continue
        value = table.pop(leaf)
        if new not in flat(found):
            assign(found, new, value)
    return found


class Where:
    """Where a setting came from, for a message: ' (coreset.budget in run.toml)', ' (--budget)'."""

    def __init__(self, origin: Mapping[str, str]) -> None:
        self._origin = origin

    def __call__(self, name: str) -> str:
        came_from = self._origin.get(name, "")
        if came_from.startswith("--"):
            return f" ({came_from})"
        return f" ({name} {came_from})" if came_from else f" ({name})"


def checked(
    kind: type[OptionsT],
    values: Mapping[str, Any],
    section: str = "",
    where: Callable[[str], str] = lambda _: "",
    suggestion: Callable[[str], str] = lambda _: "",
) -> OptionsT:
    """Options of that kind, or one sentence about the first value that is wrong.

    section: what the names stand under. suggestion: what to say of an unknown one.
    """
    try:
        return kind(**values)
    except ValidationError as error:
        raise _sentence(error, f"{section}." if section else "", where, suggestion) from None


def _sentence(
    error: ValidationError,
    prefix: str,
    where: Callable[[str], str],
    suggestion: Callable[[str], str],
) -> ConfigError:
    found = error.errors()
    first = found[0]
    leaf = str(first["loc"][0])
    name = prefix + leaf
    if first["type"] == "extra_forbidden":
        return ConfigError(f"unknown setting{where(name)}{suggestion(name)}")
    same = [one for one in found if one["loc"][0] == leaf and one["type"] != "none_required"]
    text = first["msg"].removeprefix("Value error, ")
    if first["type"] == "literal_error":
        text = f"must be {first['ctx']['expected']}"
    elif first["type"] == "finite_number":
        text = "must be a finite number"
    elif all(one["type"] in _TYPES for one in same):
        text = f"must be {one_of(_distinct(_TYPES[one['type']] for one in same))}"
    given = repr(first["input"])
    given = given if len(given) <= 80 else f"{given[:77]}..."
    return ConfigError(f"{leaf} {text}, got {' '.join(given.split())}{where(name)}")


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
