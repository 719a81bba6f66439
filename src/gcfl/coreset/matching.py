"""Gradient matching: coresets whose gradients add up to a target."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from gcfl.base.data_types import Coreset
from gcfl.coreset.budget import Split
from gcfl.coreset.gradients import Gradients
from gcfl.coreset.omp import Pursuit, pursue
from gcfl.coreset.pool import Pool, unweighted
from gcfl.coreset.singles import Singles

# made when needed, where making it costs more than the choice
Draw = np.random.Generator | Callable[[], np.random.Generator]
_SMALL = 1 << 16


def match_label_wise(
    pool: Pool, target: Tensor, budget: int, how: Pursuit, split: Split, draw: Draw
) -> Coreset:
    """GCFL, label-wise: one pursuit per class, over the samples labelled c, towards row c of target
    (C, d + 1).

    The paper's equation 5 with g_j = (p_jc - 1)·[h_j, 1]. A class whose target is zero (the server
    has no sample of it) gets its points at random from `draw`. The result has exactly min(budget,
    n) points.
    """
    absent = _absent(target)
    small = pool.features.numel() <= _SMALL
    singles: list[Singles] = []
    gradients: list[Gradients] = []

    def pick(label: int, rows: Tensor, share: int) -> Coreset:
        if absent[label]:
            return _by_chance(len(rows), share, draw)
        if share == 1 and small:
            if not singles:
                singles.append(Singles(pool, target, how))
            return singles[0].best(rows.numpy(), label)
        if not gradients:
            gradients.append(pool.own_label())
        return pursue(gradients[0].rows(rows), target[label : label + 1], share, how)

    return pool.each_class(budget, split, pick)


def _absent(target: Tensor) -> list[bool]:
    """(C,) whether the server has no sample of a class."""
    return [not row.any() for row in target.numpy()]


def _by_chance(n: int, share: int, draw: Draw) -> Coreset:
    """Random points whose weights are together 1, about what a pursuit gives a class."""
    draw = draw() if callable(draw) else draw
    chance = np.sort(draw.permutation(n)[:share])
    return Coreset(chance, np.full(len(chance), 1 / len(chance)))


def match_whole(pool: Pool, target: Tensor, budget: int, how: Pursuit) -> Coreset:
    """GCFL, whole: one pursuit over all samples, g_j = (p_j - onehot(y_j)) ⊗ [h_j, 1], towards
    target (C, d + 1).
    """
    return pursue(pool.whole(), target, budget, how)


def match_own_label_wise(pool: Pool, budget: int, how: Pursuit, split: Split) -> Coreset:
    """GradMatch (Killamsetty et al. 2021), per class: the target is the class's own mean gradient;
    no help from a server.
    """
    gradients = pool.own_label()

    def pick(label: int, rows: Tensor, share: int) -> Coreset:  # noqa: ARG001
        mine = gradients.rows(rows)
        return pursue(mine, mine.mean(), share, how)

    return pool.each_class(budget, split, pick)


def match_own_whole(pool: Pool, budget: int, how: Pursuit) -> Coreset:
    """GradMatch, whole: one pursuit towards the mean gradient of all samples."""
    gradients = pool.whole()
    return pursue(gradients, gradients.mean(), budget, how)


def glister_label_wise(
    pool: Pool, target: Tensor, budget: int, split: Split, draw: Draw
) -> Coreset:
    """GLISTER (Killamsetty et al. 2021), linearised: per class, the largest ⟨g_j, target_c⟩; random
    where c is absent.

    GLISTER maximises the log-likelihood of a validation set after one gradient step on the coreset.
    To first order in the step size its gain from sample j is η ⟨g_j, ∇l_S⟩, so the linearised
    objective Σ_{j in X} ⟨g_j, g⟩ is modular, and its best b points are the b largest. (The original
    evaluates the validation loss itself, which clients cannot.)
    """
    inner = pool.own_label()
    absent = _absent(target)

    def pick(label: int, rows: Tensor, share: int) -> Coreset:
        if absent[label]:
            return unweighted(_by_chance(len(rows), share, draw).indices)
        return _largest(inner.rows(rows).inner(target[label : label + 1]), share)

    return pool.each_class(budget, split, pick)


def glister_whole(pool: Pool, target: Tensor, budget: int) -> Coreset:
    """GLISTER, linearised, over all samples: the largest ⟨g_j, target⟩."""
    return _largest(pool.whole().inner(target), budget)


def _largest(values: Tensor, count: int) -> Coreset:
    return unweighted(values.argsort(descending=True, stable=True)[:count])
