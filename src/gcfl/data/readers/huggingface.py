"""Hugging Face datasets: a name on the hub (hf:owner/name), a folder from save_to_disk, or the object itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.data.arrays import arrays
from gcfl.data.readers import images
from gcfl.data.source import Source
from gcfl.errors import DataError, did_you_mean, one_line

_PREFIX = "hf:"
_SPLITS = {"test": ("test",), "validation": ("validation", "valid", "val", "dev")}


def holds(path: Path) -> bool:
    """Whether the folder was written by save_to_disk."""
    return path.is_dir() and any((path / name).exists() for name in ("dataset_dict.json", "dataset_info.json"))


def is_huggingface(thing: Any) -> bool:
    """Whether it is a Dataset or DatasetDict, without importing the library for it."""
    return type(thing).__module__.partition(".")[0] == "datasets"


def on_the_hub(name: str) -> bool:
    return name.startswith(_PREFIX)


def read_hub(name: str, label: str, group: str | None, size: int) -> Source:
    """hf:owner/name or hf:owner/name:configuration."""
    library = _library()
    address, _, configuration = name.removeprefix(_PREFIX).partition(":")
    try:
        found = library.load_dataset(address, configuration or None)
    except Exception as error:  # the hub's client raises many kinds: unknown name, no network, no rights
        raise DataError(f"{name} cannot be had from the Hugging Face hub: {one_line(error)}") from error
    return from_huggingface(found, label, group, size, address)


def read_folder(path: Path, label: str, group: str | None, size: int) -> Source:
    """What save_to_disk wrote."""
    try:
        found = _library().load_from_disk(str(path))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} is not a whole folder of save_to_disk ({one_line(error)})") from error
    return from_huggingface(found, label, group, size, path.name)


def from_huggingface(
    found: Any, label: str = "label", group: str | None = None, image_size: int = 32, name: str = "huggingface"
) -> Source:
    """The train split as data (or the only one), test and validation where they are.

    An image column becomes (n, 3, image_size, image_size), decoded once; else every other column must hold numbers, or one of them
    vectors of equal length.
    """
    if type(found).__name__.startswith("Iterable"):
        raise DataError(f"{name} is a streamed dataset; load it without streaming=True")
    splits: dict[str, Any] = dict(found) if isinstance(found, Mapping) else {"train": found}
    if len(splits) == 1:
        splits = {"train": next(iter(splits.values()))}
    if "train" not in splits:
        raise DataError(f"{name} has the splits {', '.join(splits)}, and none of them is 'train'")
    pairs = {"train": _pair(splits["train"], label, group, image_size, name)}
    for part, names in _SPLITS.items():
        split = next((splits[each] for each in names if each in splits), None)
        if split is not None:
            pairs[part] = _pair(split, label, group, image_size, name)
    feature = splits["train"].features[label]
    classes = getattr(feature, "names", None)
    if classes:
        pairs = {part: (x, _named(y, classes, name)) for part, (x, y) in pairs.items()}
    source = arrays(pairs["train"], pairs.get("validation"), pairs.get("test"), classes)
    return Source(
        name,
        source.x,
        source.y,
        source.classes,
        source.validation,
        source.test,
        groups=None if group is None else np.asarray(splits["train"][group]).astype(str),
        validation_from_test=source.validation is None and source.test is not None,
        own=True,
    )


def _named(y: npt.NDArray[Any], classes: list[str], name: str) -> npt.NDArray[Any]:
    if y.min() < 0:
        raise DataError(f"{name} has samples without a label")
    named: npt.NDArray[Any] = np.asarray(classes)[y]
    return named


def _pair(split: Any, label: str, group: str | None, size: int, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    columns = split.column_names
    for wanted in filter(None, (label, group)):
        if wanted not in columns:
            setting = "data.label" if wanted == label else "data.group"
            raise DataError(f"{name} has no column {wanted!r}{did_you_mean(wanted, columns)} ({setting})")
    pictures = [column for column in columns if type(split.features[column]).__name__ == "Image"]
    y = np.asarray(split[label][:])
    if len(pictures) > 1:
        raise DataError(f"{name} has several columns of images ({', '.join(pictures)}); keep one with select_columns")
    if pictures:
        return _decoded(split, pictures[0], size, name), y
    others = [column for column in columns if column not in (label, group)]
    try:
        parts = [np.asarray(split[column][:], dtype=np.float32) for column in others]
    except (ValueError, TypeError) as error:
        raise DataError(f"{name} has a column that holds neither images nor numbers ({one_line(error)}); drop it") from None
    if len(parts) == 1 and parts[0].ndim > 1:
        return parts[0], y
    if not parts or any(part.ndim != 1 for part in parts):
        raise DataError(f"{name} needs, besides {label!r}, columns of numbers, one column of vectors, or one of images")
    return np.stack(parts, axis=1), y


def _decoded(split: Any, column: str, size: int, name: str) -> npt.NDArray[np.uint8]:
    """By way of the images' cache, whose key is the files that the dataset lies in. What lies in memory is decoded each time."""

    def decode(row: int) -> npt.NDArray[np.uint8]:
        try:
            return images.fit(split[row][column], size)
        except Exception as error:  # a broken image raises whatever its decoder raises
            raise DataError(f"{name}, row {row}: the image cannot be read ({one_line(error)})") from error

    files = [Path(entry["filename"]) for entry in split.cache_files]
    if not files or split._indices is not None:  # shuffled or filtered views share the files of the whole
        return np.stack([decode(row) for row in range(len(split))])
    facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    key = hashlib.sha256(repr((facts, column, size, len(split))).encode()).hexdigest()[:16]
    return images.cached(key, range(len(split)), decode, size)


def _library() -> Any:
    try:
        import datasets
    except ImportError:
        raise DataError("Hugging Face datasets need the library of that name: pip install 'gcfl[huggingface]'") from None
    return datasets
