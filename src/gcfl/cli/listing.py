"""What there is, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

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
        return [(name, _first_sentence(maker)) for name, maker in MODELS.items()] + [
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
            replace(rows[-1], words=(word,), default=_text(value)) for word, value in preset(name)
        ]
    return rows


def preset(name: str) -> list[tuple[str, Any]]:
    """(word, value) of every word of the catalogue that sets this where nobody says otherwise."""
    section, _, leaf = name.partition(".")
    found = {word: parse(word).presets.get(section, {}) for word in WORDS}
    return [(word, values[leaf]) for word, values in found.items() if leaf in values]


def _values(field: FieldInfo) -> str:
    """What a setting may be: its choices, its range, its type."""
    return ", ".join(_allowed(field.annotation, field.metadata))


_SEVERAL = {"a whole number": "whole numbers", "a number": "numbers", "text": "names"}
_TYPES = {
    bool: "true, false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "a table",
}


def _allowed(kind: Any, checks: Sequence[Any] = ()) -> list[str]:
    """Of an annotation and its validators, which say what they allow (`base.options.allows`)."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _allowed(inside[0], (*inside[1:], *checks))
    said = [getattr(one.func, "allows", "") for one in checks if hasattr(one, "func")]
    said = [text for text in said if text]
    if said:
        whole = "a whole number " if kind is int and said[0].startswith("in") else ""
        return [f"{whole}{said[0]}"]
    if origin is Literal:
        return [str(choice) for choice in inside]
    if origin is list:
        each = _allowed(inside[0])
        of = "these" if get_origin(inside[0]) is Literal else _SEVERAL.get(each[0], each[0])
        return [f"a list of {of}" if of != each[0] else f"a list, each {of}"]
    if isinstance(kind, UnionType) or origin is Union:
        several = [text for one in inside if one is not NoneType for text in _allowed(one)]
        return list(dict.fromkeys(several))
    return [_TYPES.get(origin or kind, "")]


def _shown(field: FieldInfo) -> str:
    return "unset" if field.default is None else _text(field.default)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _first_sentence(thing: Any) -> str:
    text = " ".join((thing.__doc__ or "").split())
    return text.split(". ")[0].rstrip(".")


def choices_of(name: str) -> list[str]:
    """The choices of a setting, of all methods that have it; none where it is no choice."""
    kinds = [kind for _, field in every_setting()[name] for kind in _kinds(field.annotation)]
    found = [str(one) for kind in kinds if get_origin(kind) is Literal for one in get_args(kind)]
    return list(dict.fromkeys(found + (["true", "false"] if bool in kinds else [])))


def _kinds(kind: Any) -> list[Any]:
    """An annotation, and what it is a union of."""
    several = isinstance(kind, UnionType) or get_origin(kind) is Union
    return [one for part in get_args(kind) for one in _kinds(part)] if several else [kind]
