"""Weights for a growing set of points: the ridge problem, free or non-negative, kept solved as
points enter.

    min over w (>= 0) of   wᵀ (K + λI) w - 2 qᵀ w        K_st = ⟨g_s, g_t⟩,  q_s = ⟨g_s, target⟩

The method is the active set of Lawson and Hanson, started from the last solution. The inverse of K
+ λI on the points with a weight is held explicitly: a point enters by bordering and leaves by a
rank-one update, each one matrix-vector product and one outer product, where a Cholesky factor would
have to be rotated in a loop when a point leaves.

An inverse can drift. The normal equations are checked after every step, because they tell which
point should enter next; where they do not hold the solution is refined, then the inverse computed
anew. Where even that fails, where points enter and leave in circles, or where the objective would
grow, the points are as good as dependent: from then on every step is solved from scratch by scipy's
nnls (or lstsq) on a square root of K. A point whose squared distance to the span of the others is
below 1e-10 of its squared norm counts as lying in it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import scipy.linalg
import scipy.optimize
import torch

from gcfl.base.data_types import FloatArray, IntArray

# share of a point's squared norm outside the span of the others below which it adds nothing
_COLLINEAR = 1e-10
# how far the normal equations may be off, relative to their largest term, before the solution is
# refined
_DRIFT = 1e-11
_LOST = 1e-8  # how far after that, before it is given up
_ROUNDING = 1e-10  # by which the objective may seem to grow
_ENTRIES = 2  # how often a point may enter in one step


class ActiveSet:
    """Room for `capacity` points, numbered in the order they enter."""

    def __init__(self, capacity: int, ridge: float, nonnegative: bool, slack: float) -> None:
        self._ridge, self._nonnegative, self._slack = ridge, nonnegative, slack
        self._gram = np.zeros((capacity, capacity))
        self._linear = np.zeros(capacity)
        # ⟨g_s, residual⟩ = q - K w: minus half the objective's slope, without the ridge
        self._slopes = np.zeros(capacity)
        self._inverse = np.zeros((capacity, capacity))
        # the same memory: torch updates part of a matrix in place
        self._inverse_tensor = torch.from_numpy(self._inverse)
        # the unconstrained solution on the active points, by row of the inverse
        self._goal = np.zeros(capacity)
        # which point each row of the inverse belongs to
        self._active = np.zeros(capacity, dtype=np.int64)
        self._held = np.zeros(capacity, dtype=bool)
        self._rows = 0
        self._dependent = False
        self.weights = np.zeros(capacity)
        self.size = 0

    def enter(self, column: FloatArray, linear: float) -> None:
        """One more point: inner products with those before and itself, and with the target."""
        s = self.size
        self._gram[s, : s + 1] = column
        self._gram[: s + 1, s] = column
        self._linear[s] = linear
        self._slopes[s] = linear - column[:s] @ self.weights[:s]
        self.size = s + 1

    def solve(self, entered: int) -> None:
        """Solve again after the last `entered` points came in. The objective never grows."""
        before = self._objective()
        old = self.weights[: self.size].copy()
        if (
            self._dependent
            or not self._update(entered)
            or not self._objective() <= before + _ROUNDING * abs(before)
        ):
            self._dependent = True
            self.weights[: self.size] = self._from_scratch(old)
            self._drift()
            if not self._objective() <= before:
                self.weights[: self.size] = old
                self._drift()

    def _objective(self) -> float:
        """wᵀ(K + λI)w - 2qᵀw, from the slopes: K w = q - slope."""
        w, q, slope = (
            self.weights[: self.size],
            self._linear[: self.size],
            self._slopes[: self.size],
        )
        return float(self._ridge * (w @ w) - w @ (q + slope))

    def _update(self, entered: int) -> bool:
        """From the last solution to the next; False where rounding gets in the way."""
        if not self._nonnegative:
            for point in range(self.size - entered, self.size):
                self._attach(point)
            self.weights[self._active[: self._rows]] = self._goal[: self._rows]
            return self._settle()
        entries: Counter[int] = Counter()
        barred: list[int] = []  # collinear, or in and out at once: only rounding lets them in
        while True:
            candidates = np.where(self._held[: self.size], -np.inf, self._slopes[: self.size])
            candidates[barred] = -np.inf
            point = int(candidates.argmax())
            if not candidates[point] > self._slack * np.sqrt(self._gram[point, point]):
                return True
            entries[point] += 1
            if entries[point] > _ENTRIES:
                return False
            if not self._attach(point) or not self._descend(point):
                barred.append(point)
            if not self._settle():
                return False

    def _from_scratch(self, start: FloatArray) -> FloatArray:
        """The best weights by a solver that bears dependent points; `start` where it fails.

        K = V D Vᵀ, so the objective is ‖√D Vᵀ w - D^(-1/2) Vᵀ q‖² + λ‖w‖² on the directions that K
        has.
        """
        s = self.size
        gram, linear = self._gram[:s, :s], self._linear[:s]
        size = float(np.abs(gram).max()) or 1.0
        values, vectors = scipy.linalg.eigh(gram / size)
        real = values > _COLLINEAR * values.max(initial=0.0)
        roots = np.sqrt(values[real])
        rows = np.concatenate(
            [roots[:, None] * vectors[:, real].T, np.sqrt(self._ridge / size) * np.eye(s)]
        )
        goal = np.concatenate([vectors[:, real].T @ (linear / size) / roots, np.zeros(s)])
        try:
            found = (
                scipy.optimize.nnls(rows, goal, maxiter=30 * s)[0]
                if self._nonnegative
                else np.linalg.lstsq(rows, goal, rcond=None)[0]
            )
        except (RuntimeError, np.linalg.LinAlgError):
            return start
        weights: FloatArray = found if np.isfinite(found).all() else start
        return weights

    def _attach(self, point: int) -> bool:
        """A row for `point` in the inverse; False where it lies in the others' span."""
        k = self._rows
        column = self._gram[point, self._active[:k]]
        diagonal = self._gram[point, point] + self._ridge
        inner = self._inverse[:k, :k] @ column
        rest = diagonal - column @ inner
        if not rest > _COLLINEAR * diagonal:
            return False
        weight = (self._linear[point] - column @ self._goal[:k]) / rest
        self._outer(inner, 1.0 / rest, k)
        self._inverse[:k, k] = self._inverse[k, :k] = inner / -rest
        self._inverse[k, k] = 1.0 / rest
        self._goal[:k] -= weight * inner
        self._goal[k] = weight
        self._active[k] = point
        self._held[point] = True
        self._rows = k + 1
        return True

    def _detach(self, row: int) -> None:
        """Take a row out of the inverse; the last row takes its place."""
        last = self._rows - 1
        inverse, pair, swapped = self._inverse, [row, last], [last, row]
        inverse[pair, : last + 1] = inverse[swapped, : last + 1]
        inverse[: last + 1, pair] = inverse[: last + 1, swapped]
        self._active[pair] = self._active[swapped]
        self._goal[pair] = self._goal[swapped]
        edge, corner = inverse[:last, last].copy(), float(inverse[last, last])
        self._outer(edge, -1.0 / corner, last)
        self._goal[:last] -= edge * (self._goal[last] / corner)
        self._held[self._active[last]] = False
        self.weights[self._active[last]] = 0.0
        self._rows = last

    def _outer(self, vector: FloatArray, scale: float, k: int) -> None:
        edge = torch.from_numpy(vector)
        self._inverse_tensor[:k, :k].addr_(edge, edge, alpha=scale)

    def _descend(self, entered: int) -> bool:
        """Walk towards the unconstrained solution, and drop each point whose weight reaches 0 on
        the way.

        False where the point that entered is dropped.
        """
        stays = True
        while True:
            active, goal = self._active[: self._rows], self._goal[: self._rows]
            falling = np.flatnonzero(goal <= 0)
            if falling.size == 0:
                self.weights[active] = goal
                return stays
            now = self.weights[active]
            # How far each falling weight lets us go: now >= 0 >= goal, and one that is 0 already
            # lets us go nowhere.
            ratios = now[falling] / np.maximum(now[falling] - goal[falling], np.finfo(float).tiny)
            first = int(ratios.argmin())
            self.weights[active] = np.maximum(now + ratios[first] * (goal - now), 0.0)
            row = int(falling[first])
            stays = stays and int(active[row]) != entered
            self._detach(row)

    def _settle(self) -> bool:
        """New slopes; where those of active points show that the inverse has drifted, refine, then
        compute it anew.

        False where the normal equations do not hold even then.
        """
        k, active = self._rows, self._active[: self._rows]
        scale = float(np.abs(self._linear[: self.size]).max())
        if self._drift() <= _DRIFT * scale:
            return True
        self._refine(active)
        if self._drift() <= _DRIFT * scale:
            return True
        try:
            factor = scipy.linalg.cho_factor(
                self._gram[np.ix_(active, active)] + self._ridge * np.eye(k), lower=True
            )
        # dependent to within rounding, or not finite
        except (scipy.linalg.LinAlgError, ValueError):
            return False
        self._inverse[:k, :k] = scipy.linalg.cho_solve(factor, np.eye(k))
        self._refine(active)
        return self._drift() <= _LOST * scale

    def _drift(self) -> float:
        """The largest violation of K w + λ w = q on the active points; keeps the slopes."""
        s, active = self.size, self._active[: self._rows]
        self._slopes[:s] = self._linear[:s] - self._gram[:s, :s] @ self.weights[:s]
        return float(
            np.abs(self._slopes[active] - self._ridge * self.weights[active]).max(initial=0.0)
        )

    def _refine(self, active: IntArray) -> None:
        """One step of iterative refinement, unless it would make a weight negative."""
        k = self._rows
        off = self._slopes[active] - self._ridge * self.weights[active]
        self._goal[:k] = self.weights[active] + self._inverse[:k, :k] @ off
        if not self._nonnegative or (self._goal[:k] >= 0).all():
            self.weights[active] = self._goal[:k]
