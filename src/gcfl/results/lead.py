"""How far one group of runs is ahead of another, and whether their seeds bear that out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot
from statistics import mean, stdev

FEWEST = 3  # seeds, below which a spread is hardly known


@dataclass(frozen=True)
class Lead:
    """by: the difference of two mean accuracies. sd: its standard deviation over seeds; None where
    one seed is all there is. seeds: how many told it.
    """

    by: float
    sd: float | None
    seeds: int

    @property
    def clear(self) -> bool:
        """Whether the difference is more than the seeds' spread."""
        return self.sd is not None and self.by > self.sd

    @property
    def starred(self) -> bool:
        """Whether it is that, over enough seeds."""
        return self.clear and self.seeds >= FEWEST


def lead(first: Mapping[int, float], second: Mapping[int, float]) -> Lead:
    """Of accuracies by seed. A seed deals the same data to both, so the differences seed by seed
    count: their mean and their standard deviation. Where two seeds are not shared, the difference
    of the means, and the root of the sum of both variances.
    """
    shared = sorted(first.keys() & second.keys())
    if len(shared) > 1:
        differences = [first[seed] - second[seed] for seed in shared]
        return Lead(mean(differences), stdev(differences), len(shared))
    by = mean(first.values()) - mean(second.values())
    seeds = min(len(first), len(second))
    spread = hypot(stdev(first.values()), stdev(second.values())) if seeds > 1 else None
    return Lead(by, spread, seeds)
