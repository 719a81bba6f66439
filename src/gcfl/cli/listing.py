"""What there is, one line each."""

from __future__ import annotations

from typing import Any

from gcfl.data import SOURCES, formats
from gcfl.experiment import every_setting
from gcfl.methods import WORDS
from gcfl.models import MODELS


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
            (
                "given",
                "your own: gcfl.run(model=MyNet, ...) from Python; any module that ends in a "
                "Linear",
            )
        ]
    return [
        (name, f"{_line(field.description)} [{_shown(field.default)}]")
        for name, field in every_setting().items()
    ]


def _line(text: str | None) -> str:
    """A description that the source wraps, on one line."""
    return " ".join((text or "").split())


def _shown(value: Any) -> str:
    return (
        "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]
