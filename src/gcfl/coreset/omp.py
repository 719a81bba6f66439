"""Orthogonal matching pursuit: which b gradients, with which weights, add up to a target.

    min over |X| <= b, w >= 0 of   ‖ Σ_{j in X} w_j g_j - g ‖² + λ ‖w‖²

Greedy: the next point is the best by `score` against the residual r = g - Σ w_j g_j, then all
weights are solved again (`active_set`). A step costs one Gram column of the point that enters,
computed from the factors, and one product of the weights with the columns so far, which gives every
⟨g_j, r⟩ without forming r.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gcfl.base.data_types import Coreset, FloatArray, IntArray
from gcfl.base.errors import DataError
from gcfl.base.options import Count, NonNegative, Options
from gcfl.coreset.active_set import ActiveSet
from gcfl.coreset.gradients import Gradients
from gcfl.coreset.pool import Pool

Score = Literal["correlation", "cosine", "distance", "nearest"]
Trace = Callable[[IntArray, FloatArray], None]


class Pursuit(Options):
    """How orthogonal matching pursuit goes.

    `correlation` takes the largest ⟨g_j, r⟩ (its size, with free weights; the authors' code),
    `cosine` the largest ⟨g_j, r⟩ / ‖g_j‖ (the textbook's: atoms normalised), `distance` the
    smallest ‖g_j - r‖ (the paper's text), `nearest` the smallest ‖g_j - g‖ with no residual.
    """

    score: Score = "correlation"
    """which point is next: the largest inner product, or cosine, or the smallest distance"""
    ridge: NonNegative = 0.5
    """λ, the weight of ‖w‖²"""
    nonnegative: bool = True
    """weights w >= 0"""
    points_per_step: Count = 1
    """points added before the weights are solved again"""
    tolerance: NonNegative = 1e-10
    """stop the pursuit where no ⟨g_j, r⟩ is above this share of ‖g_j‖ ‖g‖, and fill the budget"""


def pursue(
    gradients: Gradients,
    target: Tensor,
    budget: int,
    how: Pursuit | None = None,
    trace: Trace | None = None,
) -> Coreset:
    """Exactly min(budget, n) different points in the order chosen, and their weights.

    target: (k, d + 1), or (k, d) without bias. When no remaining point can lower the objective (no
    |⟨g_j, r⟩| above `tolerance` · ‖g_j‖ · ‖g‖; with non-negative weights, no positive one), the
    rest of the budget is filled with the next best scores at weight 0. `trace(indices, weights)` is
    called after every step.
    """
    how = how or Pursuit()
    n = len(gradients)
    budget = min(budget, n)
    if budget <= 0:
        return Coreset(np.empty(0, dtype=np.int64), np.empty(0))
    gradients, norms = _finite(gradients)
    if budget > 1:
        gradients = gradients.ready_for_columns()
    first = gradients.inner(target).numpy()
    slack = how.tolerance * float(target.double().square().sum().sqrt())
    threshold = slack * np.sqrt(norms)
    weights = ActiveSet(budget, how.ridge, how.nonnegative, slack)
    selected = _Selected(gradients, target, budget)
    columns = torch.empty((budget, n), dtype=gradients.features.dtype)
    chosen = np.empty(budget, dtype=np.int64)
    barred = np.zeros(n)  # -inf for the points that are taken
    correlation = first
    count = 0
    while count < budget:
        gain = correlation if how.nonnegative else np.abs(correlation)
        scores = (
            scores_of(how, gain, first if how.score == "nearest" else correlation, norms) + barred
        )
        left = budget - count
        picks = _best(scores, left if how.score == "nearest" else min(how.points_per_step, left))
        if (
            how.score != "nearest"
            and gain[picks[0]] <= threshold[picks[0]]
            and not (gain + barred > threshold).any()
        ):
            chosen[count:] = _best(scores, left)
            break
        for j in picks.tolist():
            gradients.gram_column(j, out=columns[count])
            weights.enter(*selected.enter(j))
            chosen[count] = j
            barred[j] = -np.inf
            count += 1
        weights.solve(entered=len(picks))
        held = torch.from_numpy(weights.weights[:count]).to(columns.dtype)
        correlation = first - torch.mv(columns[:count].T, held).numpy()
        if trace is not None:
            trace(chosen[:count].copy(), weights.weights[:count].copy())
    return Coreset(chosen, weights.weights)


def _finite(gradients: Gradients) -> tuple[Gradients, FloatArray]:
    """The gradients and their squared norms (n,), in double where single overflows."""
    norms = gradients.squared_norms().numpy()
    if not np.isfinite(norms).all():
        gradients = Gradients(
            gradients.coefficients.double(), gradients.features.double(), gradients.bias
        )
        norms = gradients.squared_norms().numpy()
        if not np.isfinite(norms).all():
            raise DataError("features or probabilities are NaN, infinite or too large to square")
    return gradients, norms


class _Selected:
    """The selected gradients in float64: a small ridge needs more exact inner products."""

    def __init__(self, gradients: Gradients, target: Tensor, budget: int) -> None:
        self._gradients = gradients
        self._target = target.double().numpy()
        self._coefficients = np.empty((budget, gradients.coefficients.shape[1]))
        self._features = np.empty((budget, self._target.shape[1]))
        self._features[:, -1] = 1.0  # the bias, where there is one; else overwritten
        self._count = 0

    def enter(self, j: int) -> tuple[FloatArray, float]:
        """Inner products of point j with those before it and itself, and with the target."""
        k, d = self._count, self._gradients.features.shape[1]
        self._coefficients[k] = self._gradients.coefficients[j].numpy()
        self._features[k, :d] = self._gradients.features[j].numpy()
        self._count = k + 1
        coefficients, features = self._coefficients[: k + 1], self._features[: k + 1]
        column: FloatArray = (coefficients @ coefficients[k]) * (features @ features[k])
        return column, float(coefficients[k] @ (self._target @ features[k]))


def scores_of(
    how: Pursuit, gain: FloatArray, correlation: FloatArray, norms: FloatArray
) -> FloatArray:
    """Higher is better; distances are compared through ‖g_j - r‖² = ‖g_j‖² - 2⟨g_j, r⟩ + const."""
    if how.score == "correlation":
        return gain
    if how.score == "cosine":  # a zero gradient points nowhere
        return np.divide(gain, np.sqrt(norms), out=np.zeros_like(gain), where=norms > 0)
    return correlation - norms / 2


def _best(scores: FloatArray, count: int) -> IntArray:
    """The `count` highest scores, best first; equal ones in the order of their numbers."""
    if count == 1:
        return np.array([scores.argmax()], dtype=np.int64)
    return np.argsort(-scores, kind="stable")[:count]


class Singles:
    """The best single point of each class of a small pool: a pursuit with a budget of one.

    g_j = (p_y - 1)·[h_j, 1] against row y of target (C, d + 1), or (C, d) without bias, for all
    classes together: clients with a few samples each have budgets of one in most classes, where
    preparing a pursuit costs more than the choice.
    """

    def __init__(self, pool: Pool, target: Tensor, how: Pursuit) -> None:
        self._how = how
        labels = pool.labels.numpy()
        features = pool.features.numpy().astype(np.float64)
        wanted = target.numpy().astype(np.float64)
        of_label = pool.probabilities.numpy()[np.arange(len(labels)), labels]
        coefficients = of_label.astype(np.float64) - 1.0
        aims, d = wanted[labels], features.shape[1]
        dots = np.einsum("nd,nd->n", features, aims[:, :d])
        squares = np.einsum("nd,nd->n", features, features)
        if pool.bias:
            dots, squares = dots + aims[:, d], squares + 1
        self._inner, self._norms = coefficients * dots, coefficients * coefficients * squares
        if not np.isfinite(self._norms).all():
            raise DataError("features or probabilities are NaN, infinite or too large to square")
        self._slack = how.tolerance * np.sqrt(np.einsum("cd,cd->c", wanted, wanted))

    def best(self, rows: IntArray, label: int) -> Coreset:
        """The best of these rows, and w = ⟨g_j, g⟩ / (‖g_j‖² + λ) where that helps."""
        first, norms = self._inner[rows], self._norms[rows]
        gain = first if self._how.nonnegative else np.abs(first)
        j = int(scores_of(self._how, gain, first, norms).argmax())
        lowers = gain[j] > self._slack[label] * np.sqrt(norms[j])
        weight = first[j] / (norms[j] + self._how.ridge) if lowers else 0.0
        return Coreset(np.array([j]), np.array([weight]))
