"""MNIST and its kind: IDX files, gzipped or not."""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.errors import DataError
from gcfl.data.options import DataOptions
from gcfl.data.source import Schema, Source

_STEMS = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}

_RATIO = 1100  # no gzip packs better than 1032 to 1


@dataclass(frozen=True)
class Idx:
    """Images (n, 1, h, w) and labels; the t10k files are the official test set."""

    name: str | None = None
    classes: tuple[str | int, ...] | None = None
    eats = "IDX files"

    def recognises(self, path: Path) -> bool:
        return path.is_dir() and _find(path, _STEMS["train"][0]) is not None

    def read(self, path: Path, options: DataOptions, schema: Schema | None) -> Source:
        name, parts = self.name or path.name, {}
        for part, stems in _STEMS.items():
            images, labels = (_array(_require(path, stem)) for stem in stems)
            if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
                raise DataError(
                    f"the {part} files in {path} do not fit together: images {images.shape}, "
                    f"labels {labels.shape}"
                )
            if len(images) == 0:
                raise DataError(f"the {part} files in {path} have no images")
            parts[part] = (images[:, None], labels.astype(np.int64))
        found = int(max(labels.max() for _, labels in parts.values())) + 1
        names = self.classes or tuple(range(found))
        if found > len(names):
            raise DataError(
                f"{path} has the label {found - 1}, but {name} has {len(names)} classes"
            )
        return Source(name, *parts["train"], names, test=parts["test"], validation_from_test=True)


def _find(path: Path, stem: str) -> Path | None:
    dotted = stem.replace("-idx", ".idx")  # some mirrors write it so
    files = (path / f"{name}{end}" for name in (stem, dotted) for end in ("", ".gz"))
    return next((file for file in files if file.exists()), None)


def _require(path: Path, stem: str) -> Path:
    found = _find(path, stem)
    if found is None:
        raise DataError(f"{path} lacks {stem} (or {stem}.gz)")
    return found


def _array(path: Path) -> npt.NDArray[Any]:
    packed = path.suffix == ".gz"
    most = path.stat().st_size * (_RATIO if packed else 1)
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:3] != b"\0\0\x08":
                raise DataError(f"{path} is not an IDX file of bytes")
            sizes = file.read(4 * head[3])
            shape = tuple(
                int.from_bytes(sizes[at : at + 4], "big") for at in range(0, len(sizes), 4)
            )
            size = math.prod(shape)
            data = file.read(min(size, most) + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} cannot be unpacked ({error})") from None
    if len(sizes) < 4 * head[3] or len(data) < size:
        raise DataError(f"{path} is cut off: {len(data)} bytes where {size} are announced")
    if len(data) > size:
        raise DataError(f"{path} holds more than the {size} bytes that it announces")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape).copy()
