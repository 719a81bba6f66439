"""Orthogonal matching pursuit: which b gradients, with which weights, add up to a target.

    min over |X| <= b, w >= 0 of   ‖ Σ_{j in X} w_j g_j - g ‖² + λ ‖w‖²

Greedy: the next point is the best by `score` against the residual r = g - Σ w_j g_j, then all
weights are solved again (`active_set`). A step costs one Gram column of the point that enters,
computed from the factors, and one product of the weights with the columns so far, which gives every
⟨g_j, r⟩ without forming r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from gcfl.base.data_types import Coreset, FloatArray, IntArray
from gcfl.base.errors import ConfigError, DataError, one_of
from gcfl.coreset.active_set import ActiveSet
from gcfl.coreset.gradients import Gradients

Score = Literal["correlation", "distance", "nearest"]
Trace = Callable[[IntArray, FloatArray], None]


@dataclass(frozen=True)
class Pursuit:
    """How to pursue. score: `correlation` takes the largest ⟨g_j, r⟩ (its size, with free weights),
    `distance` the smallest ‖g_j - r‖, `nearest` the smallest ‖g_j - g‖ with no residual at all.
    ridge: λ.
    """

    score: Score = "correlation"
    ridge: float = 0.5
    nonnegative: bool = True
    points_per_step: int = 1
    tolerance: float = 1e-10

    def __post_init__(self) -> None:
        if self.score not in get_args(Score):
            raise ConfigError(f"score must be {one_of(get_args(Score))}, got {self.score!r}")
        for name in ("ridge", "tolerance"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ConfigError(f"{name} must be in [0, inf), got {getattr(self, name)!r}")
        if self.points_per_step < 1:
            raise ConfigError(f"points_per_step must be at least 1, got {self.points_per_step!r}")


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
    if budget == 1 and trace is None:
        return _single(gradients, target, how, first, norms, threshold, slack)
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


def _single(
    gradients: Gradients,
    target: Tensor,
    how: Pursuit,
    first: FloatArray,
    norms: FloatArray,
    threshold: FloatArray,
    slack: float,
) -> Coreset:
    """A budget of one needs no active set: the best point, and w = ⟨g_j, g⟩ / (‖g_j‖² + λ) where
    that lowers the objective.
    """
    gain = first if how.nonnegative else np.abs(first)
    j = int(scores_of(how, gain, first, norms).argmax())
    weight = np.zeros(1)
    if how.score == "nearest" or gain[j] > threshold[j] or (gain > threshold).any():
        column, inner = _Selected(gradients, target, 1).enter(j)
        worth = inner if how.nonnegative else abs(inner)
        if worth > slack * np.sqrt(column[0]):
            weight[0] = inner / (column[0] + how.ridge)
    return Coreset(np.array([j]), weight)


def _finite(gradients: Gradients) -> tuple[Gradients, FloatArray]:
    """The gradients and their squared norms (n,): in double precision where single overflows, an
    error where double does too.
    """
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
    """The selected gradients in float64, as factors: a small ridge needs their inner products more
    exactly than scores do.
    """

    def __init__(self, gradients: Gradients, target: Tensor, budget: int) -> None:
        self._gradients = gradients
        self._target = target.double().numpy()
        self._coefficients = np.empty((budget, gradients.coefficients.shape[1]))
        self._features = np.empty((budget, self._target.shape[1]))
        self._features[:, -1] = 1.0  # the bias, where there is one; else overwritten
        self._count = 0

    def enter(self, j: int) -> tuple[FloatArray, float]:
        """Inner products of point j with those before it and itself (count + 1,), and with the
        target.
        """
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
    return gain if how.score == "correlation" else correlation - norms / 2


def _best(scores: FloatArray, count: int) -> IntArray:
    """The `count` highest scores, best first; equal ones in the order of their numbers."""
    if count == 1:
        return np.array([scores.argmax()], dtype=np.int64)
    return np.argsort(-scores, kind="stable")[:count]
