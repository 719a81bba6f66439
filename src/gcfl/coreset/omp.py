"""Orthogonal matching pursuit: which b gradients, with which weights, add up to a target.

    min over |X| <= b, w >= 0 of   ‖ Σ_{j in X} w_j g_j - g ‖² + λ ‖w‖²

Greedy: the next point is the best by `score` against the residual r = g - Σ w_j g_j, then all weights are solved
again. Gram columns are computed when a point enters, the normal equations (K + λI) w = c are held as a Cholesky
factor that grows by a row, and the non-negative solution comes from the active set method of Lawson and Hanson,
started from the last one, so that one step is usually one triangular solve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
from torch import Tensor

from gcfl.coreset.gradients import Gradients
from gcfl.types import Coreset, FloatArray, IntArray

Score = Literal["correlation", "distance", "nearest"]


@dataclass(frozen=True)
class Pursuit:
    """How to pursue. score: `correlation` takes the largest ⟨g_j, r⟩ (its size, with free weights), `distance` the
    smallest ‖g_j - r‖, `nearest` the smallest ‖g_j - g‖ with no residual at all."""

    score: Score = "correlation"
    ridge: float = 0.5
    nonnegative: bool = True
    points_per_step: int = 1
    tolerance: float = 1e-10


Trace = Callable[[IntArray, FloatArray], None]


def pursue(gradients: Gradients, target: Tensor, budget: int, how: Pursuit, trace: Trace | None = None) -> Coreset:
    """Exactly min(budget, n) points in the order chosen, and their weights.

    target (k, d + 1), or (k, d) without bias. When no remaining point lowers the objective (residual below
    `tolerance` times the target's norm, or no positive correlation left), the rest of the budget is filled with the
    next best scores at weight 0. `trace(indices, weights)` is called after every step, for tests and curiosity.
    """
    n = len(gradients)
    budget = min(budget, n)
    if budget <= 0:
        return Coreset(np.empty(0, dtype=np.int64), np.empty(0))
    first = gradients.inner(target).numpy()
    norms = gradients.squared_norms().numpy()
    weights = _Weights(first, how)
    chosen: list[int] = []
    free = np.ones(n, dtype=bool)
    correlation = first
    enough = how.tolerance * np.sqrt(max(float(target.double().square().sum()), 0.0))
    while len(chosen) < budget:
        scores = _scores(how, first, correlation, norms)
        scores[~free] = -np.inf
        step = min(how.points_per_step, budget - len(chosen))
        if how.score == "nearest":
            step = budget
        elif _spent(correlation, norms, free, how, enough):
            picks = np.argsort(-scores, kind="stable")[: budget - len(chosen)]
            chosen.extend(int(j) for j in picks)
            break
        picks = np.array([int(scores.argmax())]) if step == 1 else np.argsort(-scores, kind="stable")[:step]
        for j in picks:
            weights.add(int(j), gradients.gram_column(int(j)).numpy())
            chosen.append(int(j))
            free[j] = False
        correlation = weights.solve()
        if trace is not None:
            trace(np.array(chosen, dtype=np.int64), weights.of(chosen))
    return Coreset(np.array(chosen, dtype=np.int64), weights.of(chosen))


def _scores(how: Pursuit, first: FloatArray, correlation: FloatArray, norms: FloatArray) -> FloatArray:
    """Higher is better; distances are compared through ‖g_j - r‖² = ‖g_j‖² - 2⟨g_j, r⟩ + const."""
    if how.score == "correlation":
        return correlation.copy() if how.nonnegative else np.abs(correlation)
    return (first if how.score == "nearest" else correlation) - norms / 2


def _spent(correlation: FloatArray, norms: FloatArray, free: np.ndarray, how: Pursuit, enough: float) -> bool:
    """No remaining point can lower the objective by more than rounding."""
    gain = correlation if how.nonnegative else np.abs(correlation)
    return not bool((gain[free] > enough * np.sqrt(norms[free])).any())


class _Weights:
    """Weights of the selected points: w >= 0 (or free) that minimise the ridge objective, kept up to date as points enter."""

    def __init__(self, first: FloatArray, how: Pursuit) -> None:
        self._first = first
        self._how = how
        self._columns: dict[int, FloatArray] = {}  # Gram columns of all points that entered
        self._active: list[int] = []  # points with a weight, in the order of the factor's rows
        self._factor = np.zeros((0, 0))
        self._values = np.zeros(0)

    def add(self, j: int, column: FloatArray) -> None:
        self._columns[j] = column

    def of(self, points: list[int]) -> FloatArray:
        held = dict(zip(self._active, self._values, strict=True))
        return np.array([held.get(j, 0.0) for j in points])

    def solve(self) -> FloatArray:
        """Solve for the points that entered; returns the correlations (n,) of every point with the new residual."""
        correlation = self._correlation()
        blocked: set[int] = set()  # collinear with what is active: their weight stays 0
        while True:
            waiting = [j for j in self._columns if j not in blocked and j not in set(self._active)]
            if self._how.nonnegative:
                slack = self._how.tolerance * max(1e-300, float(np.abs(self._first).max(initial=0.0)))
                waiting = [j for j in waiting if correlation[j] > slack]
                waiting.sort(key=lambda j: -correlation[j])
                waiting = waiting[:1]
            if not waiting:
                return correlation
            for j in waiting:
                if not self._grow(j):
                    blocked.add(j)
            if self._how.nonnegative:
                blocked |= self._descend()
            else:
                self._values = self._unconstrained()
            correlation = self._correlation()

    def _grow(self, j: int) -> bool:
        """One more row of the Cholesky factor; False where the point adds nothing that rounding can tell."""
        column = self._columns[j]
        diagonal = column[j] + self._how.ridge
        if diagonal <= 0:
            return False
        row = scipy.linalg.solve_triangular(self._factor, column[self._active], lower=True) if self._active else np.zeros(0)
        rest = diagonal - row @ row
        if rest <= 1e-12 * diagonal:
            return False
        size = len(self._active)
        factor = np.zeros((size + 1, size + 1))
        factor[:size, :size] = self._factor
        factor[size, :size] = row
        factor[size, size] = np.sqrt(rest)
        self._factor = factor
        self._active.append(j)
        self._values = np.append(self._values, 0.0)
        return True

    def _unconstrained(self) -> FloatArray:
        if not self._active:
            return np.zeros(0)
        solution: FloatArray = scipy.linalg.cho_solve((self._factor, True), self._first[self._active])
        return solution

    def _descend(self) -> set[int]:
        """Walk from the last weights towards the unconstrained ones, dropping each point whose weight reaches 0."""
        dropped: set[int] = set()
        while True:
            goal = self._unconstrained()
            if goal.size == 0 or goal.min() > 0:
                self._values = goal
                return dropped
            falling = np.flatnonzero(goal <= 0)
            start = self._values[falling]
            ratio = np.min(start / (start - goal[falling]), initial=1.0, where=start > goal[falling])
            self._values = self._values + ratio * (goal - self._values)
            gone = np.flatnonzero((goal <= 0) & (self._values <= 1e-15 * max(1.0, float(np.abs(self._values).max()))))
            if gone.size == 0:
                gone = falling[:1]
            entered = self._active[-1]
            for position in sorted(gone, reverse=True):
                if self._active[position] == entered:  # it enters and leaves at once: only rounding let it in
                    dropped.add(entered)
                self._shrink(int(position))

    def _shrink(self, position: int) -> None:
        del self._active[position]
        self._values = np.delete(self._values, position)
        rows = np.delete(self._factor, position, axis=0)
        # Rows below the removed one have one entry too many: rotate it away.
        triangle = scipy.linalg.qr(rows.T, mode="r")[0][: len(self._active)] if self._active else np.zeros((0, 0))
        signs = np.sign(np.diag(triangle))
        self._factor = np.tril((triangle * signs[:, None]).T)

    def _correlation(self) -> FloatArray:
        if not self._active:
            return self._first
        columns = np.stack([self._columns[j] for j in self._active])
        result: FloatArray = self._first - self._values @ columns
        return result
