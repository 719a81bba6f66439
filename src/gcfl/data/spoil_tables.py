"""Corruptions of tables.

missing   round(severity / 10 · d) values, at least one, are lost, and filled with the column's
          mean, as an importer would
scale     as many values are off by a factor of ten, either way, as in a wrong unit
gaussian  every value gets N(0, (0.4 · severity · the column's standard deviation)²)

A row counts as noisy, so it must differ from what it was: only values that change are picked, and
where a corruption changes nothing of a row (a factor on zeros, the mean of a constant column), the
next one named takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.data_types import FloatArray, IntArray
from gcfl.base.errors import DataError

TABULAR = ("missing", "scale", "gaussian")
Row = npt.NDArray[Any]


def spoil_rows(
    x: npt.NDArray[Any],
    rows: IntArray,
    names: Sequence[str],
    which: IntArray,
    words: IntArray,
    severity: int,
    mean: FloatArray,
    deviation: FloatArray,
) -> npt.NDArray[Any]:
    """x[rows] (m, d), row i spoiled by names[which[i]] with the draws that follow from words[i].
    Same dtype.
    """
    spoiled = x[rows]
    for place, (first, word) in enumerate(zip(which.tolist(), words.tolist(), strict=True)):
        before = spoiled[place].copy()
        for name in (*names[first:], *names[:first]):
            spoiled[place] = _spoil(
                before, name, np.random.Generator(np.random.Philox(word)), severity, mean, deviation
            )
            if not np.array_equal(spoiled[place], before):
                break
        else:
            raise DataError(
                f"row {rows[place]} of the data stays as it is under {' and '.join(names)}: "
                "attribute noise cannot spoil it; "
                "choose others with data.corruptions, or drop columns that never vary"
            )
    return spoiled


def _spoil(
    row: Row,
    name: str,
    draw: np.random.Generator,
    severity: int,
    mean: FloatArray,
    deviation: FloatArray,
) -> Row:
    values = row.astype(np.float64)
    if name == "gaussian":
        return _as(row.dtype, values + draw.normal(size=len(row)) * (0.4 * severity * deviation))
    if name == "missing":
        wrong = _as(row.dtype, mean)
    else:
        factors = 10.0 ** draw.choice([-1, 1], size=len(row))
        wrong = _as(row.dtype, values * factors)
        # bytes that are at their limit go the other way
        wrong = np.where(wrong != row, wrong, _as(row.dtype, values / factors))
    hit = max(1, round(severity / 10 * len(row)))
    places = draw.permutation(np.flatnonzero(wrong != row))[:hit]
    after = row.copy()
    after[places] = wrong[places]
    return after


def _as(dtype: np.dtype[Any], values: FloatArray) -> Row:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = np.clip(np.round(values), limits.min, limits.max)
    limit = np.finfo(np.float32).max  # ten times a huge number is still a number
    return np.clip(values, -limit, limit).astype(dtype)
