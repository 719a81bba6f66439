"""Columns of a table that teach nothing: told, and left in."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.cells import cells, kind_of
from gcfl.base.dates import day_or_month
from gcfl.data.source import Source

log = logging.getLogger("gcfl.data")
_MANY = 20  # rows that must differ before a column looks like an id
_ID = re.compile(r"(^|.*[\W_])(id|uuid|guid)$", re.IGNORECASE)


def warn_of_useless(source: Source, date_format: str | None = None) -> None:
    """Columns that say nothing, or that only name the row. date_format: how texts write dates."""
    if source.columns is None:
        return
    columns = dict(zip(source.columns, source.x.T, strict=True))
    constant = [name for name, column in columns.items() if (column == column[0]).all()]
    ids = [name for name, column in columns.items() if _like_an_id(name, column, date_format)]
    for what, names in (
        ("the same value in every row of", constant),
        ("another value in every row, like an id, in", ids),
    ):
        if names:
            log.warning(
                "%s has %s %s: data.drop leaves columns out", source.name, what, ", ".join(names)
            )


def _like_an_id(name: str, column: npt.NDArray[Any], date_format: str | None) -> bool:
    """All different, and texts that are no dates, or whole numbers that are called an id or that
    only count.
    """
    if len(column) < _MANY or not _all_differ(column):
        return False
    try:
        numbers = column.astype(np.float64)
    except (ValueError, TypeError):
        texts = all(isinstance(value, str) for value in column)
        return texts and not _dates(name, column, date_format)
    whole = bool((numbers == np.round(numbers)).all())
    return whole and (bool(_ID.match(name)) or bool((np.abs(np.diff(numbers)) == 1).all()))


def _dates(name: str, column: npt.NDArray[Any], date_format: str | None) -> bool:
    """Also those of which nobody can say what is the day."""
    found = cells(column, name)
    either = all(isinstance(one, str) and day_or_month(one) for one in found if one is not None)
    return either or kind_of(found, date_format) == "date"


def _all_differ(column: npt.NDArray[Any]) -> bool:
    if column.dtype != object:
        return len(np.unique(column)) == len(column)
    return None not in (values := set(column)) and len(values) == len(column)
