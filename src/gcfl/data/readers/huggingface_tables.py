"""Hugging Face datasets of single values in each column: tables, encoded as a CSV is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.cells import Cell, cells
from gcfl.base.encoding import Encoding
from gcfl.base.errors import DataError
from gcfl.data.arrays import Pair, arrays
from gcfl.data.options import DataOptions
from gcfl.data.source import Schema, Source

Numbers = Callable[[Any, str], npt.NDArray[np.float32]]


def is_table(split: Any, columns: Sequence[str]) -> bool:
    """Whether every one of these columns holds single values: numbers, texts, dates, classes."""
    kinds = [type(split.features[column]).__name__ for column in columns]
    return bool(kinds) and all(kind in ("Value", "ClassLabel") for kind in kinds)


def read_table(
    splits: Mapping[str, tuple[str, Any]],
    labels: Mapping[str, npt.NDArray[Any]],
    columns: Sequence[str],
    classes: Sequence[str | int] | None,
    options: DataOptions,
    schema: Schema | None,
    plain: Numbers,
) -> Source:
    """A source from splits (what they are called, their rows): `plain` numbers where all are, with
    the names of their columns; else cells, or what the schema's encoding makes of them.
    """
    encoding = None if schema is None else schema.encoding
    if encoding is not None:
        name, split = splits["train"]
        x = encoding.apply(_cells(split, columns, name), name)
        return replace(_coded({"train": x}, labels, classes), columns=encoding.names)
    try:
        if options.schema_file is not None:
            raise DataError("a schema says what becomes of cells")
        inputs = {part: plain(split, name) for part, (name, split) in splits.items()}
        if not all(np.isfinite(x).all() for x in inputs.values()):
            raise DataError("gaps need an encoding")
        encoding = Encoding.plain_numbers(columns)
    except DataError:
        inputs = {
            part: np.column_stack(
                [np.array(column, dtype=object) for column in _cells(split, columns, name).values()]
            )
            for part, (name, split) in splits.items()
        }
    return replace(_coded(inputs, labels, classes), columns=tuple(columns), encoding=encoding)


def _coded(
    inputs: Mapping[str, npt.NDArray[Any]],
    labels: Mapping[str, npt.NDArray[Any]],
    classes: Sequence[str | int] | None,
) -> Source:
    """With labels as class numbers; cells pass unseen."""
    pairs: dict[str, Pair] = {
        part: (np.zeros((len(x), 1), dtype=np.float32) if x.dtype == object else x, labels[part])
        for part, x in inputs.items()
    }
    source = arrays(pairs["train"], pairs.get("validation"), pairs.get("test"), classes)
    sets: dict[str, Any] = {
        part: (inputs[part], pair[1])
        for part in ("validation", "test")
        if (pair := getattr(source, part)) is not None
    }
    return replace(source, x=inputs["train"], **sets)


def _cells(split: Any, columns: Sequence[str], name: str) -> dict[str, list[Cell]]:
    """The columns by name; a ClassLabel's numbers as the names that they stand for."""
    found = {}
    for column in columns:
        if column not in split.column_names:
            raise DataError(f"{name} has no column {column!r}, which the train split has")
        values = list(split[column][:])
        if names := getattr(split.features[column], "names", None):
            values = [None if one is None or one < 0 else names[one] for one in values]
        array = np.empty(len(values), dtype=object)
        array[:] = values
        found[column] = cells(array, column)
    return found
