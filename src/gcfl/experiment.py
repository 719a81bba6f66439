"""A run as data: frozen, validated, strict TOML.

One file can serve many methods: options that the chosen method does not have, but another of the
same slot does, are left out of the resolved configuration, and so out of the run's identity.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import AfterValidator, Field, SerializeAsAny, ValidationError
from pydantic.fields import FieldInfo

from gcfl.base.errors import ConfigError, one_of
from gcfl.base.options import Count, Options, Size, at_least
from gcfl.data import DataOptions
from gcfl.methods import LocalRule, Method, Selector, ServerRule, TrainOptions, assemble
from gcfl.methods.catalogue import SECTIONS, WORDS, Slots, canonical, known_options, parse
from gcfl.models import ModelOptions


class EngineOptions(Options):
    """[engine]"""

    workers: Count = 1
    """client processes; changes the time, never the result"""
    vectorised: bool = False
    """train many clients at once: for small models; agrees with the loop to 1e-5"""
    device: str = "cpu"
    """cpu, or cuda, cuda:1, mps where torch has them"""
    checkpoint_every: Count = 1
    """rounds between two checkpoints"""
    evaluate_every: Count = 1
    """rounds between two evaluations on the test set"""


class Experiment(Options):
    """One run. `coreset`, `local` and `server` hold the options of the parts that the method's name
    asks for.
    """

    method: str = "gcfl"
    """words of `gcfl list methods`, joined by +"""
    seed: Annotated[int, AfterValidator(at_least(0))] = 0
    """the only source of randomness"""
    rounds: Count = 100
    """T, communication rounds"""
    cohort: Size = 1.0
    """clients per round: a share, or a count"""
    data: DataOptions = DataOptions()
    model: ModelOptions = ModelOptions()
    train: TrainOptions = TrainOptions()
    coreset: SerializeAsAny[Selector]
    local: SerializeAsAny[LocalRule]
    server: SerializeAsAny[ServerRule]
    engine: EngineOptions = EngineOptions()
    given: dict[Literal["data", "model", "parts", "files"], str] = Field(default={})
    """digests of what came from Python (data, model, parts of methods) or from one's own files"""

    def resolved(self) -> dict[str, Any]:
        """All settings as plain values, without those that are unset."""
        return {
            key: value for key, value in self.model_dump(exclude_none=True).items() if value != {}
        }

    def to_toml(self) -> str:
        return tomli_w.dumps(self.resolved())

    def identity(self) -> str:
        """A hash of everything that can change the result, and of nothing else."""
        config = self.resolved()
        config["engine"] = {
            key: value
            for key, value in config["engine"].items()
            if key not in ("workers", "checkpoint_every")
        }
        # Of files, what is in them counts (`given`), not where they lie.
        paths = [
            name
            for name in ("source", "owners", "noise_file")
            if Path(config["data"].get(name, "")).is_absolute()
        ]
        config["data"] = {
            name: value for name, value in config["data"].items() if name not in paths
        }
        text = json.dumps({"format": 1, **config}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def folder_name(self) -> str:
        noise = f"-noise{self.data.noise * 100:g}" if self.data.noise else ""
        source = re.sub(r"[^\w.+-]+", "_", Path(self.data.source).name)
        return f"{source}-{self.model.name}-{self.method}{noise}-seed{self.seed}-{self.identity()}"

    def assembled(self) -> Method:
        return assemble(
            self.method, {"select": self.coreset, "local": self.local, "server": self.server}
        )


# Everyday settings by their short names.
SHORT = {
    "method": "method",
    "data": "data.source",
    "model": "model.name",
    "rounds": "rounds",
    "clients": "data.clients",
    "noise": "data.noise",
    "budget": "coreset.budget",
    "seed": "seed",
    "workers": "engine.workers",
    "device": "engine.device",
    "lr": "train.lr",
    "epochs": "train.epochs",
}
_SECTIONS: dict[str, type[Options]] = {
    "data": DataOptions,
    "model": ModelOptions,
    "train": TrainOptions,
    "engine": EngineOptions,
}
_TOP = {
    name: field
    for name, field in Experiment.model_fields.items()
    if name not in _SECTIONS and name not in SECTIONS.values()
}


def every_setting() -> dict[str, FieldInfo]:
    """All settings of all rooms and parts, by dotted name."""
    found = {name: field for name, field in _TOP.items() if name != "given"}
    for section, options in _SECTIONS.items():
        found |= {f"{section}.{name}": field for name, field in options.model_fields.items()}
    slots = Slots().items()
    for slot, section in SECTIONS.items():
        for part in (
            slots[slot],
            *(getattr(word, slot) for word in WORDS.values() if getattr(word, slot)),
        ):
            for name, field in part.model_fields.items():
                found.setdefault(f"{section}.{name}", field)
    return found


def suggestion(name: str) -> str:
    """'; did you mean data.noise?': the same word in some section, else the nearest name."""
    names = [*every_setting(), *_SECTIONS, *SECTIONS.values()]
    leaf = name.rpartition(".")[2]
    same = [known for known in names if known.rpartition(".")[2] == leaf and known != name]
    near = same or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    near = near or [
        known
        for known in names
        if difflib.get_close_matches(leaf, [known.rpartition(".")[2]], cutoff=0.7)
    ]
    return f"; did you mean {near[0]}?" if near else "; gcfl list settings shows them all"


def build(
    settings: Mapping[str, Any], origin: Mapping[str, str] | None = None
) -> tuple[Experiment, list[str]]:
    """Nested settings to an experiment; also the dotted names of those that this method has no use
    for.

    `origin` says where a dotted key came from, for the messages ("in run.toml", "--budget").
    """
    where = _Where(origin or {})
    raw = {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in settings.items()
    }
    for key in raw:
        if key not in Experiment.model_fields:
            raise ConfigError(f"unknown setting {where(key)}{suggestion(key)}")
    for section in (*_SECTIONS, *SECTIONS.values()):
        if not isinstance(raw.setdefault(section, {}), dict):
            raise ConfigError(
                f"{section} must be a table of settings, got {raw[section]!r} {where(section)}"
            )
    method = raw.get("method", Experiment.model_fields["method"].default)
    if not isinstance(method, str):
        raise ConfigError(f"method must be text, got {method!r} {where('method')}")
    unused: list[str] = []
    parts: dict[str, Options] = {}
    slots = parse(method)
    raw["train"] = {**slots.local.prefers, **raw["train"]}
    for slot, part in slots.items().items():
        section = SECTIONS[slot]
        raw[section] = {**slots.presets.get(section, {}), **raw[section]}
        known = known_options(slot)
        mine = {
            key: value
            for key, value in raw[section].items()
            if key in part.model_fields or key not in known
        }
        unused += [f"{section}.{key}" for key in raw[section] if key not in mine]
        parts[section] = _validate(part, mine, section, where)
    rooms = {
        section: _validate(options, raw[section], section, where)
        for section, options in _SECTIONS.items()
    }
    top = {key: raw[key] for key in _TOP if key in raw} | {"method": canonical(method)}
    try:
        return Experiment(**top, **rooms, **parts), unused  # type: ignore[arg-type]
    except ValidationError as error:
        raise _sentence(error, "", where) from None


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


def dotted(settings: Mapping[str, Any]) -> list[str]:
    """The dotted names in nested settings."""
    names: list[str] = []
    for key, value in settings.items():
        names += (
            [f"{key}.{inner}" for inner in dotted(value)] if isinstance(value, Mapping) else [key]
        )
    return names


def assign(settings: dict[str, Any], name: str, value: Any) -> None:
    """settings["a"]["b"] = value for the name a.b."""
    *path, last = name.split(".")
    for step in path:
        inner = settings.setdefault(step, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{name} cannot be set: {step} is not a table of settings")
        settings = inner
    settings[last] = value


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"data": {"noise": 0.4}} to {"data.noise": 0.4}: the inverse of `assign`."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        found |= (
            flat(value, f"{prefix}{key}.")
            if isinstance(value, Mapping)
            else {f"{prefix}{key}": value}
        )
    return found


class _Where:
    """' (coreset.budget in run.toml)'."""

    def __init__(self, origin: Mapping[str, str]) -> None:
        self._origin = origin

    def __call__(self, name: str) -> str:
        came_from = self._origin.get(name, "")
        return (
            f"({came_from})"
            if came_from.startswith("--")
            else f"({name} {came_from})"
            if came_from
            else f"({name})"
        )


def _validate(options: type[Options], raw: dict[str, Any], section: str, where: _Where) -> Options:
    try:
        return options(**raw)
    except ValidationError as error:
        raise _sentence(error, f"{section}.", where) from None


_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list such as [64, 32]",
    "dict_type": "a table",
}


def _sentence(error: ValidationError, prefix: str, where: _Where) -> ConfigError:
    """The first thing that pydantic found, in one sentence."""
    found = error.errors()
    first = found[0]
    leaf = str(first["loc"][0])
    name = prefix + leaf
    if first["type"] == "extra_forbidden":
        return ConfigError(f"unknown setting {where(name)}{suggestion(name)}")
    same = [one for one in found if one["loc"][0] == leaf and one["type"] != "none_required"]
    text = first["msg"].removeprefix("Value error, ")
    if first["type"] == "literal_error":
        text = f"must be {first['ctx']['expected']}"
    elif first["type"] == "finite_number":
        text = "must be a finite number"
    elif all(one["type"] in _TYPES for one in same):
        text = f"must be {one_of(dict.fromkeys(_TYPES[one['type']] for one in same))}"
    given = repr(first["input"])
    given = given if len(given) <= 80 else f"{given[:77]}..."
    return ConfigError(f"{leaf} {text}, got {' '.join(given.split())} {where(name)}")
