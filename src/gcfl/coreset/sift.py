"""Sifting: drop what is clearly mislabelled, and draw from the rest."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import AfterValidator
from torch import Tensor

from gcfl.base.data_types import Coreset, Tree
from gcfl.base.options import within
from gcfl.coreset.pool import Pool, unweighted
from gcfl.coreset.selector import Draw, Needs, Selector
from gcfl.labels import label_posterior


class Sift(Selector):
    """{ j : q_j[ỹ_j] >= threshold }, the samples whose label is probably right; each round draws b.

    q is the label posterior (`gcfl.labels`). Where fewer than b pass, those likeliest to be right
    join. A low threshold keeps what the model finds hard: purity is not the goal.
    """

    name: ClassVar[str] = "sift"
    summary: ClassVar[str] = (
        "random samples, in each round, among those whose label is probably right"
    )
    needs: ClassVar[Needs] = "posterior"

    threshold: Annotated[float, AfterValidator(within(0, 1))] = 0.3
    """least probability that a label is right"""

    def pick(
        self, pool: Pool, target: Tensor | None, budget: int, draw: Draw, memory: Tree
    ) -> tuple[Coreset, Tree]:
        right = pool.right
        if right is None:
            right = label_posterior(pool.logits, pool.labels).right
        passed = np.flatnonzero(right.numpy() >= self.threshold)
        if len(passed) < budget:
            likely = right.argsort(descending=True, stable=True)[:budget]
            passed = np.sort(likely.numpy())
        return unweighted(passed), {}
