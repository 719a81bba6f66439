"""Tables and arrays in files: CSV, parquet, npz, and folders of npy, which are mapped, not read."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.errors import DataError
from gcfl.data.arrays import arrays
from gcfl.data.options import DataOptions
from gcfl.data.source import Schema, Source
from gcfl.data.tabular import from_columns

_TEXTS = (".csv", ".tsv")
_MOST = 4 * 2**30  # bytes of an unpacked table: what is larger is no table, but a trap
_HEAD = 2**16  # signs of a text table, in which its head line is looked for


@dataclass(frozen=True)
class Tables:
    """Every column but the label's and the group's makes features (`gcfl.data.tabular`)."""

    eats = "a CSV, TSV or parquet table"

    def recognises(self, path: Path) -> bool:
        return path.is_file() and _unpacked(path).suffix.lower() in (*_TEXTS, ".parquet")

    def read(self, path: Path, options: DataOptions, schema: Schema | None) -> Source:
        source = from_columns(read_columns(path), str(path), options, schema)
        return replace(source, name=_unpacked(path).stem, own=False)


def read_columns(path: Path) -> dict[str, Any]:
    """A table's columns as they stand in the file."""
    return _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)


@dataclass(frozen=True)
class Arrays:
    """Arrays x and y, and optionally x_validation, y_validation, x_test, y_test, classes, groups:
    in one npz file, or in npy files of a folder, where x stays on disk until samples are taken.
    """

    eats = "an npz file, a folder of npy files"

    def recognises(self, path: Path) -> bool:
        if path.is_file():
            return path.suffix.lower() == ".npz"
        return (path / "x.npy").exists() and (path / "y.npy").exists()

    def read(self, path: Path, options: DataOptions, schema: Schema | None) -> Source:
        stored = _npy(path) if path.is_dir() else _npz(path, "x", "y")
        pairs = {"data": (stored["x"], stored["y"])}
        for part in ("validation", "test"):
            if {f"x_{part}", f"y_{part}"} <= stored.keys():
                pairs[part] = (stored[f"x_{part}"], stored[f"y_{part}"])
        classes = np.atleast_1d(stored["classes"]).tolist() if "classes" in stored else None
        source = _coded(path, pairs, schema, classes)
        groups = stored["groups"].astype(str) if "groups" in stored else None
        if groups is not None and groups.shape != source.y.shape:
            raise DataError(
                f"{path}: groups must name a group for each of the {len(source)} samples, got "
                f"shape {groups.shape}"
            )
        return replace(source, groups=groups)


def read_inputs(path: Path) -> npt.NDArray[Any]:
    """x alone, of an npz file or a folder of npy files."""
    return (_npy(path) if path.is_dir() else _npz(path, "x"))["x"]


def _coded(
    path: Path, pairs: dict[str, Any], schema: Schema | None, classes: list[Any] | None = None
) -> Source:
    """Labels as class numbers: of the schema's classes, of those given, or of those found."""
    if schema is None:
        source = arrays(pairs["data"], pairs.get("validation"), pairs.get("test"), classes)
    else:
        x, y = pairs["data"]
        numbered = arrays((x, schema.codes(y, str(path))), classes=range(len(schema.classes)))
        source = replace(numbered, classes=schema.classes)
    return replace(source, name=path.stem, own=False)


def _unpacked(path: Path) -> Path:
    """What a table is called without .gz."""
    inner = path.with_suffix("")
    return inner if path.suffix.lower() == ".gz" and inner.suffix.lower() in _TEXTS else path


def _csv(path: Path) -> dict[str, list[str]]:
    packed = _unpacked(path) != path
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            # a whole file may be as large as it is, but a small one may unpack to anything
            data = file.read(_MOST + 1) if packed else file.read()
        if packed and len(data) > _MOST:
            raise DataError(f"{path} unpacks to more than {_MOST // 2**30} GiB: unpack it first")
        text = data.decode("utf-8-sig")
        tabs = _unpacked(path).suffix.lower() == ".tsv"
        separator = "\t" if tabs else _separator(text[:_HEAD])
        rows = [
            row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row
        ]
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path} is not in UTF-8 (first seen in line {line}): save it as UTF-8 (a spreadsheet "
            "offers CSV UTF-8), or convert it: iconv -f latin1 -t utf-8 old.csv > new.csv"
        ) from None
    except (csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is not a text table ({error})") from None
    if len(rows) < 2:
        raise DataError(f"{path} has no rows below its header")
    header = rows[0]
    _distinct(path, header)
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise DataError(
                f"{path}, row {number}: {len(row)} values where the header has {len(header)}"
            )
    return {name: [row[place] for row in rows[1:]] for place, name in enumerate(header)}


def _separator(head: str) -> str:
    """The sign that parts the first line into the most names; a comma in doubt."""

    def names(sign: str) -> int:
        reader = csv.reader(io.StringIO(head, newline=""), delimiter=sign)
        return len(next(filter(None, reader), []))

    return max(",;\t", key=names)


def _parquet(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError("parquet files need pyarrow: pip install 'gcfl[tables]'") from None
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is not a parquet file ({error})") from None
    _distinct(path, table.column_names)
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def _distinct(path: Path, names: list[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"{path} has more than one column {twice!r}; rename or drop all but one")


def _npz(path: Path, *needs: str) -> dict[str, npt.NDArray[Any]]:
    try:
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            stored = {name: file[name] for name in file.files}
    except (
        ValueError,
        OSError,
        EOFError,
        KeyError,
        TypeError,
        AttributeError,
        zipfile.BadZipFile,
    ) as error:
        raise DataError(f"{path} is not an npz file of plain arrays ({error})") from None
    if not set(needs) <= stored.keys():
        named = f"{'arrays' if len(needs) > 1 else 'an array'} {' and '.join(needs)}"
        raise DataError(f"{path} needs {named}, has {', '.join(sorted(stored))}")
    return stored


def _npy(folder: Path) -> dict[str, npt.NDArray[Any]]:
    stored = {}
    for file in sorted(folder.glob("*.npy")):
        try:
            stored[file.stem] = np.load(file, mmap_mode="c", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise DataError(f"{file} is not a whole npy file of plain numbers ({error})") from None
    return stored
