"""Facility location: the points that best represent all points.

    max over |X| <= b of   f(X) = Σ_i max_{j in X} s_ij        s >= 0

f is monotone and submodular, so greedy is within 1 - 1/e of the best, and lazy greedy (Minoux 1978)
finds the same points as plain greedy while it evaluates few of them: a gain can only shrink, so an
old gain is an upper bound. Bounds are refreshed a block at a time, because a block costs hardly
more than one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gcfl.base.data_types import Coreset, IntArray
from gcfl.base.errors import DataError

_BLOCK = 32
# up to here the whole similarity is kept; beyond, rows are computed when they are needed
_DENSE_LIMIT = 8192

Rows = Callable[[Tensor], Tensor]  # indices (m,) -> similarities (m, n)


def facility_location(rows: Rows, n: int, budget: int) -> Coreset:
    """min(budget, n) points by lazy greedy, in the order chosen; weights are the sizes of their
    clusters.

    `rows(indices)` gives s (m, n), non-negative. The cluster of a chosen point is every point that
    is most similar to it among the chosen, ties to the one chosen first.
    """
    budget = min(budget, n)
    if budget <= 0:
        return Coreset(np.empty(0, dtype=np.int64), np.empty(0))
    if n <= _DENSE_LIMIT:
        similarity = rows(torch.arange(n))
        rows = similarity.__getitem__
    bounds = torch.cat(
        [
            rows(block).sum(1, dtype=torch.float64)
            for block in torch.split(torch.arange(n), _BLOCK * 8)
        ]
    )
    if not bool(torch.isfinite(bounds).all()):
        raise DataError(
            "the similarities are NaN or infinite: features or probabilities are not finite, or "
            "too large to square"
        )
    covered = torch.zeros(n, dtype=rows(torch.arange(1)).dtype)
    cluster = torch.zeros(n, dtype=torch.int64)
    chosen = np.empty(budget, dtype=np.int64)
    for step in range(budget):
        best, row = _next(rows, bounds, covered)
        chosen[step] = best
        bounds[best] = -torch.inf
        better = row > covered if step else torch.ones(n, dtype=torch.bool)
        cluster[better] = step
        covered = torch.maximum(covered, row)
    return Coreset(chosen, torch.bincount(cluster, minlength=budget).double().numpy())


def _next(rows: Rows, bounds: Tensor, covered: Tensor) -> tuple[int, Tensor]:
    """The point of largest gain (the lowest among equals) and its row; tightens `bounds`."""
    best, gained, kept = -1, -torch.inf, covered
    fresh = torch.zeros(len(bounds), dtype=torch.bool)
    while True:
        stale = torch.where(fresh, -torch.inf, bounds)
        # Everything whose bound reaches the best gain may still be better, or equal with a lower
        # number.
        block = torch.topk(stale, min(_BLOCK, len(bounds))).indices
        block = block[stale[block] >= gained] if best >= 0 else block[stale[block] > -torch.inf]
        if block.numel() == 0:
            return best, kept
        similar = rows(block)
        gains = (similar - covered).clamp_(min=0).sum(1, dtype=torch.float64)
        bounds[block] = torch.minimum(bounds[block], gains)
        fresh[block] = True
        for position in torch.nonzero(gains >= max(float(gains.max()), gained))[:, 0].tolist():
            point, gain = int(block[position]), float(gains[position])
            if gain > gained or (gain == gained and point < best):
                best, gained, kept = point, gain, similar[position]


def most_central(points: Tensor, budget: int, radius: float) -> Coreset:
    """The min(budget, n) points (n, k) with the least sum of distances to all, the most central
    first; weights are how many points, itself included, are nearer than the radius.

    Equal sums: the later point first, as in a heap of (sum, number).
    """
    n = len(points)
    sums = torch.empty(n, dtype=torch.float64)
    near = torch.empty(n, dtype=torch.float64)
    for block in torch.split(torch.arange(n), _BLOCK * 8):
        distances = torch.cdist(points[block], points, compute_mode="donot_use_mm_for_euclid_dist")
        sums[block] = distances.sum(1)
        near[block] = (distances < radius).sum(1).double()
    if not bool(torch.isfinite(sums).all()):
        raise DataError("the gradients are NaN or infinite, or too large to square")
    chosen = n - 1 - sums.flip(0).argsort(stable=True)[:budget]
    return Coreset(chosen.numpy(), near[chosen].numpy())


def objective(similarity: Tensor, chosen: IntArray) -> float:
    """f(X) = Σ_i max_{j in X} s_ij for a full similarity (n, n); 0 for the empty set."""
    if len(chosen) == 0:
        return 0.0
    return float(similarity[torch.from_numpy(chosen)].max(0).values.sum(dtype=torch.float64))


def cosine(features: Tensor) -> Rows:
    """s_ij = (1 + cos(h_i, h_j)) / 2, in [0, 1]; a zero vector is half similar to everything."""
    unit = torch.nn.functional.normalize(features, dim=1)
    return lambda index: (unit[index] @ unit.T).add_(1.0).mul_(0.5).clamp_(min=0)


def negative_distance(squared_norms: Tensor, gram: Rows) -> Rows:
    """s_ij = D - ‖g_i - g_j‖ with D an upper bound of all distances, so that f counts how near
    everything has a medoid.
    """
    norms = squared_norms.sqrt()
    largest = float(2 * norms.max()) if len(norms) else 0.0

    def rows(index: Tensor) -> Tensor:
        squared = squared_norms[index, None] + squared_norms[None] - 2 * gram(index)
        # exact, where rounding would leave a root of it
        squared[torch.arange(len(index)), index] = 0.0
        return largest - squared.clamp_(min=0).sqrt_()

    return rows
