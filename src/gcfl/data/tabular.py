"""A table's columns to a source: which are features, which name the labels and the groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.cells import Category, Cell, cells, columns_of
from gcfl.base.encoding import Encoding
from gcfl.base.errors import DataError, did_you_mean
from gcfl.base.layout import Layout, hashed
from gcfl.data.arrays import arrays
from gcfl.data.options import DataOptions
from gcfl.data.source import Schema, Source

FRAME = "frame"  # what a DataFrame from Python is called


def from_columns(
    columns: Mapping[str, Any], where: str, options: DataOptions, schema: Schema | None
) -> Source:
    """Numbers without gaps are features as they are; with anything else among the columns, x holds
    cells, which `gcfl.data.encoding` makes features of once it is known whose rows they are.

    With a schema the classes come from there, and so do the features and their order; other columns
    are left out. With data.text that column alone is read, as token ids.
    """
    _check_named(columns, where, options)
    y = _labels(where, columns[options.label])
    group = options.group
    groups = None if group is None else _group_names(columns[group], group, where)
    if options.text is not None:
        x: npt.NDArray[Any] = hashed(texts_of(columns, options.text, where), options.length)
        found = _coded(x, y, schema, where)
        return replace(found, groups=groups, layout=Layout(words=options.length))
    features = features_of(columns, where, options, schema)
    plain = None
    if options.schema_file is None and (schema is None or schema.kind != "object"):
        plain = _plain(columns, features, where)
    encoding = None
    if schema is not None and schema.encoding is not None and not schema.encoding.plain:
        encoding = schema.encoding
        table = {name: cells(columns[name], name) for name in features}
        x = encoding.apply(table, where, lambda row: row + 2)
    elif plain is not None:
        x, encoding = plain, Encoding.plain_numbers(features)
    else:
        x = as_cells(columns, features)
        if schema is not None and schema.kind != "object":
            Encoding.plain_numbers(features).apply(
                dict(zip(features, x.T, strict=True)), where, lambda row: row + 2
            )  # says which cell is no number
    return replace(
        _coded(x, y, schema, where),
        groups=groups,
        columns=tuple(features) if encoding is None else encoding.names,
        encoding=encoding,
    )


def texts_of(columns: Mapping[str, Any], name: str, where: str) -> npt.NDArray[Any]:
    """(n,) the texts of one column."""
    if name not in columns:
        raise DataError(
            f"{where} has no column {name!r}{did_you_mean(name, columns)} (data.text names the "
            "column of the texts)"
        )
    return np.array(columns[name], dtype=object)


def from_frame(
    frame: Any, options: DataOptions, schema: Schema | None = None, where: str = "the table"
) -> Source:
    """A DataFrame from Python. Its index names the rows, where it is not just their numbers."""
    source = replace(from_columns(columns_of(frame), where, options, schema), name=FRAME)
    index = getattr(frame, "index", None)
    names = tuple(map(str, range(len(source)) if index is None else index))
    if len(set(names)) == len(names) and names != tuple(map(str, range(len(names)))):
        source = replace(source, names=names)
    return replace(source, own=True)


def from_frames(frames: Mapping[str, Any], options: DataOptions) -> Source:
    """Each client's DataFrame, by the clients' names. Samples are known as client/row."""
    tables = {client: columns_of(frame) for client, frame in frames.items()}
    (first, columns), *others = tables.items()
    for client, table in others:
        for name in columns:
            if name not in table:
                raise DataError(
                    f"client {client!r} has no column {name!r}, which client {first!r} "
                    f"has{did_you_mean(name, table)}"
                )
    together = {
        name: np.concatenate([table[name].astype(object) for table in tables.values()])
        for name in columns
    }
    sizes = [len(next(iter(table.values()), ())) for table in tables.values()]
    return replace(
        from_columns(together, "the table", options, None),
        name=FRAME,
        own=True,
        groups=np.repeat(list(tables), sizes),
        clients=tuple(tables),
        alike=True,
        names=tuple(
            f"{name}/{row}" for name, n in zip(tables, sizes, strict=True) for row in range(n)
        ),
    )


def bare(
    columns: Mapping[str, Any], where: str, options: DataOptions, names: Sequence[str] | None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], tuple[str, ...]]:
    """x (n, features), y (n,) and the features' names, of a table that stands beside arrays: plain
    numbers, or the texts of data.text, which have no names.
    """
    _check_named(columns, where, options)
    y = _labels(where, columns[options.label])
    if options.text is not None:
        return texts_of(columns, options.text, where), y, ()
    names = names or features_of(columns, where, options, None)
    for name in names:
        if _plain(columns, [name], where) is None:
            raise DataError(
                f"{where}: the column {name!r} holds other things than numbers without gaps, which "
                "arrays beside a DataFrame cannot have: give every client a DataFrame, or leave "
                "the column out (data.drop)"
            )
    x = _plain(columns, names, where)
    return np.asarray(x), y, tuple(names)


def as_cells(columns: Mapping[str, Any], names: Sequence[str]) -> npt.NDArray[Any]:
    """(n, columns) objects."""
    x = np.empty((len(columns[names[0]]), len(names)), dtype=object)
    for place, name in enumerate(names):
        x[:, place] = cells(columns[name], name)
    return x


def _check_named(columns: Mapping[str, Any], where: str, options: DataOptions) -> None:
    for setting, name in (("label", options.label), ("group", options.group)):
        if name is not None and name not in columns:
            raise DataError(
                f"{where} has no column {name!r}{did_you_mean(name, columns)} (data.{setting} "
                f"names the column of the {setting}s)"
            )


def features_of(
    columns: Mapping[str, Any], where: str, options: DataOptions, schema: Schema | None
) -> list[str]:
    """The columns that are features, in their order: the schema's, or what data.columns and
    data.drop leave.
    """
    label, group = options.label, options.group
    if schema is not None and schema.columns is not None:
        wanted, encoding = list(schema.columns), schema.encoding
        if encoding is not None:
            wanted = [column.name for column in encoding.columns]
        for name in wanted:
            if name not in columns:
                raise DataError(
                    f"{where} has no column {name!r}, which {schema.whose}'s table "
                    f"has{did_you_mean(name, columns)}"
                )
        return wanted
    features = [name for name in columns if name not in (label, group)]
    for setting in ("columns", "drop"):
        for name in getattr(options, setting) or ():
            if name not in columns:
                raise DataError(
                    f"{where} has no column {name!r}{did_you_mean(name, columns)} (data.{setting})"
                )
    if options.columns is not None:
        features = [name for name in features if name in options.columns]
    features = [name for name in features if name not in (options.drop or ())]
    if not features:
        raise DataError(f"{where} has no column besides {label!r}" + _left(options))
    return features


def _left(options: DataOptions) -> str:
    return " that data.columns or data.drop leaves" if options.columns or options.drop else ""


def _plain(
    columns: Mapping[str, Any], names: Sequence[str], where: str
) -> npt.NDArray[np.float32] | None:
    """(n, features), where every one of these columns is numbers without gaps; else None."""
    found = []
    for name in names:
        column = np.asarray(columns[name])
        if column.dtype.kind in "mM" or _called_so(column):
            return None
        try:
            column = column.astype(np.float64)
        except (ValueError, TypeError):
            return None
        if np.isnan(column).any():
            return None
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite
            numbers = column.astype(np.float32)
        bad = np.flatnonzero(~np.isfinite(numbers))
        if bad.size:
            raise DataError(
                f"{where}: the column {name!r} has {bad.size} infinite values, first in row "
                f"{bad[0] + 2}"
            )
        found.append(numbers)
    return np.stack(found, axis=1)


def _called_so(column: npt.NDArray[Any]) -> bool:
    """Whether somebody has called its numbers categories."""
    return column.dtype == object and any(isinstance(one, Category) for one in column.tolist())


def _coded(x: npt.NDArray[Any], y: npt.NDArray[Any], schema: Schema | None, where: str) -> Source:
    """Labels as class numbers, of the schema's classes or of those found. Cells pass unseen."""
    if schema is not None:
        y = schema.codes(y, where)
    classes = None if schema is None else range(len(schema.classes))
    numbers = np.zeros((len(y), 1), dtype=np.float32) if x.dtype == object else x
    source = replace(arrays((numbers, y), classes=classes), x=x)
    return source if schema is None else replace(source, classes=schema.classes)


def _group_names(values: Any, group: str, where: str) -> npt.NDArray[Any]:
    found: Sequence[Cell] = cells(values, group)
    missing = [row for row, cell in enumerate(found) if cell is None]
    if missing:
        raise DataError(
            f"{where}: the column {group!r} (data.group) has {len(missing)} missing values, first "
            f"in row {missing[0] + 2}"
        )
    return np.asarray(values).astype(str)


def _labels(where: str, values: Any) -> npt.NDArray[Any]:
    """Whole numbers where every cell is written as one (7 or 7.0, not 007), else names."""
    column = np.asarray(values)
    texts = ["" if cell is None else str(cell) for cell in column.tolist()]
    missing = [row for row, cell in enumerate(texts) if cell.strip().lower() in ("", "nan", "<na>")]
    if missing:
        raise DataError(
            f"{where}: the label column has {len(missing)} missing values, first in row "
            f"{missing[0] + 2}"
        )
    if column.dtype.kind not in "OU":
        return column
    return np.array([int(float(cell)) for cell in texts] if all(map(is_whole, texts)) else texts)


def is_whole(cell: str) -> bool:
    """Whether a text is a whole number as a table writes it: 7 or 7.0, not 007."""
    try:
        number = float(cell)
    except ValueError:
        return False
    return (
        abs(number) < 2**53 and cell in (f"{number:.0f}", f"{number:.1f}") and number == int(number)
    )
