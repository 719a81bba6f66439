"""What there is, one line each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from gcfl.data import SOURCES, formats
from gcfl.experiment import every_setting
from gcfl.methods import WORDS, parse
from gcfl.models import MODELS

_MOST_NAMED = 4


def listing(what: str) -> list[tuple[str, str]]:
    """(name, line) for methods, data, models or settings."""
    if what == "methods":
        return [(name, word.summary) for name, word in WORDS.items()]
    if what == "data":
        there = {True: "", False: " (not in the data home)"}
        return [
            (name, f"{named.summary}{there[named.find() is not None]}")
            for name, named in SOURCES.items()
        ] + [
            ("PATH", f"your own files: {formats()}"),
            ("hf:owner/name", "a dataset on the Hugging Face hub"),
            (
                "arrays",
                "your own: gcfl.run(data=(x, y), validation=(x, y), ...) from Python; also a torch "
                "Dataset",
            ),
        ]
    if what == "models":
        return [(name, _first_line(maker)) for name, maker in MODELS.items()] + [
            ("FILE.py:make", "your own: a function or class in a file, which is run"),
            ("package.module:Class", "the same of a package that can be imported"),
            (
                "given",
                "your own: gcfl.run(model=MyNet, ...) from Python; any module that gives logits, "
                "one that ends in a Linear for all methods",
            ),
        ]
    return [(row.name, row.line) for row in settings_table()]


@dataclass(frozen=True)
class Row:
    """A setting as some methods have it. words: those methods' words, none where all have it so."""

    name: str
    words: tuple[str, ...]
    text: str
    values: str
    default: str

    @property
    def line(self) -> str:
        who = f"{', '.join(self.words)}: " if self.words else ""
        values = f" ({self.values})" if self.values else ""
        return f"{who}{self.text}{values} [{self.default}]"


def settings_table() -> list[Row]:
    """Every setting; several rows where parts of methods have another default or text for it."""
    rows = []
    for name, owners in every_setting().items():
        alike: dict[tuple[str, str, str], list[str]] = {}
        for word, field in owners:
            facts = (" ".join((field.description or "").split()), _values(field), _shown(field))
            alike.setdefault(facts, []).append(word)
        # Where most share a setting, only those that differ are named.
        common = max(alike, key=lambda facts: len(alike[facts]))
        for facts, words in alike.items():
            named = () if facts == common and "" in words else tuple(filter(None, words))
            rows.append(Row(name, named if len(named) <= _MOST_NAMED else (), *facts))
        rows += [
            replace(rows[-1], words=(word,), default=str(value)) for word, value in preset(name)
        ]
    return rows


def preset(name: str) -> list[tuple[str, Any]]:
    """(word, value) of every word of the catalogue that sets this where nobody says otherwise."""
    section, _, leaf = name.partition(".")
    found = {word: parse(word).presets.get(section, {}) for word in WORDS}
    return [(word, values[leaf]) for word, values in found.items() if leaf in values]


def _values(field: FieldInfo) -> str:
    """The allowed values of a choice."""
    kinds = (field.annotation, *get_args(field.annotation))
    choices = next((kind for kind in kinds if get_origin(kind) is Literal), None)
    return ", ".join(map(str, get_args(choices))) if choices else ""


def _shown(field: FieldInfo) -> str:
    value = field.default
    if value is None:
        return "unset"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]
