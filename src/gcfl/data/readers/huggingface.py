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

from gcfl.base.data_types import IntArray
from gcfl.base.errors import DataError, did_you_mean, one_line
from gcfl.base.layout import Layout, Tokenizer, tokenised
from gcfl.data.arrays import arrays
from gcfl.data.options import DataOptions
from gcfl.data.readers import images
from gcfl.data.readers.huggingface_tables import is_table, read_table
from gcfl.data.source import Schema, Source
from gcfl.data.tabular import features_of

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
        return from_options(found, options, path.name, schema)


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
    return from_options(found, options, address)


def from_huggingface(
    found: Any,
    label: str = "label",
    group: str | None = None,
    image_size: int = 32,
    name: str = "huggingface",
    *,
    text: str | None = None,
    tokenizer: Tokenizer | None = None,
    length: int = 64,
    broken: images.Broken = "skip",
) -> Source:
    """The train split as data (or the only one), test and validation where they are.

    An image column becomes (n, 3, image_size, image_size), decoded once. text: the column of texts,
    which become token ids (n, length), by a tokenizer (text -> ids, or a table with input_ids), or
    by the built-in one, which hashes words. Else one other column may hold vectors of equal length,
    or all together are a table: numbers, texts, dates. broken: whether an image that cannot be read
    is left out.
    """
    options = DataOptions.model_construct(
        label=label, group=group, image_size=image_size, text=text, length=length, broken=broken
    )
    return from_options(found, options, name, tokenizer=tokenizer)


def from_options(
    found: Any,
    options: DataOptions,
    name: str = "huggingface",
    schema: Schema | None = None,
    tokenizer: Tokenizer | None = None,
) -> Source:
    """`from_huggingface` as the settings of [data] say. schema: of a site, whose training samples
    alone are read.
    """
    if type(found).__name__.startswith("Iterable"):
        raise DataError(f"{name} is a streamed dataset; load it without streaming=True")
    splits: dict[str, Any] = dict(found) if isinstance(found, Mapping) else {"train": found}
    if len(splits) == 1:
        splits = {"train": next(iter(splits.values()))}
    if "train" not in splits:
        raise DataError(f"{name} has the splits {', '.join(splits)}, and none of them is 'train'")
    train, label, group = splits["train"], options.label, options.group
    columns = _columns(train, options, schema, name)
    if tokenizer is not None and not _is_text(train, columns):
        raise DataError(f"a tokenizer needs a column of texts in {name}; name it with text=")
    parts = _parts(splits, label, name) if schema is None else {"train": (name, train)}
    labels = {part: _labels(rows, label, where) for part, (where, rows) in parts.items()}
    classes = getattr(train.features[label], "names", None)
    if schema is not None:
        labels, classes = {"train": schema.codes(labels["train"], name)}, range(len(schema.classes))
    inputs = _Inputs(columns, options.image_size, tokenizer, options.length, options.broken)
    kept = np.arange(len(train))
    if is_table(train, columns) and not _is_text(train, columns):
        source = read_table(parts, labels, columns, classes, options, schema, inputs.numbers)
    else:
        pairs = {}
        for part, (where, rows) in parts.items():
            x, here = inputs.of(rows, where)
            pairs[part] = (x, labels[part][here])
            kept = here if part == "train" else kept
        sets = pairs.get("validation"), pairs.get("test")
        source = arrays(pairs["train"], *sets, classes, length=options.length)
    whole = len(kept) == len(train)
    return replace(
        source,
        name=name,
        classes=source.classes if schema is None else schema.classes,
        groups=None if group is None else np.asarray(train[group][:]).astype(str)[kept],
        validation_from_test=source.validation is None and source.test is not None,
        rows=None if whole else kept,
        of=None if whole else len(train),
        layout=source.layout if tokenizer is None else Layout(ids=True),
    )


def _parts(splits: Mapping[str, Any], label: str, name: str) -> dict[str, tuple[str, Any]]:
    """What each split that has labels is called, and its rows, by what it is for."""
    found = {"train": (name, splits["train"])}
    for part, names in _SPLITS.items():
        title = next((each for each in names if each in splits), None)
        if title is None:
            continue
        if _unlabelled(splits[title], label):
            log.warning("%s: the split %s has no labels and is left out", name, title)
            continue
        found[part] = (f"{name}, split {title}", splits[title])
    return found


def _columns(train: Any, options: DataOptions, schema: Schema | None, name: str) -> list[str]:
    """The column of texts or of images alone, or every one that is a feature."""
    label, group, text = options.label, options.group, options.text
    for setting, wanted in (("data.label", label), ("data.group", group), ("data.text", text)):
        if wanted is not None and wanted not in train.column_names:
            raise DataError(
                f"{name} has no column {wanted!r}{did_you_mean(wanted, train.column_names)} "
                f"({setting})"
            )
    if text is not None:
        if not _is_text(train, [text]):
            raise DataError(f"the column {text!r} of {name} holds no texts (data.text)")
        return [text]
    pictures = [column for column in train.column_names if _is_image(train, column)]
    if len(pictures) > 1:
        raise DataError(
            f"{name} has several columns of images ({', '.join(pictures)}); keep one with "
            "select_columns"
        )
    return pictures or features_of(dict.fromkeys(train.column_names), name, options, schema)


def _is_image(split: Any, column: str) -> bool:
    return type(split.features[column]).__name__ == "Image"


def _is_text(split: Any, columns: list[str]) -> bool:
    """Whether these are one column of texts."""
    kinds = [getattr(split.features[column], "dtype", None) for column in columns]
    return kinds in (["string"], ["large_string"])


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


@dataclass(frozen=True)
class _Inputs:
    """How the samples of a split are read."""

    columns: list[str]
    size: int
    tokenizer: Tokenizer | None
    length: int
    broken: images.Broken

    def of(self, split: Any, name: str) -> tuple[npt.NDArray[Any], IntArray]:
        """(m, ...) the columns of the train split, by name: splits may order theirs differently;
        and which rows of the split they are.
        """
        absent = [column for column in self.columns if column not in split.column_names]
        if absent:
            raise DataError(f"{name} has no column {absent[0]!r}, which the train split has")
        if len(split) == 0:
            raise DataError(f"{name} is empty")
        if self.columns and _is_image(split, self.columns[0]):
            return self._images(split, self.columns[0], name)
        everyone = np.arange(len(split))
        if _is_text(split, self.columns):
            texts = np.array(split[self.columns[0]][:], dtype=object)
            if self.tokenizer is None:
                return texts, everyone
            return tokenised(texts, self.tokenizer, self.length), everyone
        return self.numbers(split, name), everyone

    def numbers(self, split: Any, name: str) -> npt.NDArray[np.float32]:
        """(n, features) of columns of numbers, or of one of vectors."""
        try:
            parts = [np.asarray(split[column][:], dtype=np.float32) for column in self.columns]
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{name} has a column that holds neither images nor numbers ({one_line(error)}); "
                "drop it, or name the column of texts (data.text)"
            ) from None
        if len(parts) == 1 and parts[0].ndim > 1:
            return parts[0]
        if not parts or any(part.ndim != 1 for part in parts):
            raise DataError(
                f"{name} needs, besides the label, columns of numbers, one column of vectors, one "
                "of texts, or one of images"
            )
        return np.stack(parts, axis=1)

    def _images(self, split: Any, column: str, name: str) -> tuple[npt.NDArray[np.uint8], IntArray]:
        """Through the images' cache, by the dataset's files; what has none is decoded each time."""

        def decode(row: int) -> npt.NDArray[np.uint8]:
            try:
                return images.fit(split[row][column], self.size)
            except Exception as error:  # a broken image raises whatever its decoder raises
                raise DataError(
                    f"{name}, row {row}: the image cannot be read ({one_line(error)})"
                ) from error

        files = [Path(entry["filename"]) for entry in split.cache_files]
        # shuffled or filtered views share the files of the whole
        if not files or split._indices is not None:
            x = np.empty((len(split), 3, self.size, self.size), dtype=np.uint8)
            failed = images.decoded(range(len(split)), decode, x, self.broken)
            kept = images.without(failed, len(split), self.broken, name)
            return x[: len(kept)], kept
        facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        key = hashlib.sha256(repr((facts, column, self.size, len(split))).encode()).hexdigest()[:16]
        return images.cached(key, range(len(split)), decode, self.size, self.broken, name)


def _library() -> Any:
    try:
        import datasets
    except ImportError:
        raise DataError(
            "Hugging Face datasets need the library of that name: pip install 'gcfl[huggingface]'"
        ) from None
    return datasets
