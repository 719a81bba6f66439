"""What there is, one line each."""

from __future__ import annotations

from typing import Any

from gcfl.data import SOURCES, DataOptions
from gcfl.experiment import EngineOptions, Experiment
from gcfl.methods import WORDS, TrainOptions
from gcfl.methods.catalogue import SECTIONS, Slots
from gcfl.models import MODELS, ModelOptions
from gcfl.options import Options


def listing(what: str) -> list[tuple[str, str]]:
    """(name, line) for methods, data, models or settings."""
    if what == "methods":
        return [(name, word.summary) for name, word in WORDS.items()]
    if what == "data":
        return [(name, _first_line(reader)) for name, reader in SOURCES.items()] + [
            ("arrays", "your own: gcfl.run(data=(x, y), validation=(x, y), ...) from Python")
        ]
    if what == "models":
        return [(name, _first_line(maker)) for name, maker in MODELS.items()] + [
            ("given", "your own: gcfl.run(model=MyNet, ...) from Python; any module that ends in a Linear")
        ]
    return _settings()


def _settings() -> list[tuple[str, str]]:
    rows = _rows("", Experiment, skip={"data", "model", "train", "engine", "given", *SECTIONS.values()})
    for section, options in (("data", DataOptions), ("model", ModelOptions), ("train", TrainOptions)):
        rows += _rows(f"{section}.", options)
    slots = Slots().items()
    for slot, section in SECTIONS.items():
        parts = [slots[slot], *(getattr(word, slot) for word in WORDS.values() if getattr(word, slot))]
        rows += [row for part in parts for row in _rows(f"{section}.", part)]
    rows += _rows("engine.", EngineOptions)
    return list(dict(rows).items())


def _rows(prefix: str, options: type[Options], skip: set[str] | None = None) -> list[tuple[str, str]]:
    return [
        (f"{prefix}{name}", f"{field.description or ''} [{_shown(field.default)}]")
        for name, field in options.model_fields.items()
        if name not in (skip or set())
    ]


def _shown(value: Any) -> str:
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]
