"""Coresets that represent all samples: facility location in one space or another."""

from __future__ import annotations

import torch
from torch import Tensor

from gcfl.base.data_types import Coreset
from gcfl.coreset.budget import Split
from gcfl.coreset.facility import cosine, facility_location, negative_distance
from gcfl.coreset.gradients import Gradients
from gcfl.coreset.pool import Pool


def represent_label_wise(pool: Pool, budget: int, split: Split) -> Coreset:
    """Facility location on features, per class: max Σ_i max_{j in X} (1 + cos(h_i, h_j)) / 2 over
    the samples labelled c.
    """

    def pick(label: int, rows: Tensor, share: int) -> Coreset:  # noqa: ARG001
        return facility_location(cosine(pool.features[rows]), len(rows), share)

    return pool.each_class(budget, split, pick)


def represent_whole(pool: Pool, budget: int) -> Coreset:
    """Facility location on features, over all samples at once."""
    return facility_location(cosine(pool.features), len(pool), budget)


def crust(pool: Pool, budget: int, split: Split) -> Coreset:
    """CRUST (Mirzasoleiman, Cao, Leskovec 2020): medoids of the last-layer gradients, per class,
    weighted by cluster size.

    min over X of Σ_i min_{j in X} ‖g_i - g_j‖ with g_j = (p_j - onehot(y_j)) ⊗ [h_j, 1], as
    facility location on D - distance. The idea is that samples with clean labels cluster and wrong
    ones scatter.
    """
    return _medoids(pool, pool.whole(), budget, split)


def craig(pool: Pool, budget: int, split: Split) -> Coreset:
    """CRAIG (Mirzasoleiman, Bilmes, Leskovec 2020): the same with the gradients' upper bound ‖e_i -
    e_j‖, e = p - onehot(y).

    The distance of two gradients is bounded by a constant times that of their residuals, the
    gradients of the loss with respect to the last layer's output; CRAIG covers those, per class,
    and weighs by cluster size.
    """
    residuals = pool.whole().coefficients
    ones = torch.ones(len(pool), 1, dtype=residuals.dtype)
    return _medoids(pool, Gradients(ones, residuals, bias=False), budget, split)


def _medoids(pool: Pool, gradients: Gradients, budget: int, split: Split) -> Coreset:
    def pick(label: int, rows: Tensor, share: int) -> Coreset:  # noqa: ARG001
        own = gradients.rows(rows)
        # Distances are small differences of large products: in double precision.
        mine = Gradients(own.coefficients.double(), own.features.double(), own.bias)
        return facility_location(
            negative_distance(mine.squared_norms(), mine.gram), len(rows), share
        )

    return pool.each_class(budget, split, pick)
