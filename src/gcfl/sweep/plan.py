"""A sweep as data.

[experiment]            settings that all runs share
[sweep]                 "data.noise" = [0.0, 0.2, 0.4]: every combination of these lists is a run
zip = [{...}]           lists in one table go hand in hand
cases = [{...}]         tables of settings, each with a label: one line of the figure
[figure]                what to draw
[scale.small]           other values of the above for a smaller or larger set-up
[paper]                 what the paper reports
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from gcfl import experiment as config
from gcfl.base.errors import ConfigError, did_you_mean

SCALES = ("smoke", "small", "paper")
_SECTIONS = ("title", "what", "experiment", "sweep", "figure", "scale", "paper")
_SPECIAL = ("zip", "cases", "seed")
Settings = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One run: its settings by dotted name, what tells it from the others, and its seed."""

    settings: Settings
    differs: tuple[tuple[str, Any], ...]
    seed: int

    def experiment(self) -> config.Experiment:
        nested: dict[str, Any] = {}
        for name, value in {**self.settings, "seed": self.seed}.items():
            config.assign(nested, name, value)
        return config.build(nested)[0]

    @property
    def label(self) -> str:
        shown = ", ".join(
            str(value) if name in ("label", "method") else f"{name} {value}"
            for name, value in self.differs
        )
        return f"{shown or 'the run'}, seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """A sweep, expanded."""

    name: str
    title: str
    cells: list[Cell]
    figure: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)


def recipe_names() -> list[str]:
    """The recipes in the package, in the order of their files' names."""
    files = [entry.name for entry in resources.files("gcfl.sweep.recipes").iterdir()]
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def read_recipe(name: str) -> dict[str, Any]:
    """A recipe of the package, as it stands there."""
    return tomllib.loads(
        (resources.files("gcfl.sweep.recipes") / f"{name}.toml").read_text(encoding="utf-8")
    )


def read_plan(source: str, scale: str | None = None, seeds: int | None = None) -> Plan:
    """The sweep of a file, or of a recipe by its name."""
    path = Path(source)
    if source in recipe_names():  # even where a folder has its name
        raw, name, where = read_recipe(source), source, f"the recipe {source}"
        scale = scale or "small"
    elif path.suffix == ".toml" or path.exists():
        raw, name, where = config.read_toml(path), path.stem, str(path)
    else:
        raise ConfigError(
            f"{source!r} is neither a file nor a recipe{did_you_mean(source, recipe_names())}"
        )
    unknown = next((key for key in raw if key not in _SECTIONS), None)
    if unknown is not None:
        raise ConfigError(
            f"unknown section {unknown!r} in {where}{did_you_mean(unknown, _SECTIONS)}"
        )
    if scale is not None:
        raw = _scaled(raw, scale, where)
    return Plan(
        name,
        raw.get("title", name),
        expand(raw, seeds, where),
        raw.get("figure", {}),
        raw.get("paper", {}),
    )


def _scaled(raw: Mapping[str, Any], scale: str, where: str) -> dict[str, Any]:
    """The sweep with a scale's values over its own. A list or a value replaces another; null-like
    false drops a sweep's list.
    """
    scales = raw.get("scale", {})
    if scale not in scales and not (scale == "paper" and where.startswith("the recipe")):
        raise ConfigError(f"{where} has no scale {scale!r}; it has {', '.join(scales) or 'none'}")
    own = scales.get(scale, {})
    merged = dict(raw)
    for section in ("experiment", "sweep", "figure"):
        before, after = raw.get(section, {}), own.get(section, {})
        if section == "experiment":
            flat = {**config.flat(before), **config.flat(after)}
            nested: dict[str, Any] = {}
            for name, value in flat.items():
                config.assign(nested, name, value)
            merged[section] = nested
        else:
            merged[section] = {
                key: value for key, value in {**before, **after}.items() if value is not False
            }
    return merged


def expand(raw: Mapping[str, Any], seeds: int | None, where: str) -> list[Cell]:
    """Every run of the sweep, each checked, before any starts."""
    shared = config.flat(raw.get("experiment", {}))
    sweep = dict(raw.get("sweep", {}))
    axes: list[list[Settings]] = []
    # of lists that go hand in hand, the first tells its runs apart, where its values differ
    follow: set[str] = set()
    for table in _tables(sweep.get("zip", []), "zip", where):
        lists = {name: _values(name, value, where) for name, value in config.flat(table).items()}
        if len({len(values) for values in lists.values()}) > 1:
            raise ConfigError(
                f"the lists of a zip in {where} must be equally long: {', '.join(lists)}"
            )
        axes.append(
            [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        )
        first = next(iter(lists.values()), [])
        if len(set(map(repr, first))) == len(first):
            follow |= set(list(lists)[1:])
    for name, value in config.flat(
        {key: value for key, value in sweep.items() if key not in _SPECIAL}
    ).items():
        axes.append([{name: one} for one in _values(name, value, where)])
    if cases := list(_tables(sweep.get("cases", []), "cases", where)):
        axes.append([config.flat(case) for case in cases])
    numbers = (
        list(range(seeds))
        if seeds is not None
        else _values("seed", sweep.get("seed", [shared.pop("seed", 0)]), where)
    )
    shared.pop("seed", None)
    cells = []
    for combination in itertools.product(*axes):
        own: Settings = {}
        for part in combination:
            own |= part
        label = own.pop("label", None)
        shown = {name: value for name, value in own.items() if name not in follow}
        differs = {
            name: value
            for name, value in shown.items()
            if label is None or not any(name in case for case in cases)
        }
        if label is not None:
            differs = {"label": label, **differs}
        cells += [Cell({**shared, **own}, tuple(differs.items()), seed) for seed in numbers]
    if not cells:
        raise ConfigError(f"{where} has no run: a list of [sweep] is empty")
    for cell in cells:
        try:
            cell.experiment()
        except ConfigError as error:
            raise ConfigError(f"{where}, {cell.label}: {error}") from None
    return cells


def _tables(value: Any, what: str, where: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise ConfigError(f"sweep.{what} in {where} must be a list of tables")
    return value


def _values(name: str, value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(f"{name} in [sweep] of {where} must be a list of values, got {value!r}")
    if not value:
        raise ConfigError(f"{name} in [sweep] of {where} is an empty list")
    return value
