"""The cells of a table as one kind of thing, whatever they came in: CSV, parquet, a DataFrame."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gcfl.base.data_types import FloatArray
from gcfl.base.dates import moment
from gcfl.base.errors import DataError

# Text, a number, true or false, a moment; None where nothing is known.
Cell = str | float | bool | datetime | None
Kind = Literal["number", "boolean", "date", "category"]

# What pandas takes for missing, and the question mark of UCI's tables.
_MISSING = {
    *("", "?", "nan", "NaN", "-nan", "-NaN", "NA", "N/A", "n/a", "#N/A", "#NA", "#N/A N/A"),
    *("<NA>", "NULL", "null", "None", "1.#IND", "1.#QNAN", "-1.#IND", "-1.#QNAN"),
}
_TRUE_OR_FALSE = {"true": 1.0, "false": 0.0}
_EPOCH = datetime(1970, 1, 1)
_DAY = timedelta(days=1)


class Category(str):
    """A whole number that a DataFrame's owner has called a category."""

    __slots__ = ()


def is_frame(thing: Any) -> bool:
    """Whether it is a DataFrame (pandas', polars'), without importing a library for it."""
    return all(hasattr(thing, name) for name in ("columns", "dtypes", "__getitem__", "shape"))


def columns_of(frame: Any) -> dict[str, npt.NDArray[Any]]:
    """The columns of a DataFrame by name, as they came."""
    names = [str(name) for name in frame.columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"the table has more than one column {twice!r}; rename or drop all but one")
    return {name: _values(frame[column]) for name, column in zip(names, frame.columns, strict=True)}


def _values(column: Any) -> npt.NDArray[Any]:
    """As they came, but whole numbers that are called categories, which numpy would not know."""
    values = np.asarray(column)
    categories = getattr(column.dtype, "categories", None)  # pandas'
    if getattr(getattr(categories, "dtype", None), "kind", "") not in tuple("iu"):
        return values
    found = np.empty(len(values), dtype=object)
    known = map(_cell, values.tolist())
    found[:] = [None if cell is None else Category(text(cell)) for cell in known]
    return found


def cells(values: Any, name: str) -> list[Cell]:
    """The cells of the column `name`, of whatever types its values are."""
    array = np.asarray(values)
    if array.dtype.kind in "mM":  # to moments and spans that Python knows
        array = array.astype(f"{'datetime' if array.dtype.kind == 'M' else 'timedelta'}64[us]")
    found: list[Cell] = []
    for row, value in enumerate(array.tolist()):
        try:
            found.append(_cell(value))
        except ValueError:
            raise DataError(
                f"the column {name!r} holds a {type(value).__name__} in row {row}, which is no "
                "text, number or date; drop it (data.drop)"
            ) from None
    return found


def _cell(value: Any) -> Cell:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, bytes):
        value = value.decode("utf-8")
    if isinstance(value, Category):
        return value
    if isinstance(value, str):
        text = str(value).strip()
        return None if text in _MISSING else text
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | float | Decimal | np.number):
        number = float(value)
        return None if math.isnan(number) else number
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, timedelta):
        return value / _DAY
    raise ValueError


def number(cell: Cell, kind: Kind, format: str | None = None) -> float:
    """A cell that is there as a number: of a date, the days since 1970. ValueError where it is
    none. format: how texts write a date.
    """
    if kind == "date":
        return _days(cell, format)
    if kind == "boolean" and isinstance(cell, str):
        cell = _TRUE_OR_FALSE.get(cell.casefold())
    if isinstance(cell, datetime) or cell is None:
        raise ValueError
    value = float(cell)
    if kind == "boolean" and value not in (0.0, 1.0):
        raise ValueError
    return value


def _days(cell: Cell, format: str | None) -> float:
    if isinstance(cell, float) and format is not None:  # 20240229, which a table took for a number
        cell = text(cell)
    if isinstance(cell, str):
        cell = moment(cell, format)
    if not isinstance(cell, datetime):
        raise ValueError
    local = cell if cell.tzinfo is None else cell.astimezone(UTC).replace(tzinfo=None)
    return (local - _EPOCH) / _DAY


def numbers(column: Sequence[Cell], kind: Kind, format: str | None = None) -> FloatArray:
    """(n,) NaN where nothing is known. IndexError, with the row, where a cell is something else."""
    found = np.full(len(column), math.nan)
    for row, cell in enumerate(column):
        if cell is not None:
            try:
                found[row] = number(cell, kind, format)
            except (ValueError, OverflowError):
                raise IndexError(row) from None
    return found


def text(cell: Cell) -> str:
    """A cell that is there as the name of a category: 1 and 1.0 are the same."""
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else repr(cell)
    return cell.isoformat() if isinstance(cell, datetime) else str(cell)


def kind_of(column: Iterable[Cell], format: str | None = None) -> Kind | None:
    """What all cells are that are there; None where none is. format: how texts may write a date."""
    there = [cell for cell in column if cell is not None]
    if not there:
        return None
    if any(isinstance(cell, Category) for cell in there):
        return "category"
    if format is not None and written_as(there, format):
        return "date"
    if all(
        isinstance(cell, bool) or (isinstance(cell, str) and cell.casefold() in _TRUE_OR_FALSE)
        for cell in there
    ):
        return "boolean"
    kinds: tuple[Kind, ...] = ("number", "date")
    for kind in kinds:
        try:
            numbers(there, kind)
        except IndexError:
            continue
        return kind
    return "category"


def written_as(column: Iterable[Cell], format: str) -> bool:
    """Whether all cells that are there are texts, and dates of this format."""
    there = [cell for cell in column if cell is not None]
    try:
        return bool(there) and all(isinstance(one, str) and moment(one, format) for one in there)
    except ValueError:
        return False
