"""What any user would try first: chance, or trust in what the current model finds easy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gcfl.base.data_types import Coreset, Tree
from gcfl.coreset.pool import Pool, unweighted
from gcfl.coreset.selector import ByClass, Draw, Needs, Selector, at_random


class Random(Selector):
    """b samples uniformly without replacement: the baseline that any selection has to beat."""

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "a random share of each client's samples, drawn again every K rounds"
    needs: ClassVar[Needs] = "nothing"
    multi_label: ClassVar[bool] = True

    def pick(
        self, pool: Pool, target: Tensor | None, budget: int, draw: Draw, memory: Tree
    ) -> tuple[Coreset, Tree]:
        return at_random(len(pool), budget, draw("coreset", "round")), {}


class SmallLoss(ByClass):
    """min over |X| <= b of Σ_{j in X} -log p_j(y_j), per class."""

    name: ClassVar[str] = "small-loss"
    summary: ClassVar[str] = "the samples of smallest loss under the current model, per class"
    needs: ClassVar[Needs] = "probabilities"

    def pick(
        self, pool: Pool, target: Tensor | None, budget: int, draw: Draw, memory: Tree
    ) -> tuple[Coreset, Tree]:
        of_label = pool.probabilities.gather(1, pool.labels[:, None])[:, 0]

        def one_class(label: int, rows: Tensor, share: int) -> Coreset:  # noqa: ARG001
            return unweighted(of_label[rows].argsort(descending=True, stable=True)[:share])

        return pool.each_class(budget, self.split, one_class), {}


class Agreement(Selector):
    """b samples at random among those with argmax_c p_j(c) = y_j.

    Where fewer agree than the budget asks for, the rest are those whose label is most probable.
    """

    name: ClassVar[str] = "agreement"
    summary: ClassVar[str] = "random samples whose label the current model predicts"
    needs: ClassVar[Needs] = "probabilities"

    def pick(
        self, pool: Pool, target: Tensor | None, budget: int, draw: Draw, memory: Tree
    ) -> tuple[Coreset, Tree]:
        budget = min(budget, len(pool))
        agrees = (pool.probabilities.argmax(1) == pool.labels).numpy()
        chosen = draw("agreement").permutation(np.flatnonzero(agrees))[:budget]
        if len(chosen) < budget:
            of_label = pool.probabilities.gather(1, pool.labels[:, None])[:, 0]
            rest = torch.where(torch.from_numpy(agrees), -torch.inf, of_label)
            likely = rest.argsort(descending=True, stable=True)[: budget - len(chosen)]
            chosen = np.concatenate([chosen, likely.numpy()])
        return unweighted(np.sort(chosen)), {}
