"""A run as data: frozen, validated, strict TOML.

One file can serve many methods: options that the chosen method does not have, but another of the
same slot does, are left out of the resolved configuration, and so out of the run's identity.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import AfterValidator, Field, SerializeAsAny
from pydantic.fields import FieldInfo

from gcfl.base.errors import ConfigError
from gcfl.base.options import (
    Count,
    Options,
    Size,
    Where,
    assign,
    at_least,
    checked,
    flat,
    nested,
    read_toml,
    renamed,
)
from gcfl.data import DataOptions
from gcfl.methods import (
    SECTIONS,
    AuditOptions,
    CleanOptions,
    EngineOptions,
    LabelNoise,
    LocalRule,
    Method,
    PrivacyOptions,
    SelectionRule,
    ServerRule,
    TrainOptions,
    assemble,
    canonical,
    known_options,
    parse,
    parts_of,
)
from gcfl.models import ModelOptions


class Experiment(Options):
    """One run. `coreset`, `local` and `server` hold the options of the method's parts."""

    method: str = "robust"
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
    coreset: SerializeAsAny[SelectionRule]
    local: SerializeAsAny[LocalRule]
    server: SerializeAsAny[ServerRule]
    clean: CleanOptions = CleanOptions()
    labels: LabelNoise = LabelNoise()
    audit: AuditOptions = AuditOptions()
    privacy: PrivacyOptions = PrivacyOptions()
    engine: EngineOptions = EngineOptions()
    given: dict[Literal["data", "model", "parts", "files", "code"], str] = Field(default={})
    """digests of what came from Python (data, model, parts) or from own files (files, code)"""

    def resolved(self) -> dict[str, Any]:
        """All settings as plain values, without those that are unset."""
        dumped = self.model_dump(exclude_none=True)
        return {key: value for key, value in dumped.items() if value != {}}

    def to_toml(self) -> str:
        settings = self.resolved()
        presets = parse(self.method, _private(settings.get("privacy", {}))).presets
        for section, values in presets.items():
            lost = [name for name in values if getattr(getattr(self, section), name, "") is None]
            settings[section] = settings.get(section, {}) | dict.fromkeys(lost, UNSET)
        return tomli_w.dumps(settings)

    def identity(self) -> str:
        """A hash of everything that can change the result, and of nothing else.

        Newer settings at their default stay out of it, and renamed ones count by their first name:
        so a run keeps its name while the package grows.
        """
        settings = {_FIRST_NAMES.get(name, name): v for name, v in flat(self.resolved()).items()}
        for name in (*NEUTRAL, *self._at_new_defaults()):
            settings.pop(name, None)
        # Of files, what is in them counts (`given`), not where they lie.
        for name in PATHS:
            if Path(str(settings.get(name, ""))).is_absolute():
                del settings[name]
        text = json.dumps({"format": 1, **nested(settings)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def _at_new_defaults(self) -> Iterator[str]:
        """Our settings newer than the first format and at their default, or not in use."""
        for section in type(self).model_fields:
            options = getattr(self, section)
            if not type(options).__module__.startswith("gcfl."):
                continue
            idle = section == "labels" and self.assembled().labels is None
            for leaf, field in type(options).model_fields.items():
                name = f"{section}.{leaf}"
                newer = _FIRST_NAMES.get(name, name) not in _FIRST_FORMAT
                if idle or (newer and getattr(options, leaf) == field.default):
                    yield name

    def folder_name(self) -> str:
        noise = f"-noise{self.data.noise * 100:g}" if self.data.noise else ""
        named = self.data.source, self.model.name
        source, model = (re.sub(r"[^\w.+-]+", "_", Path(name).name) for name in named)
        return f"{source}-{model}-{self.method}{noise}-seed{self.seed}-{self.identity()}"

    def assembled(self) -> Method:
        parts = {"select": self.coreset, "local": self.local, "server": self.server}
        judged = self.train.loss == "corrected" or self.coreset.judges
        return assemble(self.method, parts, self.labels if judged else None)


# They change the time that a run takes or what is done after it, never its result (engine.linear:
# by rounding, as another processor does).
_AUDIT = (f"audit.{name}" for name in AuditOptions.model_fields)
NEUTRAL = ("engine.workers", "engine.checkpoint_every", "engine.linear", *_AUDIT)
# Settings that name files.
_NAMED = "source", "owners", "noise_file", "labels", "schema_file", "validation", "test"
PATHS = (*(f"data.{name}" for name in _NAMED), "model.name", "model.weights")
IN_FILES = ("files", "code")  # digests of what is read again, and need not be given again
# What a run was named by in the first format, by section; all else is newer.
_FIRST = {
    "": "cohort method rounds seed",
    "coreset": (
        "allow_single budget every nonnegative points_per_step ridge schedule score split "
        "tolerance variant weighted"
    ),
    "data": (
        "alpha classes_per_client clients corruptions group image_size label min_size noise "
        "noise_file noise_kind noise_rates noise_spread normalise owners partition samples "
        "severity source test test_noise validation validation_noise"
    ),
    "engine": "checkpoint_every device evaluate_every vectorised workers",
    "local": "mu temperature",
    "model": "buffers head hidden last_relu name projection",
    "server": (
        "beta1 beta2 fine_tune fine_tune_epochs fine_tune_lr hold_out keep momentum patience "
        "rate takes_part tau warm_start weighting"
    ),
    "train": (
        "augment batch clip epochs gce_q loss lr momentum sce_alpha sce_beta schedule smoothing "
        "steps weight_decay"
    ),
}
# Settings that go by another name than they did, old -> new, wherever settings are read.
RENAMED = {
    f"server.{name}": f"clean.{name}"
    for name in _FIRST["server"].split()
    if name in CleanOptions.model_fields
}
_FIRST_NAMES = {new: old for old, new in RENAMED.items()}
_FIRST_FORMAT = {
    f"{section}.{leaf}" if section else leaf
    for section, leaves in _FIRST.items()
    for leaf in leaves.split()
}
_OF_DATA = "clients noise label group labels columns drop text image_size"
# Everyday settings by their short names.
SHORT = {
    "method": "method",
    "data": "data.source",
    "model": "model.name",
    "rounds": "rounds",
    **{name: f"data.{name}" for name in _OF_DATA.split()},
    "budget": "coreset.budget",
    "seed": "seed",
    **{name: f"engine.{name}" for name in ("workers", "device")},
    "lr": "train.lr",
    "epochs": "train.epochs",
}
_ROOMS: dict[str, type[Options]] = {
    name: type(field.default)
    for name, field in Experiment.model_fields.items()
    if isinstance(field.default, Options)
}
_TOP = {
    name: field
    for name, field in Experiment.model_fields.items()
    if name not in _ROOMS and name not in SECTIONS.values()
}


# In files and flags: no value, where a method's preset has one. (TOML has no null.)
UNSET = "unset"


def _private(settings: Mapping[str, Any]) -> list[str]:
    """Which budgets of [privacy] are set."""
    return [name for name in settings if name.endswith("_epsilon")]


def every_setting() -> dict[str, list[tuple[str, FieldInfo]]]:
    """All settings by dotted name, each with its parts' words ('': any method) and their fields."""
    found = {name: [("", field)] for name, field in _TOP.items() if name != "given"}
    for section, options in _ROOMS.items():
        for name, field in options.model_fields.items():
            found[f"{section}.{name}"] = [("", field)]
    for slot, section in SECTIONS.items():
        for word, part in parts_of(slot):
            for name, field in part.model_fields.items():
                found.setdefault(f"{section}.{name}", []).append((word, field))
    return found


def suggestion(name: str) -> str:
    """'; did you mean data.noise?': the same word in some section, else the nearest name."""
    names = [*every_setting(), *_ROOMS, *SECTIONS.values()]
    leaf = name.rpartition(".")[2]
    same = [known for known in names if known.rpartition(".")[2] == leaf and known != name]
    near = same or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    leaves = {known.rpartition(".")[2]: known for known in reversed(names)}
    near = near or [leaves[one] for one in difflib.get_close_matches(leaf, leaves, 1, 0.7)]
    return f"; did you mean {near[0]}?" if near else "; gcfl list settings shows them all"


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a file, by the names of today."""
    return renamed(read_toml(path), RENAMED)


def build(
    settings: Mapping[str, Any], origin: Mapping[str, str] | None = None
) -> tuple[Experiment, list[str]]:
    """Nested settings to an experiment; also the dotted names of those that this method has no use
    for.

    `origin` says where a dotted key came from, for the messages ("in run.toml", "--budget").
    """
    where = Where({RENAMED.get(name, name): text for name, text in (origin or {}).items()})
    raw = renamed(settings, RENAMED)
    if key := next((key for key in raw if key not in Experiment.model_fields), None):
        raise ConfigError(f"unknown setting{where(key)}{suggestion(key)}")
    for section in (*_ROOMS, *SECTIONS.values()):
        if not isinstance(raw.setdefault(section, {}), dict):
            what = f"must be a table of settings, got {raw[section]!r}"
            raise ConfigError(f"{section} {what}{where(section)}")
    if "group" in raw["data"]:
        raw["data"].setdefault("partition", "groups")
    method = raw.get("method", Experiment.model_fields["method"].default)
    if not isinstance(method, str):
        raise ConfigError(f"method must be text, got {method!r}{where('method')}")
    slots = parse(method, _private(raw["privacy"]))
    for section, values in slots.presets.items():
        raw[section] = {**values, **raw[section]}
        raw[section] |= {name: None for name in values if raw[section][name] == UNSET}
    unused: list[str] = []
    parts: dict[str, Options] = {}
    for slot, part in slots.items().items():
        section, known = SECTIONS[slot], known_options(slot)
        mine = {k: v for k, v in raw[section].items() if k in part.model_fields or k not in known}
        unused += [f"{section}.{key}" for key in raw[section] if key not in mine]
        parts[section] = checked(part, mine, section, where, suggestion)
    rooms = {
        section: checked(options, raw[section], section, where, suggestion)
        for section, options in _ROOMS.items()
    }
    top = {key: raw[key] for key in _TOP if key in raw} | {"method": canonical(method)}
    return checked(Experiment, {**top, **rooms, **parts}, "", where, suggestion), unused


def compose(
    file: Path | None, explicit: Mapping[str, Any], flags: Mapping[str, str] | None = None
) -> tuple[Experiment, list[str]]:
    """The experiment of a file and of single settings by dotted name, which win over it; also which
    of those this method has no use for (a table may serve many methods).

    flags: what a setting was called on the command line, for the messages.
    """
    settings = read_settings(file) if file is not None else {}
    origin = dict.fromkeys(flat(settings), f"in {file}")
    for name, value in explicit.items():
        today = RENAMED.get(name, name)
        assign(settings, today, value)
        origin[today] = (flags or {}).get(name, "")
    experiment, unused = build(settings, origin)
    meant = {RENAMED.get(name, name) for name in explicit}
    return experiment, [name for name in unused if name in meant]
