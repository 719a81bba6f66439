"""Options that several selectors share."""

from __future__ import annotations

from typing import Literal

from gcfl.base.options import Count, NonNegative, Options
from gcfl.coreset import Pursuit
from gcfl.coreset.budget import Split
from gcfl.coreset.omp import Score


class SplitOptions(Options):
    """For selectors that go class by class."""

    split: Split = "proportional"
    """how the budget is shared over classes (label-wise)"""


class VariantOptions(SplitOptions):
    """For selectors that can also go over all samples at once."""

    variant: Literal["label-wise", "whole"] = "label-wise"
    """class by class, or over all samples at once"""


class PursuitOptions(Options):
    """How orthogonal matching pursuit goes."""

    score: Score = "correlation"
    """which point is next: correlation (classical), distance (the paper's text), nearest (no
    residual)
    """
    ridge: NonNegative = 0.5
    """λ, the weight of ‖w‖²"""
    nonnegative: bool = True
    """weights w >= 0"""
    points_per_step: Count = 1
    """points added before the weights are solved again"""
    tolerance: NonNegative = 1e-10
    """stop the pursuit at this residual, relative to the target, and fill the budget"""

    @property
    def how(self) -> Pursuit:
        return Pursuit(
            self.score, self.ridge, self.nonnegative, self.points_per_step, self.tolerance
        )
