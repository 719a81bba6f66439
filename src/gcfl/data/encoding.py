"""Where the encoding of a table comes from: a schema file, the server's clean set, or, if the user
allows it, everybody's rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.cells import Cell, kind_of, numbers, text, written_as
from gcfl.base.data_types import IntArray
from gcfl.base.dates import day_or_month
from gcfl.base.encoding import Column, Encoding, Table
from gcfl.base.errors import ConfigError, DataError
from gcfl.data.options import DataOptions
from gcfl.data.source import Source, read_text
from gcfl.data.split import split_official_rows, split_rows, split_server_rows

log = logging.getLogger("gcfl.data")
SEEN = 5  # a value travels with the model where so many rows have it
Cells = npt.NDArray[Any]


def encoded(
    source: Source,
    options: DataOptions,
    seed: int,
    alone: bool = False,
    without: IntArray | None = None,
) -> Source:
    """The source with features in place of a table's cells; one that has features stays as it is.

    What the encoding knows comes from a schema file; else from the rows that become the server's
    clean set, or from all but the test set where data.encode_by allows it. alone: all rows are the
    server's. without: ids of clean samples that nothing may be taken from.
    """
    if source.x.dtype != object or source.columns is None:
        return source
    if options.schema_file is not None:
        encoding = read_schema(options.schema_file)
    else:
        rows = _fitted_on(source, options, seed, alone, without)
        table = dict(zip(source.columns, rows.T, strict=True))
        encoding = fit(table, options.max_categories, options.date_format)
        log.info(
            "%d values, and what fills gaps, were taken from %s and travel with the model "
            "(data.schema_file names others)",
            sum(len(column.values) for column in encoding.columns),
            "the server's clean set" if options.encode_by == "clean" else "everybody's rows",
        )
    return with_encoding(source, encoding)


def with_encoding(source: Source, encoding: Encoding) -> Source:
    """The source with the features of an encoding that is there."""
    names, rows = source.columns, source.rows
    if names is None:
        raise DataError(f"{source.name} is no table, and so has no columns to encode")

    def features(cells: Cells, where: str, rows: Any = None) -> npt.NDArray[np.float32]:
        def row_of(row: int) -> int:  # as a text editor counts, with the header
            return int(row if rows is None else rows[row]) + 2

        return encoding.apply(dict(zip(names, cells.T, strict=True)), where, row_of)

    pairs: dict[str, Any] = {
        name: (features(pair[0], f"data.{name}"), pair[1])
        for name in ("validation", "test")
        if (pair := getattr(source, name)) is not None
    }
    return replace(
        source,
        x=features(source.x, source.name, rows),
        columns=encoding.names,
        encoding=encoding,
        **pairs,
    )


def _fitted_on(
    source: Source, options: DataOptions, seed: int, alone: bool, without: IntArray | None
) -> Cells:
    """(m, columns) the cells that vocabulary and statistics are taken from."""
    official = None if alone or not source.validation_from_test else source.test
    if official is not None:  # ids of its rows go on after the training rows
        clean, _ = split_official_rows(source, official[1], options, seed)
        kept = clean if without is None else clean[~np.isin(clean + len(source), without)]
        own = official[0][kept]
        return own if options.encode_by == "clean" else np.concatenate([own, source.x])
    if alone:
        rest, clean = np.empty(0, dtype=np.int64), split_server_rows(source, options, seed)[0]
    else:
        rest, clean, _ = split_rows(source, options, seed)
    cells = source.x
    if source.validation is not None:
        cells, clean = source.validation[0], np.arange(len(source.validation[0]))
    own = cells[clean if without is None else clean[~np.isin(clean, without)]]
    if options.encode_by == "clean":
        return own
    return np.concatenate([own, source.x[rest]])


def fit(table: Table, most: int, format: str | None = None) -> Encoding:
    """The encoding of these columns: texts of more than `most` values are hashed into so many
    buckets. format: how texts may write dates.
    """
    columns: list[Column] = []
    empty, unknown, either = [], [], []
    for name, cells in table.items():
        column = _column(name, cells, most, format)
        if column is None:
            empty.append(name)
            continue
        if column.kind == "category" and not column.values:
            unknown.append(name)
        if column.kind in ("category", "hashed") and _day_or_month(cells):
            either.append(name)
        columns.append(column)
    if empty:
        log.warning(
            "left out, since no row of the server's has a value there: %s (a schema file, "
            "data.schema_file, can say what they hold)",
            ", ".join(empty),
        )
    if unknown:
        log.warning(
            "no value stands in %d rows of the server's clean set, so that all count as other: %s "
            "(a larger clean set, or a schema file, data.schema_file, tells values apart)",
            SEEN,
            ", ".join(unknown),
        )
    if either:
        log.warning(
            "taken for texts, since nobody can tell the day from the month in 1/2/2024: %s (say "
            'how dates are written, data.date_format = "%%d/%%m/%%Y")',
            ", ".join(either),
        )
    if not columns:
        raise DataError("no column of the table has a value in the server's clean set")
    return Encoding(tuple(columns))


def _day_or_month(cells: Sequence[Cell]) -> bool:
    return all(isinstance(one, str) and day_or_month(one) for one in cells if one is not None)


def _column(name: str, cells: Sequence[Cell], most: int, format: str | None) -> Column | None:
    """One column; None where it is empty."""
    from sklearn.impute import SimpleImputer

    if format is not None and not written_as(cells, format):
        format = None
    kind = kind_of(cells, format)
    if kind is None:
        return None
    missing = any(cell is None for cell in cells)
    if kind != "category":
        strategy = "most_frequent" if kind == "boolean" else "median"
        found = numbers(cells, kind, format)
        finite = found[np.isfinite(found)]  # what is infinite is told with its row, when applied
        # a median of fewer is somebody's own value
        enough = finite[:, None] if len(finite) >= SEEN else [[0.0]]
        filler = SimpleImputer(strategy=strategy).fit(enough)
        middle = float(filler.statistics_[0])
        return Column(name=name, kind=kind, fill=middle, indicator=missing, format=format)
    texts = np.array([text(cell) for cell in cells if cell is not None], dtype=object)
    if len(set(texts)) > most:
        return Column(name=name, kind="hashed", buckets=most, indicator=missing)
    values, fill = _vocabulary(texts)
    return Column(name=name, kind="category", values=values, fill=fill, indicator=missing)


def _vocabulary(texts: Cells) -> tuple[list[str], str | None]:
    """The values that enough rows have, sorted, and the most frequent one."""
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    coder = OneHotEncoder(min_frequency=SEEN, handle_unknown="infrequent_if_exist")
    coder.fit(texts[:, None])
    rare = coder.infrequent_categories_[0]
    known = set(coder.categories_[0]) - set(() if rare is None else rare)
    if not known:
        return [], None
    often = np.array([one for one in texts if one in known], dtype=object)[:, None]
    fill = SimpleImputer(strategy="most_frequent").fit(often).statistics_[0]
    return sorted(known), str(fill)


def read_schema(path: str) -> Encoding:
    """Of data.schema_file."""
    return Encoding.from_json(read_text(path, "data.schema_file"), f"{path} (data.schema_file)")


def schema_of(source: Source, options: DataOptions) -> Encoding:
    """What a schema file may say of all rows of a table: for `gcfl data schema`."""
    if source.encoding is not None and source.columns is not None:  # plain numbers
        cells = source.x.astype(object)
    elif source.columns is not None and source.x.dtype == object:
        cells = source.x
    else:
        raise ConfigError(f"{source.name} is no table: only tables have a schema")
    table = dict(zip(source.columns, cells.T, strict=True))
    return fit(table, options.max_categories, options.date_format)
