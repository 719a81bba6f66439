"""Selectors that represent all samples: facility location in one space or another."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from gcfl.base.data_types import Coreset, Tree
from gcfl.base.options import NonNegative
from gcfl.coreset.facility import cosine, facility_location, most_central, negative_distance
from gcfl.coreset.gradients import Gradients
from gcfl.coreset.pool import Pool, Split
from gcfl.coreset.selector import ByClass, Draw, WithVariants


class FacilityLocation(WithVariants):
    """max over |X| <= b of Σ_i max_{j in X} (1 + cos(h_i, h_j)) / 2, per class or whole."""

    name: ClassVar[str] = "facility"
    summary: ClassVar[str] = "samples that best represent the client's features (facility location)"
    multi_label: ClassVar[bool] = True

    def pick(
        self, pool: Pool, target: Tensor | None, budget: int, draw: Draw, memory: Tree
    ) -> tuple[Coreset, Tree]:
        if self.variant == "whole":
            return facility_location(cosine(pool.features), len(pool), budget), {}

        def one_class(label: int, rows: Tensor, share: int) -> Coreset:  # noqa: ARG001
            return facility_location(cosine(pool.features[rows]), len(rows), share)

        return pool.each_class(budget, self.split, one_class), {}


class Crust(ByClass):
    """CRUST (Mirzasoleiman, Cao, Leskovec 2020): medoids of the last-layer gradients, per class.

    formula: min over |X| <= b of Σ_i min_{j in X} ‖g_i - g_j‖ with g_j = (p_j - onehot(y_j)) ⊗
    [h_j, 1], as facility location on D - distance; weights are the clusters' sizes. The idea is
    that samples with clean labels cluster and wrong ones scatter.

    released: what the code of its authors returns, and that of GCFL's. There a candidate's value
    is compared as f(X + j), not as the gain f(X + j) - f(X), so that the lazy heap accepts every
    candidate in the order of its first value: the b points with the largest row sum of
    similarities Σ_i (D - ‖g_i - g_j‖), in g_j = ∂L/∂h_j = (p_j - onehot(y_j)) W (d,), the gradient
    with respect to the last layer's input. Weights are the points of the class nearer than
    `radius`. Equal sums: the later sample first. Central points, not medoids: one cluster may have
    them all.
    """

    name: ClassVar[str] = "crust"
    summary: ClassVar[str] = (
        "medoids of the last-layer gradients per class, or the most central points (CRUST)"
    )

    crust: Literal["formula", "released"] = "formula"
    """medoids, as CRUST's formula says, or the most central points, as its released code returns"""
    radius: NonNegative = 2.0
    """a point's weight is how many of its class are nearer than this (crust = "released")"""

    def pick(
        self, pool: Pool, target: Tensor | None, budget: int, draw: Draw, memory: Tree
    ) -> tuple[Coreset, Tree]:
        if self.crust == "formula":
            return _medoids(pool, pool.whole(), budget, self.split), {}
        gradients = pool.feature_gradients()

        def one_class(label: int, rows: Tensor, share: int) -> Coreset:  # noqa: ARG001
            return most_central(gradients[rows], share, self.radius)

        return pool.each_class(budget, self.split, one_class), {}


class Craig(ByClass):
    """CRAIG (Mirzasoleiman, Bilmes, Leskovec 2020): the same with the residuals e = p - onehot(y).

    The distance of two gradients is bounded by a constant times that of their residuals, the
    gradients of the loss with respect to the last layer's output; CRAIG covers those:
    min over |X| <= b of Σ_i min_{j in X} ‖e_i - e_j‖, per class, weighted by cluster size.
    """

    name: ClassVar[str] = "craig"
    summary: ClassVar[str] = "medoids of the output residuals per class (CRAIG)"

    def pick(
        self, pool: Pool, target: Tensor | None, budget: int, draw: Draw, memory: Tree
    ) -> tuple[Coreset, Tree]:
        residuals = pool.whole().coefficients
        ones = torch.ones(len(pool), 1, dtype=residuals.dtype)
        return _medoids(pool, Gradients(ones, residuals, bias=False), budget, self.split), {}


def _medoids(pool: Pool, gradients: Gradients, budget: int, split: Split) -> Coreset:
    def one_class(label: int, rows: Tensor, share: int) -> Coreset:  # noqa: ARG001
        mine = gradients.rows(rows)
        # Distances are small differences of large products: in double precision.
        exact = Gradients(mine.coefficients.double(), mine.features.double(), mine.bias)
        rows_of = negative_distance(exact.squared_norms(), exact.gram)
        return facility_location(rows_of, len(rows), share)

    return pool.each_class(budget, split, one_class)
