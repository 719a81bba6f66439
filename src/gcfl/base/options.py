"""Settings: strict groups of options with limits that read as sentences, and nested tables of them.

Each room declares its own options next to the code that uses them. In tables,
{"data": {"noise": 0.4}} is called data.noise.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from gcfl.base.data_types import FloatArray, IntArray
from gcfl.base.errors import ConfigError, one_of


class Options(BaseModel):
    """Settings of one room."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )


Check = Callable[..., Any]


def allows(text: str) -> Callable[[Check], Check]:
    """A validator that says what it allows, for `gcfl list settings` and the docs."""

    def mark(check: Check) -> Check:
        check.allows = text  # type: ignore[attr-defined]
        return check

    return mark


def within(
    low: float, high: float, *, low_open: bool = False, high_open: bool = False
) -> Callable[[Any], Any]:
    """A validator for an interval; infinite ends are open by nature."""
    shown_high = "inf)" if math.isinf(high) else f"{high:.10g}{')' if high_open else ']'}"
    text = f"{'(' if low_open else '['}{low:g}, {shown_high}"

    def check(value: Any) -> Any:
        # Written so that NaN fails every comparison.
        above = value > low if low_open else value >= low
        below = value < high if high_open or math.isinf(high) else value <= high
        if not (above and below):
            raise ValueError(f"must be in {text}")
        return value

    return allows(f"in {text}")(check)


LARGEST = 2**31 - 1


def at_least(low: int) -> Callable[[Any], Any]:
    """A validator for whole numbers that also keeps out what no machine can count."""

    def check(value: Any) -> Any:
        if value < low:
            raise ValueError(f"must be at least {low}")
        if value > LARGEST:
            raise ValueError(f"must be at most {LARGEST}")
        return value

    return allows(f"at least {low}")(check)


@allows("a share in (0, 1] or a count")
def _size(value: int | float) -> int | float:
    if isinstance(value, bool) or not (value >= 1 if isinstance(value, int) else 0 < value <= 1):
        raise ValueError("must be a share in (0, 1] or a whole count of at least 1")
    return value


PositiveShare = Annotated[float, AfterValidator(within(0, 1, low_open=True))]
Positive = Annotated[float, AfterValidator(within(0, math.inf, low_open=True))]
NonNegative = Annotated[float, AfterValidator(within(0, math.inf))]
Count = Annotated[int, AfterValidator(at_least(1))]
Size = Annotated[int | float, AfterValidator(_size)]


def resolve_size(size: int | float, total: int) -> int:
    """A whole number is a count; one with a point is a share of `total`, rounded, at least 1."""
    return size if isinstance(size, int) else max(1, round(size * total))


def largest_remainder(shares: FloatArray, total: int) -> IntArray:
    """Whole counts with sum `total`, each within one of shares * total; ties go to the first."""
    exact = shares * total
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - counts), kind="stable")
    missing = total - int(counts.sum())
    counts[order[:missing]] += 1
    return counts


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
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        flat(found)  # tables in tables in tables, deeper than anything can walk
        return found
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; a configuration is a TOML file") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply for a configuration") from None
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
