"""The base of every group of settings: frozen, strict, no unknown keys, and limits that read as
sentences.

Each room declares its own options next to the code that uses them; `experiment` puts them together
and turns what pydantic finds into one sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict

from gcfl.base.data_types import FloatArray, IntArray


class Options(BaseModel):
    """Settings of one room."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )


def within(
    low: float, high: float, *, low_open: bool = False, high_open: bool = False
) -> Callable[[Any], Any]:
    """A validator for an interval; infinite ends are open by nature."""
    shown_high = "inf)" if math.isinf(high) else f"{high:.10g}{')' if high_open else ']'}"
    text = f"{'(' if low_open else '['}{low:g}, {shown_high}"

    def check(value: Any) -> Any:
        # Written so that NaN fails every comparison.
        above = value > low if low_open else value >= low
        below = value < high if high_open or math.isinf(high) else value <= high
        if not (above and below):
            raise ValueError(f"must be in {text}")
        return value

    return check


LARGEST = 2**31 - 1


def at_least(low: int) -> Callable[[Any], Any]:
    """A validator for whole numbers that also keeps out what no machine can count."""

    def check(value: Any) -> Any:
        if value < low:
            raise ValueError(f"must be at least {low}")
        if value > LARGEST:
            raise ValueError(f"must be at most {LARGEST}")
        return value

    return check


def _size(value: int | float) -> int | float:
    if isinstance(value, bool) or not (value >= 1 if isinstance(value, int) else 0 < value <= 1):
        raise ValueError("must be a share in (0, 1] or a whole count of at least 1")
    return value


PositiveShare = Annotated[float, AfterValidator(within(0, 1, low_open=True))]
Positive = Annotated[float, AfterValidator(within(0, math.inf, low_open=True))]
NonNegative = Annotated[float, AfterValidator(within(0, math.inf))]
Count = Annotated[int, AfterValidator(at_least(1))]
Size = Annotated[int | float, AfterValidator(_size)]


def resolve_size(size: int | float, total: int) -> int:
    """A whole number is a count; one with a point is a share of `total`, rounded, at least 1."""
    return size if isinstance(size, int) else max(1, round(size * total))


def largest_remainder(shares: FloatArray, total: int) -> IntArray:
    """Whole counts with sum `total`, each within one of shares * total; ties go to the first."""
    exact = shares * total
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - counts), kind="stable")
    missing = total - int(counts.sum())
    counts[order[:missing]] += 1
    return counts
