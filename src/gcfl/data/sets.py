"""The server's clean set and the test set in files of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gcfl.base.encoding import Encoding
from gcfl.base.errors import DataError
from gcfl.data.options import DataOptions
from gcfl.data.readers import known, reader_of
from gcfl.data.source import Schema, Source
from gcfl.data.tabular import from_frame

SETS = {"validation": ("validation", "valid", "val"), "test": ("test",)}


def sets_in(folder: Path) -> dict[str, Path]:
    """The train, validation and test files of a folder, by what they are; empty where it is no such
    folder.
    """
    found: dict[str, Path] = {}
    for part, names in {"train": ("train",), **SETS}.items():
        here = [
            path
            for path in (sorted(folder.iterdir()) if folder.is_dir() else ())
            if Path(path.name.removesuffix(".gz")).stem.lower() in names and known(path)
        ]
        if len(here) > 1:
            raise DataError(
                f"{folder} has more than one file for {part}: "
                f"{', '.join(path.name for path in here)}"
            )
        found |= {part: here[0]} if here else {}
    return found if "train" in found and len(found) > 1 else {}


def named_sets(options: DataOptions) -> dict[str, Path]:
    """The files that data.validation and data.test name, where they do not say how much to cut."""
    given = {"validation": options.validation, "test": options.test}
    return {part: Path(one).expanduser() for part, one in given.items() if isinstance(one, str)}


def with_sets(source: Source, options: DataOptions) -> Source:
    """The source with the sets whose files data.validation and data.test name."""
    readers = {
        part: partial(_read, path, f"data.{part}", options)
        for part, path in named_sets(options).items()
    }
    return _with(source, readers) if readers else source


def with_frames(source: Source, frames: Mapping[str, Any], options: DataOptions) -> Source:
    """The source, a DataFrame's, with sets that are DataFrames too."""
    apart = options.model_copy(update={"group": None})
    readers = {
        part: partial(from_frame, frame, apart, where=part) for part, frame in frames.items()
    }
    return _with(source, readers) if readers else source


def _with(source: Source, readers: Mapping[str, Callable[[Schema], Source]]) -> Source:
    """With the sets that these read, once they are told what samples must look like."""
    schema = Schema.of(source, source.classes, source.name)
    if source.columns is not None:  # cells, until all are seen to be numbers
        schema = replace(schema, kind="object", encoding=None)
    pairs: dict[str, Any] = {}
    for part, read in readers.items():
        found = read(schema)
        if source.columns is not None and found.columns is None:  # bare numbers, in their order
            found = replace(found, x=found.x.astype(object))
        schema.check(found)
        pairs[part] = (found.x, found.y)
    whole = replace(source, **pairs, validation_from_test=False)
    return whole if source.encoding is None else _as_numbers(whole, source.encoding, pairs)


def _read(path: Path, setting: str, options: DataOptions, schema: Schema) -> Source:
    if not path.exists():
        raise DataError(
            f"{setting} must be a share, a count or the path of a file, and {str(path)!r} is none"
        )
    apart = options.model_copy(update={"group": None, "source": str(path), "schema_file": None})
    found = reader_of(path).read(path, apart, schema)
    if found.classes != schema.classes:  # a reader that has names of its own
        names = [str(found.classes[label]) for label in found.y]
        found = replace(found, y=schema.codes(names, str(path)))
    return replace(found, name=f"{path} ({setting})")


def _as_numbers(source: Source, encoding: Encoding, pairs: Mapping[str, Any]) -> Source:
    """The sets of a plain table as numbers, where they are plain, too; else all of it as cells."""
    names = [column.name for column in encoding.columns]
    try:
        numbers: dict[str, Any] = {
            part: (encoding.apply(dict(zip(names, x.T, strict=True)), part), y)
            for part, (x, y) in pairs.items()
        }
    except DataError:
        return replace(source, x=source.x.astype(object), encoding=None)
    return replace(source, **numbers)
