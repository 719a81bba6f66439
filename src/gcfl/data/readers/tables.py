"""Tables and arrays in files: CSV, parquet, npz, and folders of npy, which are mapped and not read."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.data.arrays import arrays
from gcfl.data.source import Source
from gcfl.errors import DataError, did_you_mean

ENDINGS = (".csv", ".tsv", ".parquet", ".npz")


def read(path: Path, label: str, group: str | None = None) -> Source:
    """Every column but the label's (and the group's) is a feature and must be a number in every row."""
    if path.suffix == ".npz":
        return _npz(path)
    columns = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    for name in filter(None, (label, group)):
        if name not in columns:
            raise DataError(
                f"{path} has no column {name!r}{did_you_mean(name, columns)} (data.label names the column of the labels)"
            )
    features = [name for name in columns if name not in (label, group)]
    if not features:
        raise DataError(f"{path} has no column besides {label!r}")
    x = np.stack([_numbers(path, name, columns[name]) for name in features], axis=1)
    source = arrays((x, _labels(columns[label])))
    groups = None if group is None else np.asarray(columns[group]).astype(str)
    return Source(path.stem, source.x, source.y, source.classes, groups=groups)


def _csv(path: Path) -> dict[str, list[str]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a text table ({error})") from None
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise DataError(f"{path} has no rows below its header")
    header = rows[0]
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise DataError(f"{path}, row {number}: {len(row)} values where the header has {len(header)}")
    return {name: [row[place] for row in rows[1:]] for place, name in enumerate(header)}


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
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def _numbers(path: Path, name: str, values: Any) -> npt.NDArray[np.float32]:
    try:
        column = np.asarray([value if value != "" else "nan" for value in values] if isinstance(values, list) else values).astype(
            np.float64
        )
    except (ValueError, TypeError):
        raise DataError(f"{path}: the column {name!r} holds something that is not a number; drop it, or give it numbers") from None
    bad = np.flatnonzero(~np.isfinite(column))
    if bad.size:
        raise DataError(f"{path}: the column {name!r} has {bad.size} missing or infinite values, first in row {bad[0] + 2}")
    return column.astype(np.float32)


def _labels(values: Any) -> npt.NDArray[Any]:
    """Whole numbers where all are, else names."""
    column = np.asarray(values)
    try:
        return column.astype(np.float64).astype(np.int64) if column.dtype.kind in "OU" else column
    except (ValueError, TypeError):
        return column.astype(str)


def _npz(path: Path) -> Source:
    """Arrays x and y, and optionally x_validation, y_validation, x_test, y_test, classes, groups."""
    try:
        with np.load(path, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, KeyError) as error:
        raise DataError(f"{path} is not an npz file of plain arrays ({error})") from None
    if not {"x", "y"} <= held.keys():
        raise DataError(f"{path} needs arrays x and y, has {', '.join(sorted(held))}")
    return _held(path, held)


def holds_arrays(path: Path) -> bool:
    return path.is_dir() and (path / "x.npy").exists() and (path / "y.npy").exists()


def read_arrays(path: Path) -> Source:
    """The same names as in an npz, a file each. x stays on disk until somebody takes samples of it."""
    held = {}
    for file in sorted(path.glob("*.npy")):
        try:
            held[file.stem] = np.load(file, mmap_mode="c", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise DataError(f"{file} is not a whole npy file of plain numbers ({error})") from None
    return _held(path, held)


def _held(path: Path, held: dict[str, npt.NDArray[Any]]) -> Source:
    pairs = {
        part: (held[f"x_{part}"], held[f"y_{part}"])
        for part in ("validation", "test")
        if f"x_{part}" in held and f"y_{part}" in held
    }
    classes = held["classes"].tolist() if "classes" in held else None
    source = arrays((held["x"], held["y"]), pairs.get("validation"), pairs.get("test"), classes)
    groups = held["groups"].astype(str) if "groups" in held else None
    return Source(path.stem, source.x, source.y, source.classes, source.validation, source.test, groups=groups)
