"""FEMNIST and its kind in LEAF's json: samples by writer."""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.data_types import IntArray
from gcfl.base.errors import DataError, one_line
from gcfl.base.files import write_npz
from gcfl.data.options import DataOptions
from gcfl.data.source import Schema, Source, cache_folder

Parsed = tuple[npt.NDArray[Any], IntArray, npt.NDArray[Any]]  # inputs, labels, writers


@dataclass(frozen=True)
class Leaf:
    """The samples of train/ and test/ together, labels, and the writer of each.

    Pixels, which LEAF stores as shares of 255 with four digits, are images (n, 1, side, side) of
    bytes again. What is no square or not between 0 and 1 stays numbers (n, d).
    """

    name: str | None = None
    eats = "LEAF json"

    def recognises(self, path: Path) -> bool:
        return path.is_dir() and any(path.glob("train/*.json"))

    def read(self, path: Path, options: DataOptions, schema: Schema | None) -> Source:
        x, labels, groups = _cached(path)
        classes, y = np.unique(labels, return_inverse=True)
        name = self.name or path.name
        return Source(name, x, y.astype(np.int64), tuple(classes.tolist()), groups=groups)


def _cached(path: Path) -> Parsed:
    """Parsed once; the key is every file's name, size and time."""
    files = [*sorted(path.glob("train/*.json")), *sorted(path.glob("test/*.json"))]
    facts = [
        (str(file.relative_to(path)), file.stat().st_size, file.stat().st_mtime_ns)
        for file in files
    ]
    key = hashlib.sha256(repr((str(path.resolve()), facts)).encode()).hexdigest()[:16]
    cache = cache_folder() / f"leaf-{key}.npz"
    try:
        with open(cache, "rb") as file, np.load(file, allow_pickle=False) as stored:
            return stored["x"], stored["labels"], stored["groups"]
    # not there, or damaged: made anew
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        x, labels, groups = _parse(path, files)
    write_npz(cache, x=x, labels=labels, groups=groups)
    return x, labels, groups


def _whole(labels: Any) -> IntArray:
    """As int64; ValueError where that would change them."""
    found = np.asarray(labels)
    if found.size and not (found.dtype.kind in "iuf" and np.abs(found).max() < 2**53):
        raise ValueError("its labels are not whole numbers")
    whole: IntArray = found.astype(np.int64)
    if not np.array_equal(whole, found):
        raise ValueError("its labels are not whole numbers")
    return whole


def _parse(path: Path, files: list[Path]) -> Parsed:
    """Labels are as written: any whole numbers."""
    values: list[npt.NDArray[np.float32]] = []
    labels, groups = [], []
    for file in files:
        try:
            users = json.loads(file.read_text())["user_data"].items()
            samples = [
                (user, np.asarray(data["x"], np.float32), _whole(data["y"])) for user, data in users
            ]
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise DataError(f"{file} is not LEAF json ({one_line(error)})") from None
        for user, x, y in samples:
            length = values[0].shape[1] if values else x.shape[-1]
            if x.ndim != 2 or y.ndim != 1 or len(x) != len(y) or x.shape[1] != length:
                raise DataError(
                    f"{file}: the samples of {user} do not fit together or to others: x {x.shape}, "
                    f"y {y.shape}"
                )
            values.append(x)
            labels.append(y)
            groups.append(np.full(len(y), user, dtype=object))
    if not values:
        raise DataError(f"{path} has no samples in its LEAF json")
    flat = np.concatenate(values)
    if not np.isfinite(flat).all():
        raise DataError(f"{path} has values that are not finite numbers")
    others = np.concatenate(labels), np.concatenate(groups).astype(str)
    side = math.isqrt(flat.shape[1])
    if side * side == flat.shape[1] and flat.min() >= 0 and flat.max() <= 1:
        return np.round(flat * 255).astype(np.uint8).reshape(-1, 1, side, side), *others
    return flat, *others
