"""Where an axis starts, ends and has its numbers, and how these are written."""

from __future__ import annotations

import math
from collections.abc import Sequence

_ROUND = (1, 2, 2.5, 5, 10, 20)


def ticks(low: float, high: float, most: int = 5, whole: bool = False) -> list[float]:
    """Round numbers between two, at most so many; whole: of things that come in ones."""
    step = _step(high - low, most, whole)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _step(span: float, most: int, whole: bool = False) -> float:
    span = span or 1.0
    step = 10.0 ** math.floor(math.log10(span / most))
    step = next(step * factor for factor in _ROUND if span / (step * factor) <= most)
    return max(1, math.ceil(step)) if whole else step


def rounded(low: float, high: float, most: int = 5) -> tuple[float, float]:
    """The nearest numbers around two at which an axis has a tick, so that it starts and ends so."""
    step = 0.0
    while (wider := _step(high - low, most)) != step:
        step = wider
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return round(low, 12), round(high, 12)


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten, or the powers alone where that is too many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [
            factor * 10.0**power
            for power in powers
            for factor in factors
            if low <= factor * 10.0**power <= high
        ]
        if len(found) <= 6:
            break
    return found if len(found) > 1 else [low, high]


def number(value: float) -> str:
    """1500000 -> 1.5M; short enough for an axis."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):.3g}{letter}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def apart(wanted: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Middles of labels of these sizes that do not overlap, each as near to where it is wanted as
    the others allow (least squares), between low and high where they fit.
    """
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    # Without the room that the labels below take, middles may be equal but must not fall: pool the
    # neighbours that do.
    below, taken = [], 0.0
    for place in order:
        below.append(taken + sizes[place] / 2)
        taken += sizes[place]
    pools: list[tuple[float, int]] = []  # the sum of those pooled, and how many they are
    for place, room in zip(order, below, strict=True):
        pools.append((wanted[place] - room, 1))
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            (one, few), (two, more) = pools[-2:]
            pools[-2:] = [(one + two, few + more)]
    level = [total / many for total, many in pools for _ in range(many)]
    found = [0.0] * len(order)
    for place, room, middle in zip(order, below, level, strict=True):
        found[place] = room + max(low, min(middle, high - taken))
    return found
