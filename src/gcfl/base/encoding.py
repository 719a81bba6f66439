"""How the columns of a table become features: plain data, which travels with a model.

What fits one is in `data/encoding.py`; a trained model, a site and the server all apply it here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gcfl.base.cells import Cell, numbers, text
from gcfl.base.dates import names_a_date
from gcfl.base.errors import ConfigError, DataError, did_you_mean
from gcfl.base.options import Options, checked

Block = npt.NDArray[np.float32]
Table = Mapping[str, Sequence[Cell]]
_MOST_COLUMNS = 2**16
_FORMAT = 1


class _BadCell(Exception):
    """What is wrong with a column, up to the number of the row, that row, and what follows."""

    def __init__(self, what: str, row: int, more: str = "") -> None:
        self.what, self.row, self.more = what, row, more


class Column(Options):
    """One column of a table, and what becomes of it."""

    name: str
    kind: Literal["number", "boolean", "date", "category", "hashed"]
    """number, boolean (0 and 1) and date (days since 1970) become one feature; category one for
    each of its values, and one for all others; hashed one for each bucket
    """
    fill: float | str | None = None
    """what stands in for a missing value; unset: numbers may not be missing, a category is then
    other, and no bucket is hit
    """
    indicator: bool = False
    """one more feature: whether the value was missing"""
    values: list[str] = Field(default=[])
    """category: those with a feature of their own"""
    buckets: int = 0
    """hashed: how many"""
    format: str | None = None
    """date: how texts write it, by the letters of strptime (%d/%m/%Y); unset: ISO's way, or the
    month by its English name
    """

    @property
    def sound(self) -> bool:
        """Whether its parts go together."""
        fill, values = self.fill, self.values
        if self.format is not None and not (self.kind == "date" and names_a_date(self.format)):
            return False
        if self.kind == "category":
            return (fill is None or fill in values) and len(set(values)) == len(values)
        if self.kind == "hashed":
            return fill is None and not values and 1 <= self.buckets <= _MOST_COLUMNS
        number = isinstance(fill, int | float) and math.isfinite(fill)
        return (fill is None or number) and not values

    @property
    def features(self) -> tuple[str, ...]:
        """The names of what it becomes, without the indicator."""
        if self.kind == "category":
            return (*(f"{self.name}={value}" for value in self.values), f"{self.name}=(other)")
        if self.kind == "hashed":
            return tuple(f"{self.name}#{place}" for place in range(self.buckets))
        return (self.name,)

    def block(self, column: Sequence[Cell]) -> Block:
        """(n, features) of n cells."""
        if self.kind == "category":
            found = self._one_hot(column)
        elif self.kind == "hashed":
            found = self._hashed(column)
        else:
            found = self._numbers(column)
        if self.indicator:
            missing = np.array([cell is None for cell in column], dtype=np.float32)
            found = np.column_stack([found, missing])
        return found

    def _one_hot(self, column: Sequence[Cell]) -> Block:
        place = {value: number for number, value in enumerate(self.values)}
        other = len(self.values)
        filled = place.get(str(self.fill), other)
        hit = [filled if cell is None else place.get(text(cell), other) for cell in column]
        found = np.zeros((len(column), other + 1), dtype=np.float32)
        found[np.arange(len(column)), hit] = 1
        return found

    def _hashed(self, column: Sequence[Cell]) -> Block:
        from sklearn.feature_extraction import FeatureHasher

        hasher = FeatureHasher(self.buckets, input_type="string", alternate_sign=False)
        words = [[] if cell is None else [text(cell)] for cell in column]
        found: Block = hasher.transform(words).toarray().astype(np.float32)
        return found

    def _numbers(self, column: Sequence[Cell]) -> Block:
        kind: Any = self.kind
        try:
            found = numbers(column, kind, self.format)
        except IndexError as error:
            row = int(error.args[0])
            what = {"number": "a number", "boolean": "true or false"}.get(
                kind, "a date" if self.format is None else f"a date such as {self.format}"
            )
            raise _BadCell(f"holds {column[row]!r} in row", row, f", which is not {what}") from None
        missing = np.isnan(found)
        if self.fill is None and missing.any():
            what = f"has {int(missing.sum())} missing values, first in row"
            raise _BadCell(what, int(missing.argmax()), ", and no value to fill them with is known")
        found[missing] = 0.0 if self.fill is None else float(self.fill)
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite
            block: Block = found.astype(np.float32)[:, None]
        bad = np.flatnonzero(~np.isfinite(block[:, 0]))
        if bad.size:
            raise _BadCell(f"has {bad.size} infinite values, first in row", int(bad[0]))
        return block


@dataclass(frozen=True)
class Encoding:
    """All columns of a table that are features, in their order."""

    columns: tuple[Column, ...]

    @classmethod
    def plain_numbers(cls, names: Sequence[str]) -> Encoding:
        """Columns of numbers without gaps, as they are."""
        return cls(tuple(Column(name=name, kind="number") for name in names))

    @classmethod
    def from_plain(cls, found: Any) -> Encoding:
        """The inverse of `to_plain`, of a file that may be anybody's."""
        if not isinstance(found, list) or not 1 <= len(found) <= _MOST_COLUMNS:
            raise DataError("an encoding is a list of columns, at least one")
        if not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in found):
            raise DataError("every column of an encoding is a table with a name")
        try:
            columns = tuple(checked(Column, one, str(one["name"])[:80]) for one in found)
        except ConfigError as error:
            raise DataError(f"not an encoding: {error}") from None
        if wrong := next((one.name for one in columns if not one.sound), None):
            raise DataError(f"the column {wrong!r} of an encoding does not say what its kind needs")
        if len({one.name for one in columns}) != len(columns):
            raise DataError("two columns of an encoding have the same name")
        encoding = cls(columns)
        if encoding.width > _MOST_COLUMNS:
            raise DataError(f"an encoding has at most {_MOST_COLUMNS} features")
        return encoding

    def to_plain(self) -> list[dict[str, Any]]:
        return [column.model_dump(exclude_defaults=True) for column in self.columns]

    @classmethod
    def from_json(cls, content: str, where: str) -> Encoding:
        """Of a schema file."""
        try:
            found = json.loads(content)
            if not isinstance(found, dict) or found.get("format") != _FORMAT:
                raise DataError(f'it needs "format": {_FORMAT} and "columns"')
            return cls.from_plain(found.get("columns"))
        except (ValueError, RecursionError, DataError) as error:
            raise DataError(f"{where} is not a schema of a table ({error})") from None

    def to_json(self) -> str:
        found = {"format": _FORMAT, "columns": self.to_plain()}
        return json.dumps(found, indent=1, ensure_ascii=False) + "\n"

    @property
    def width(self) -> int:
        """How many features it makes."""
        return sum(len(column.features) + column.indicator for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features: age, sex=female, sex=(other), age (missing)."""
        found: list[str] = []
        for column in self.columns:
            found += [*column.features, *([f"{column.name} (missing)"] * column.indicator)]
        return tuple(found)

    @property
    def measured(self) -> npt.NDArray[np.bool_]:
        """(width,) which features are numbers and dates; the others are 0 or 1."""
        found: list[bool] = []
        for column in self.columns:
            found += [column.kind in ("number", "date")] * len(column.features)
            found += [False] * column.indicator
        return np.array(found, dtype=bool)

    @property
    def plain(self) -> bool:
        """Whether it leaves every number as it is."""
        return self == self.plain_numbers([column.name for column in self.columns])

    def apply(
        self, table: Table, where: str, row_of: Callable[[int], int] = lambda row: row
    ) -> Block:
        """(n, width) of a table's columns, which go by name; others are ignored.

        where: whose table, for the messages. row_of: what its owner calls a row.
        """
        blocks = []
        for column in self.columns:
            if column.name not in table:
                raise DataError(
                    f"{where} has no column {column.name!r}, which the model's table "
                    f"has{did_you_mean(column.name, table)}"
                )
            try:
                blocks.append(column.block(table[column.name]))
            except _BadCell as bad:
                raise DataError(
                    f"{where}: the column {column.name!r} {bad.what} {row_of(bad.row)}{bad.more}; "
                    "mend it, leave the column out (data.drop), or say in a schema file "
                    "(data.schema_file) what it holds"
                ) from None
        return np.concatenate(blocks, axis=1)

    def unseen(self, table: Table) -> dict[str, int]:
        """How many cells of each category are a value without a feature of its own."""
        found: dict[str, int] = {}
        for column in self.columns:
            if column.kind == "category":
                known = set(column.values)
                cells = table.get(column.name, ())
                count = sum(cell is not None and text(cell) not in known for cell in cells)
                found |= {column.name: count} if count else {}
        return found
