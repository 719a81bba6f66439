"""How many points, and how they are shared out over classes."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from gcfl.base.data_types import IntArray
from gcfl.base.errors import ConfigError, one_of
from gcfl.base.options import largest_remainder

Split = Literal["proportional", "equal"]


def points(share: float, n: int) -> int:
    """b = max(1, round(share * n))."""
    return min(n, max(1, round(share * n)))


def per_class(counts: IntArray, budget: int, split: Split) -> IntArray:
    """b_c (C,) with sum exactly min(budget, n), never more than a class has.

    `proportional` to the samples of each class, by largest remainder; `equal` for each class that
    is present, where what exceeds a class is handed on to the others.
    """
    if split not in get_args(Split):
        raise ConfigError(f"split must be {one_of(get_args(Split))}, got {split!r}")
    total = int(counts.sum())
    budget = min(budget, total)
    if total == 0:
        return np.zeros_like(counts)
    if split == "proportional":
        return np.minimum(largest_remainder(counts / total, budget), counts)
    given = np.zeros_like(counts)
    while (left := budget - int(given.sum())) > 0:
        open_classes = np.flatnonzero(given < counts)
        share = left // len(open_classes)
        if share == 0:  # what cannot be split evenly goes to the first ones
            open_classes, share = open_classes[:left], 1
        given[open_classes] = np.minimum(given[open_classes] + share, counts[open_classes])
    return given
