"""What of an audit leaves a site, and what the server makes of it: `audit.share`.

    none     nothing
    rate     the number of samples, the estimated share of wrong labels and its interval
    matrix   also, by class, samples labelled so and samples estimated to be so, and samples by
             label and suggested class

Of a site with fewer than 5 samples only their number is told. Counts under 5 are withheld, and so
is, where need be, one more: those of a class sum to its labels and those of all classes to the
samples, and what is withheld must not follow from what is told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.data_types import IntArray
from gcfl.base.errors import ConfigError, one_of
from gcfl.base.options import LARGEST
from gcfl.methods.answers import is_whole
from gcfl.results.findings import Findings

LEVELS = ("none", "rate", "matrix")
FEWEST = 5
WITHHELD = -1  # on its way; null in sites.json


def lower(asked: str, allowed: str) -> str:
    """The smaller of two levels."""
    for level in (asked, allowed):
        if level not in LEVELS:
            raise ConfigError(f"what a site shares must be {one_of(LEVELS)}, got {level!r}")
    return min(asked, allowed, key=LEVELS.index)


def withheld(counts: IntArray, order: Sequence[int]) -> npt.NDArray[np.bool_]:
    """(k,) which of the counts (k,), whose sum is known, are not told: those under 5 and, where
    that is a single one, or their sum is under 5 or so large that each must be 4, the first other
    one in `order`. The order must not come from the counts, or it would tell something of them.
    """
    hidden = counts < FEWEST
    number, together = int(hidden.sum()), int(counts[hidden].sum())
    if number == 1 or (number and not FEWEST <= together < number * (FEWEST - 1)):
        other = next((place for place in order if not hidden[place]), None)
        if other is not None:
            hidden[other] = True
    return hidden


def share_of(found: Findings, level: str) -> dict[str, Any]:
    """What leaves a site: numbers and flat lists of numbers."""
    if level == "none":
        return {}
    told: dict[str, Any] = {"samples": len(found)}
    if len(found) < FEWEST:
        return told
    low, high = found.interval
    told |= {"rate": float(found.rate), "low": float(low), "high": float(high)}
    if level == "rate":
        return told
    classes = len(found.classes)
    labelled = np.bincount(found.labels, minlength=classes)
    estimated = np.round(found.prior * len(found)).astype(np.int64)
    # One set of classes for both, by the smaller count; a class that is withheld is so as a whole.
    hidden = withheld(np.minimum(labelled, estimated), range(classes))
    table = found.confusion
    for label in range(classes):
        after = [(label + step) % classes for step in range(1, classes + 1)]  # itself last
        table[label, hidden[label] | withheld(found.confusion[label], after)] = WITHHELD
    return told | {
        "labelled": np.where(hidden, WITHHELD, labelled).tolist(),
        "estimated": np.where(hidden, WITHHELD, estimated).tolist(),
        "confusion": table.reshape(-1).tolist(),
    }


def read_share(told: Mapping[str, Any], level: str, classes: int) -> dict[str, Any]:
    """What a site told, checked, as sites.json has it; what was not asked for is not looked at."""
    if level == "none" or "samples" not in told:
        return {}
    found: dict[str, Any] = {"samples": _count(told["samples"])}
    if "rate" in told:
        rate, low, high = (_share(told[name]) for name in ("rate", "low", "high"))
        found |= {"rate": rate, "interval": [low, high]}
    if level == "matrix" and "labelled" in told:
        found |= {name: _counts(told[name], classes) for name in ("labelled", "estimated")}
        table = _counts(told["confusion"], classes * classes)
        found["confusion"] = [table[row * classes : (row + 1) * classes] for row in range(classes)]
    return found


def _count(value: Any) -> int:
    if not is_whole(value, 0, LARGEST):
        raise ValueError(f"{value!r} is not a number of samples")
    return value


def _share(value: Any) -> float:
    if not isinstance(value, float) or not math.isfinite(value) or not 0 <= value <= 1:
        raise ValueError(f"{value!r} is not a share")
    return value


def _counts(values: Any, length: int) -> list[int | None]:
    if not isinstance(values, list) or len(values) != length:
        raise ValueError(f"not {length} counts")
    return [None if value == WITHHELD else _count(value) for value in values]
