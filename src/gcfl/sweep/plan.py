"""A sweep as data.

[experiment]            settings that all runs share
[sweep]                 "data.noise" = [0.0, 0.2, 0.4]: every combination of these lists is a run
zip = [{...}]           lists in one table go hand in hand
cases = [{...}]         tables of settings, each with a label: one line of the figure
scenes = [{...}]        tables of settings, each with a scene: one problem, for panels = "scene"
                        "unset" as a value takes back what is said before: zip, lists, scenes, cases
[figure]                what to draw
[scale.small]           other values of the above for a smaller or larger set-up
[paper]                 what the paper reports
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from gcfl import experiment as config
from gcfl.base.errors import ConfigError, did_you_mean
from gcfl.base.options import flat, nested, read_toml
from gcfl.report.asked import asked
from gcfl.results.groups import settings_text

SCALES = ("smoke", "small", "paper")
_SECTIONS = ("title", "what", "experiment", "sweep", "figure", "scale", "paper")
_NAMED = {"scenes": "scene", "cases": "label"}  # lists of tables, and what names a table
_SPECIAL = ("zip", "seed", *_NAMED)
_UNSET = "unset"
_MOST_CELLS = 100_000
Settings = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One run: its settings by dotted name, what tells it from the others, and its seed."""

    settings: Settings
    differs: tuple[tuple[str, Any], ...]
    seed: int

    def experiment(self) -> config.Experiment:
        return config.build(nested({**self.settings, "seed": self.seed}))[0]

    @property
    def label(self) -> str:
        return f"{settings_text(dict(self.differs)) or 'the run'}, seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """A sweep, expanded."""

    name: str
    title: str
    cells: list[Cell]
    figure: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    scale: str | None = None

    @property
    def folder(self) -> Path:
        """Where its runs, tables and figure go, where nobody says otherwise."""
        return Path("sweeps") / "-".join(filter(None, (self.name, self.scale)))


def recipe_names(of_paper: bool = True) -> list[str]:
    """The recipes in the package, sorted: the paper's experiments, or all there are."""
    files = [entry.name for entry in (resources.files("gcfl.sweep") / "recipes").iterdir()]
    names = sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))
    return [name for name in names if not of_paper or "paper" in read_recipe(name)]


def read_recipe(name: str) -> dict[str, Any]:
    """A recipe of the package, as it stands there."""
    file = resources.files("gcfl.sweep") / "recipes" / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def read_plan(
    source: str,
    scale: str | None = None,
    seeds: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Plan:
    """The sweep of a file, or of a recipe by its name. changes: settings for all runs, by dotted
    name, over those of the file.
    """
    path = Path(source)
    if source in recipe_names(of_paper=False):  # even where a folder has its name
        raw, name, where = read_recipe(source), source, f"the recipe {source}"
        scale = scale or ("small" if "small" in raw.get("scale", {}) else None)
    elif path.suffix == ".toml" or path.exists():
        raw, name, where = read_toml(path), path.stem, str(path)
    else:
        raise ConfigError(
            f"{source!r} is neither a file nor a recipe{did_you_mean(source, recipe_names())}"
        )
    return checked_plan(raw, name, where, scale, seeds, changes)


def checked_plan(
    raw: Mapping[str, Any],
    name: str,
    where: str,
    scale: str | None = None,
    seeds: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Plan:
    """The sweep that a file or a dict holds. where: what to call it in messages."""
    unknown = next((key for key in raw if key not in _SECTIONS), None)
    if unknown is not None:
        raise ConfigError(
            f"unknown section {unknown!r} in {where}{did_you_mean(unknown, _SECTIONS)}"
        )
    if not raw.get("experiment") and not raw.get("sweep"):
        raise ConfigError(f"{where} has neither [experiment] nor [sweep]: nothing to run")
    if scale is not None:
        raw = _scaled(raw, scale, where)
    cells, figure = expand(raw, seeds, where, changes), raw.get("figure", {})
    asked(figure, [dict(cell.differs) for cell in cells])
    return Plan(name, raw.get("title", name), cells, figure, raw.get("paper", {}), scale)


def _scaled(raw: Mapping[str, Any], scale: str, where: str) -> dict[str, Any]:
    """The sweep with a scale's values over those of the file. A list or a value replaces another;
    false drops a sweep's list.
    """
    scales = raw.get("scale", {})
    if scale not in scales and not (scale == "paper" and where.startswith("the recipe")):
        raise ConfigError(f"{where} has no scale {scale!r}; it has {', '.join(scales) or 'none'}")
    over = scales.get(scale, {})
    settings = {**flat(raw.get("experiment", {})), **flat(over.get("experiment", {}))}
    merged = {**raw, "experiment": nested(settings)}
    for section in ("sweep", "figure"):
        both = {**raw.get(section, {}), **over.get(section, {})}
        merged[section] = {key: value for key, value in both.items() if value is not False}
    return merged


def expand(
    raw: Mapping[str, Any], seeds: int | None, where: str, changes: Mapping[str, Any] | None = None
) -> list[Cell]:
    """Every run of the sweep, each checked, before any starts."""
    shared = flat(raw.get("experiment", {}))
    sweep = dict(raw.get("sweep", {}))
    axes: list[list[Settings]] = []
    # of lists that go hand in hand, the first tells its runs apart, where its values differ
    follow: set[str] = set()
    for table in _tables(sweep.get("zip", []), "zip", where):
        lists = {name: _values(name, value, where) for name, value in flat(table).items()}
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
    for name, value in flat(
        {key: value for key, value in sweep.items() if key not in _SPECIAL}
    ).items():
        axes.append([{name: one} for one in _values(name, value, where)])
    inside: dict[str, set[str]] = {}  # by what names a table: the settings of such tables
    for what, name in _NAMED.items():
        if tables := [flat(table) for table in _tables(sweep.get(what, []), what, where)]:
            axes.append(tables)
            inside[name] = {key for table in tables for key in table}
    numbers = (
        list(range(seeds))
        if seeds is not None
        else _values("seed", sweep.get("seed", [shared.pop("seed", 0)]), where)
    )
    shared.pop("seed", None)
    count = math.prod(map(len, axes)) * len(numbers)
    if count > _MOST_CELLS:
        raise ConfigError(f"{where} asks for {count:,} runs; a sweep has {_MOST_CELLS:,} at most")
    cells = []
    for combination in itertools.product(*axes):
        chosen: Settings = {}
        for part in combination:
            chosen |= part
        named = {name: chosen.pop(name) for name in inside if name in chosen}
        hidden = follow.union(*(inside[name] for name in named))
        differs = named | {name: value for name, value in chosen.items() if name not in hidden}
        settings = {**shared, **chosen, **(changes or {})}
        settings = {name: value for name, value in settings.items() if value != _UNSET}
        cells += [Cell(settings, tuple(differs.items()), seed) for seed in numbers]
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
