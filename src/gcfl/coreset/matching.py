"""Selectors by gradients: GCFL, GradMatch and GLISTER."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from torch import Tensor

from gcfl.base.data_types import Coreset, Tree
from gcfl.base.errors import ConfigError
from gcfl.coreset.gradients import Gradients
from gcfl.coreset.omp import Pursuit, Score, Singles, pursue
from gcfl.coreset.pool import Pool, unweighted
from gcfl.coreset.selector import Draw, Targeted, WithVariants

_SMALL = 1 << 16  # features up to here may be held once more, in double precision


class GradientMatching(Targeted, Pursuit):
    """GCFL: min over |X| <= b, w >= 0 of ‖Σ w_j g_j - g‖² + λ‖w‖², per class or whole.

    Label-wise (the paper's equation 5): one pursuit per class, over the samples labelled c, with
    g_j = (p_jc - 1)·[h_j, 1], towards row c of the target. A class whose row is zero (the server
    has no sample of it) gets its points at random. Whole: one pursuit over all samples, with
    g_j = (p_j - onehot(y_j)) ⊗ [h_j, 1]. Exactly min(b, n) points.
    """

    name: ClassVar[str] = "gcfl"
    summary: ClassVar[str] = (
        "a coreset whose gradient matches the server's clean set (the paper's method)"
    )

    score: Score = "cosine"
    """which point is next: by the largest cosine (orthogonal matching pursuit by the book) or inner
    product (the authors' code), or the smallest distance (the paper's text)
    """

    def pick(
        self, pool: Pool, target: Tensor | None, budget: int, draw: Draw, memory: Tree
    ) -> tuple[Coreset, Tree]:
        goal = required(target)
        if self.variant == "whole":
            return pursue(pool.whole(), goal, budget, self), {}
        by_class = _LabelWise(pool, goal, self, draw)
        return pool.each_class(budget, self.split, by_class.pick), {}


@dataclass(frozen=True)
class _LabelWise:
    """One class after the other; what several of them need is computed once, where one does."""

    pool: Pool
    target: Tensor
    how: Pursuit
    draw: Draw

    @cached_property
    def absent(self) -> list[bool]:
        return _absent(self.target)

    @cached_property
    def gradients(self) -> Gradients:
        return self.pool.own_label()

    @cached_property
    def singles(self) -> Singles | None:
        """The fast way to a single point, where the pool is small."""
        small = self.pool.features.numel() <= _SMALL
        return Singles(self.pool, self.target, self.how) if small else None

    def pick(self, label: int, rows: Tensor, share: int) -> Coreset:
        if self.absent[label]:
            return _by_chance(len(rows), share, self.draw)
        if share == 1 and self.singles is not None:
            return self.singles.best(rows.numpy(), label)
        goal = self.target[label : label + 1]
        return pursue(self.gradients.rows(rows), goal, share, self.how)


def required(target: Tensor | None) -> Tensor:
    if target is None:
        raise ConfigError(
            "this selector matches a target: pass target=label_wise_target(...) of a clean set, or "
            "whole_target(...)"
        )
    return target


def _absent(target: Tensor) -> list[bool]:
    """(C,) whether the server has no sample of a class."""
    return [not row.any() for row in target.numpy()]


def _by_chance(n: int, share: int, draw: Draw) -> Coreset:
    """Random points whose weights are together 1, about what a pursuit gives a class."""
    chance = np.sort(draw("absent").permutation(n)[:share])
    return Coreset(chance, np.full(len(chance), 1 / len(chance)))


class GradMatch(WithVariants, Pursuit):
    """min over |X| <= b, w >= 0 of ‖Σ w_j g_j - mean_j g_j‖² + λ‖w‖², per class or whole.

    The target is the samples' own mean gradient, wrong labels included (Killamsetty et al. 2021).
    """

    name: ClassVar[str] = "gradmatch"
    summary: ClassVar[str] = (
        "a coreset whose gradient matches the client's own data (GradMatch, no server help)"
    )
    multi_label: ClassVar[bool] = True

    def pick(
        self, pool: Pool, target: Tensor | None, budget: int, draw: Draw, memory: Tree
    ) -> tuple[Coreset, Tree]:
        if self.variant == "whole":
            gradients = pool.whole()
            return pursue(gradients, gradients.mean(), budget, self), {}
        by_label = pool.own_label()

        def one_class(label: int, rows: Tensor, share: int) -> Coreset:  # noqa: ARG001
            mine = by_label.rows(rows)
            return pursue(mine, mine.mean(), share, self)

        return pool.each_class(budget, self.split, one_class), {}


class Glister(Targeted):
    """GLISTER, linearised: max over |X| <= b of Σ_{j in X} ⟨g_j, g⟩, per class or whole.

    GLISTER (Killamsetty et al. 2021) maximises the log-likelihood of a validation set after one
    gradient step on the coreset. To first order in the step size its gain from sample j is
    η ⟨g_j, ∇l_S⟩, so the linearised objective is modular, and its best b points are the b largest.
    The original linearises again and again: after every few picks it takes a step on them and the
    gradient of the validation loss there. A client has that gradient at the round's model alone, so
    here it is taken once, and nothing keeps the b points from being much alike. Random where the
    server has no sample of a class.
    """

    name: ClassVar[str] = "glister"
    summary: ClassVar[str] = (
        "samples whose gradient points most along the server's (GLISTER, one linearised step)"
    )

    def pick(
        self, pool: Pool, target: Tensor | None, budget: int, draw: Draw, memory: Tree
    ) -> tuple[Coreset, Tree]:
        goal = required(target)
        if self.variant == "whole":
            return _largest(pool.whole().inner(goal), budget), {}
        by_label, absent = pool.own_label(), _absent(goal)

        def one_class(label: int, rows: Tensor, share: int) -> Coreset:
            if absent[label]:
                return unweighted(_by_chance(len(rows), share, draw).indices)
            return _largest(by_label.rows(rows).inner(goal[label : label + 1]), share)

        return pool.each_class(budget, self.split, one_class), {}


def _largest(values: Tensor, count: int) -> Coreset:
    return unweighted(values.argsort(descending=True, stable=True)[:count])
