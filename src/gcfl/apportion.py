"""Whole counts from shares."""

from __future__ import annotations

import numpy as np

from gcfl.types import FloatArray, IntArray


def largest_remainder(shares: FloatArray, total: int) -> IntArray:
    """Whole counts with sum `total`, each within one of shares * total; ties go to the
    lower index.
    """
    exact = shares * total
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - counts), kind="stable")
    missing = total - int(counts.sum())
    counts[order[:missing]] += 1
    return counts
