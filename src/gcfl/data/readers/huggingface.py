"""Hugging Face datasets: on the hub (hf:owner/name), from save_to_disk, or the object itself."""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.errors import DataError, did_you_mean, one_line
from gcfl.data.arrays import arrays
from gcfl.data.options import DataOptions
from gcfl.data.readers import images
from gcfl.data.source import Schema, Source

log = logging.getLogger("gcfl.data")

_PREFIX = "hf:"
_KINDS = ("Dataset", "DatasetDict", "IterableDataset", "IterableDatasetDict")
_SPLITS = {"test": ("test",), "validation": ("validation", "valid", "val", "dev")}


@dataclass(frozen=True)
class HuggingFace:
    """What save_to_disk wrote."""

    eats = "a Hugging Face folder (save_to_disk)"

    def recognises(self, path: Path) -> bool:
        marks = ("dataset_dict.json", "dataset_info.json")
        return path.is_dir() and any((path / mark).exists() for mark in marks)

    def read(self, path: Path, options: DataOptions, schema: Schema | None) -> Source:
        try:
            found = _library().load_from_disk(str(path))
        except (OSError, ValueError, KeyError) as error:
            raise DataError(
                f"{path} is not a whole folder of save_to_disk ({one_line(error)})"
            ) from error
        return from_huggingface(found, options.label, options.group, options.image_size, path.name)


def is_huggingface(thing: Any) -> bool:
    """Whether it is one of the library's datasets, without importing the library for it."""
    # Somebody's own module may have the library's name.
    library = sys.modules.get("datasets")
    kinds = [getattr(library, name, None) for name in _KINDS]
    return all(isinstance(kind, type) for kind in kinds) and isinstance(thing, tuple(kinds))  # type: ignore[arg-type]


def on_the_hub(name: str) -> bool:
    return name.startswith(_PREFIX)


def read_hub(name: str, options: DataOptions) -> Source:
    """hf:owner/name or hf:owner/name:configuration."""
    library = _library()
    address, _, configuration = name.removeprefix(_PREFIX).partition(":")
    try:
        found = library.load_dataset(address, configuration or None)
    # the hub's client raises many kinds: unknown name, no network, no rights
    except Exception as error:
        raise DataError(
            f"{name} cannot be had from the Hugging Face hub: {one_line(error)}"
        ) from error
    return from_huggingface(found, options.label, options.group, options.image_size, address)


def from_huggingface(
    found: Any,
    label: str = "label",
    group: str | None = None,
    image_size: int = 32,
    name: str = "huggingface",
) -> Source:
    """The train split as data (or the only one), test and validation where they are.

    An image column becomes (n, 3, image_size, image_size), decoded once; else every other column
    must hold numbers, or one of them vectors of equal length.
    """
    if type(found).__name__.startswith("Iterable"):
        raise DataError(f"{name} is a streamed dataset; load it without streaming=True")
    splits: dict[str, Any] = dict(found) if isinstance(found, Mapping) else {"train": found}
    if len(splits) == 1:
        splits = {"train": next(iter(splits.values()))}
    if "train" not in splits:
        raise DataError(f"{name} has the splits {', '.join(splits)}, and none of them is 'train'")
    train = splits["train"]
    columns = _columns(train, label, group, name)
    pairs = {"train": (_inputs(train, columns, image_size, name), _labels(train, label, name))}
    for part, names in _SPLITS.items():
        title = next((each for each in names if each in splits), None)
        if title is None:
            continue
        if _unlabelled(splits[title], label):
            log.warning("%s: the split %s has no labels and is left out", name, title)
            continue
        where = f"{name}, split {title}"
        pairs[part] = (
            _inputs(splits[title], columns, image_size, where),
            _labels(splits[title], label, where),
        )
    classes = getattr(train.features[label], "names", None)
    source = arrays(pairs["train"], pairs.get("validation"), pairs.get("test"), classes)
    return replace(
        source,
        name=name,
        groups=None if group is None else np.asarray(train[group][:]).astype(str),
        validation_from_test=source.validation is None and source.test is not None,
    )


def _columns(train: Any, label: str, group: str | None, name: str) -> list[str]:
    """The image column alone, or every column besides label and group."""
    for setting, wanted in (("data.label", label), ("data.group", group)):
        if wanted is not None and wanted not in train.column_names:
            raise DataError(
                f"{name} has no column {wanted!r}{did_you_mean(wanted, train.column_names)} "
                f"({setting})"
            )
    pictures = [column for column in train.column_names if _is_image(train, column)]
    if len(pictures) > 1:
        raise DataError(
            f"{name} has several columns of images ({', '.join(pictures)}); keep one with "
            "select_columns"
        )
    return pictures or [column for column in train.column_names if column not in (label, group)]


def _is_image(split: Any, column: str) -> bool:
    return type(split.features[column]).__name__ == "Image"


def _unlabelled(split: Any, label: str) -> bool:
    """Whether a split carries no label at all, as the test sets of competitions do."""
    return label not in split.column_names or all(
        value is None or value == -1 for value in split[label][:]
    )


def _labels(split: Any, label: str, name: str) -> npt.NDArray[Any]:
    """Names where the split has names for its numbers: each split by its own."""
    values = list(split[label][:])
    names = getattr(split.features[label], "names", None)
    missing = [row for row, value in enumerate(values) if value is None or (names and value < 0)]
    if missing:
        raise DataError(
            f"{name} has {len(missing)} samples without a label, first in row {missing[0]}"
        )
    return np.asarray([names[value] for value in values] if names else values)


def _inputs(split: Any, columns: list[str], size: int, name: str) -> npt.NDArray[Any]:
    """(n, ...) the columns of the train split, by name: splits may order theirs differently."""
    absent = [column for column in columns if column not in split.column_names]
    if absent:
        raise DataError(f"{name} has no column {absent[0]!r}, which the train split has")
    if len(split) == 0:
        raise DataError(f"{name} is empty")
    if columns and _is_image(split, columns[0]):
        return _decoded(split, columns[0], size, name)
    try:
        parts = [np.asarray(split[column][:], dtype=np.float32) for column in columns]
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{name} has a column that holds neither images nor numbers ({one_line(error)}); drop "
            "it"
        ) from None
    if len(parts) == 1 and parts[0].ndim > 1:
        return parts[0]
    if not parts or any(part.ndim != 1 for part in parts):
        raise DataError(
            f"{name} needs, besides the label, columns of numbers, one column of vectors, or one "
            "of images"
        )
    return np.stack(parts, axis=1)


def _decoded(split: Any, column: str, size: int, name: str) -> npt.NDArray[np.uint8]:
    """Through the images' cache, by the dataset's files; what has none is decoded each time."""

    def decode(row: int) -> npt.NDArray[np.uint8]:
        try:
            return images.fit(split[row][column], size)
        except Exception as error:  # a broken image raises whatever its decoder raises
            raise DataError(
                f"{name}, row {row}: the image cannot be read ({one_line(error)})"
            ) from error

    files = [Path(entry["filename"]) for entry in split.cache_files]
    # shuffled or filtered views share the files of the whole
    if not files or split._indices is not None:
        return np.stack([decode(row) for row in range(len(split))])
    facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    key = hashlib.sha256(repr((facts, column, size, len(split))).encode()).hexdigest()[:16]
    return images.cached(key, range(len(split)), decode, size)


def _library() -> Any:
    try:
        import datasets
    except ImportError:
        raise DataError(
            "Hugging Face datasets need the library of that name: pip install 'gcfl[huggingface]'"
        ) from None
    return datasets
