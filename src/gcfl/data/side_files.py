"""Small files that lie beside the data: who holds which sample, what was observed, which classes
are confused.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.data_types import FloatArray, IntArray
from gcfl.base.errors import ConfigError, DataError, did_you_mean
from gcfl.data.options import DataOptions
from gcfl.data.source import Source


def read_owners(path: str | None, source: Source) -> npt.NDArray[Any]:
    """(n,) the name of each sample's client."""
    if path is None:
        raise ConfigError(
            "partition 'given' needs data.owners: a file with the client's name of every sample, "
            "one per line"
        )
    return np.array(_lines(path, "data.owners", source))


def read_labels(path: str | None, source: Source) -> IntArray:
    """(n,) the observed label of each sample, by class name, or by class number where no line is a
    class's name.
    """
    if path is None:
        raise ConfigError(
            "noise_kind 'given' needs data.noise_file: a file with the observed label of every "
            "sample, one per line"
        )
    numbers = {str(name): number for number, name in enumerate(source.classes)}
    names = _lines(path, "data.noise_file", source)
    if not any(name in numbers for name in names):
        numbers = (
            {str(number): number for number in numbers.values()}
            if all(name.isdigit() for name in names)
            else numbers
        )
    unknown = next((name for name in names if name not in numbers), None)
    if unknown is not None:
        raise DataError(
            f"{path} has the label {unknown!r}, which is not a class of "
            f"{source.name}{did_you_mean(unknown, numbers)}"
        )
    return np.array([numbers[name] for name in names], dtype=np.int64)


def read_matrix(path: str | None, classes: int) -> FloatArray:
    """(C, C) numbers separated by spaces or commas, a row per line."""
    if path is None:
        raise ConfigError(
            "noise_kind 'confusion' needs data.noise_file: a table of numbers, a row per class"
        )
    try:
        rows = [
            line.replace(",", " ").split()
            for line in _text(path, "data.noise_file").splitlines()
            if line.strip()
        ]
        matrix = np.array([[float(cell) for cell in row] for row in rows])
    except ValueError as error:
        raise DataError(f"{path} (data.noise_file) is not a table of numbers ({error})") from None
    if matrix.shape != (classes, classes):
        raise DataError(
            f"{path} (data.noise_file) must be a table of {classes} x {classes} numbers, got shape "
            f"{matrix.shape}"
        )
    return matrix


def digest(options: DataOptions) -> str:
    """A hash of what is in these files, or nothing where none is used: it belongs to a run's
    identity.
    """
    used = [name for name in (options.owners, options.noise_file) if name is not None]
    if not used:
        return ""
    return hashlib.sha256("\x1f".join(_text(name, "data") for name in used).encode()).hexdigest()[
        :16
    ]


def _lines(path: str, setting: str, source: Source) -> list[str]:
    """A line for every sample of the whole source; those of the samples in use."""
    names = [line.strip() for line in _text(path, setting).splitlines()]
    if "" in names:
        raise DataError(
            f"{path} ({setting}) has nothing in line {names.index('') + 1}; every sample needs a "
            "name"
        )
    whole = source.of or len(source)
    if len(names) != whole:
        raise DataError(
            f"{path} ({setting}) has {len(names)} lines, but {source.name} has {whole} samples"
        )
    return names if source.rows is None else [names[row] for row in source.rows]


def _text(path: str, setting: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} ({setting}) cannot be read ({error})") from None
