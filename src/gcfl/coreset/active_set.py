"""Weights for a growing set of points: the ridge problem, free or non-negative, kept solved as points enter.

    min over w (>= 0) of   wᵀ (K + λI) w - 2 qᵀ w        K_st = ⟨g_s, g_t⟩,  q_s = ⟨g_s, target⟩

The method is the active set of Lawson and Hanson, started from the last solution. The inverse of K + λI on the points
with a weight is held explicitly: a point enters by bordering and leaves by a rank-one update, each one matrix-vector
product and one outer product, where a Cholesky factor would have to be rotated in a loop when a point leaves. An
inverse can drift; the normal equations are checked after every step anyway, because they tell which point should
enter next, and where they do not hold the solution is refined, then the inverse computed anew.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from gcfl.types import FloatArray, IntArray

_COLLINEAR = 1e-12  # share of a point's squared norm outside the span of the others below which it adds nothing
_DRIFT = 1e-11  # how far the normal equations may be off, relative to their largest term


class ActiveSet:
    """Room for `capacity` points, numbered in the order they enter."""

    def __init__(self, capacity: int, ridge: float, nonnegative: bool, slack: float) -> None:
        self._ridge, self._nonnegative, self._slack = ridge, nonnegative, slack
        self._gram = np.zeros((capacity, capacity))
        self._linear = np.zeros(capacity)
        self._inverse = np.zeros((capacity, capacity))
        self._scratch = np.zeros((capacity, capacity))
        self._active = np.zeros(capacity, dtype=np.int64)  # which point each row of the inverse belongs to
        self._rows = 0
        self._held = np.zeros(capacity, dtype=bool)
        self._slopes = np.zeros(capacity)  # ⟨g_s, residual⟩ = q - K w: minus half the objective's slope, without the ridge
        self.weights = np.zeros(capacity)
        self.size = 0

    def enter(self, column: FloatArray, linear: float) -> None:
        """One more point: its inner products with those before it and itself (size + 1,), and with the target."""
        s = self.size
        self._gram[s, : s + 1] = column
        self._gram[: s + 1, s] = column
        self._linear[s] = linear
        self._slopes[s] = linear - column[:s] @ self.weights[:s]
        self.size = s + 1

    def solve(self, entered: int) -> None:
        """Solve again after the last `entered` points came in."""
        newest = range(self.size - entered, self.size)
        if not self._nonnegative:
            for point in newest:
                self._attach(point)
            self._settle()
            return
        blocked: set[int] = set()  # collinear, or in and out at once: only rounding lets them in
        while True:
            candidates = np.where(self._held[: self.size], -np.inf, self._slopes[: self.size])
            candidates[list(blocked)] = -np.inf
            point = int(candidates.argmax())
            if candidates[point] <= self._slack * np.sqrt(self._gram[point, point]):
                return
            if not self._attach(point) or not self._descend(point):
                blocked.add(point)
            self._settle()

    def _attach(self, point: int) -> bool:
        """A row for `point` at the end of the inverse; False where it lies in the span of the others."""
        k = self._rows
        active = self._active[:k]
        column = self._gram[point, active]
        diagonal = self._gram[point, point] + self._ridge
        inner = self._inverse[:k, :k] @ column
        rest = diagonal - column @ inner
        if not rest > _COLLINEAR * diagonal:
            return False
        scaled = inner / rest
        np.multiply.outer(scaled, inner, out=self._scratch[:k, :k])
        self._inverse[:k, :k] += self._scratch[:k, :k]
        self._inverse[:k, k] = self._inverse[k, :k] = -scaled
        self._inverse[k, k] = 1.0 / rest
        self._active[k] = point
        self._held[point] = True
        self._rows = k + 1
        return True

    def _detach(self, row: int) -> None:
        """Take a row out of the inverse; the last row takes its place."""
        last = self._rows - 1
        inverse = self._inverse
        if row != last:
            inverse[[row, last], : last + 1] = inverse[[last, row], : last + 1]
            inverse[: last + 1, [row, last]] = inverse[: last + 1, [last, row]]
            self._active[[row, last]] = self._active[[last, row]]
        edge = inverse[:last, last]
        np.multiply.outer(edge / inverse[last, last], edge, out=self._scratch[:last, :last])
        inverse[:last, :last] -= self._scratch[:last, :last]
        point = self._active[last]
        self._held[point] = False
        self.weights[point] = 0.0
        self._rows = last

    def _descend(self, entered: int) -> bool:
        """Walk towards the unconstrained solution, and drop each point whose weight reaches 0 on the way.

        False where the point that entered is dropped at once.
        """
        while self._rows:
            k = self._rows
            active = self._active[:k]
            goal = self._inverse[:k, :k] @ self._linear[active]
            falling = np.flatnonzero(goal <= 0)
            if falling.size == 0:
                self.weights[active] = goal
                return True
            now = self.weights[active]
            ratios = now[falling] / (now[falling] - goal[falling])  # now >= 0 >= goal: 0 / 0 only for the one that entered at 0
            ratios = np.where(np.isfinite(ratios), ratios, 0.0)
            first = int(ratios.argmin())
            self.weights[active] = np.maximum(now + ratios[first] * (goal - now), 0.0)
            row = int(falling[first])
            leaving = int(active[row])
            self._detach(row)
            if leaving == entered:
                self._restore()
                return False
        return True

    def _restore(self) -> None:
        active = self._active[: self._rows]
        goal = self._inverse[: self._rows, : self._rows] @ self._linear[active]
        if (goal > 0).all():
            self.weights[active] = goal

    def _settle(self) -> None:
        """New slopes; where those of active points show that the inverse has drifted, refine, then compute it anew."""
        k, active = self._rows, self._active[: self._rows]
        if not self._nonnegative:
            self.weights[active] = self._inverse[:k, :k] @ self._linear[active]
        bound = _DRIFT * float(np.abs(self._linear[: self.size]).max())
        if self._drift(active) <= bound:
            return
        self._refine(active)
        if self._drift(active) <= bound:
            return
        try:
            factor = scipy.linalg.cho_factor(self._gram[np.ix_(active, active)] + self._ridge * np.eye(k), lower=True)
        except scipy.linalg.LinAlgError:  # as near to singular as rounding allows: what we have is what there is
            return
        self._inverse[:k, :k] = scipy.linalg.cho_solve(factor, np.eye(k))
        self._refine(active)
        self._drift(active)

    def _drift(self, active: IntArray) -> float:
        """The largest violation of the normal equations K w + λ w = q on the active points; keeps the slopes."""
        s = self.size
        self._slopes[:s] = self._linear[:s] - self._gram[:s, :s] @ self.weights[:s]
        return float(np.abs(self._slopes[active] - self._ridge * self.weights[active]).max(initial=0.0))

    def _refine(self, active: IntArray) -> None:
        """One step of iterative refinement, unless it would make a weight negative."""
        off = self._slopes[active] - self._ridge * self.weights[active]
        better = self.weights[active] + self._inverse[: self._rows, : self._rows] @ off
        if not self._nonnegative or (better >= 0).all():
            self.weights[active] = better
