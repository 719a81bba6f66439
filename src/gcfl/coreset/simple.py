"""What any user would try first."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gcfl.base.data_types import Coreset
from gcfl.coreset.budget import Split
from gcfl.coreset.pool import Pool, unweighted


def uniform(pool: Pool, budget: int, draw: np.random.Generator) -> Coreset:
    """Random: `budget` samples without replacement."""
    return unweighted(np.sort(draw.permutation(len(pool))[:budget]))


def small_loss(pool: Pool, budget: int, split: Split) -> Coreset:
    """Small loss: per class, the samples that the current model finds easiest, i.e. min Σ_{j in X}
    -log p_j(y_j).
    """
    own = pool.probabilities.gather(1, pool.labels[:, None])[:, 0]

    def pick(label: int, rows: Tensor, share: int) -> Coreset:  # noqa: ARG001
        return unweighted(own[rows].argsort(descending=True, stable=True)[:share])

    return pool.each_class(budget, split, pick)


def agreement(pool: Pool, budget: int, draw: np.random.Generator) -> Coreset:
    """Agreement: samples whose label is the current model's prediction, drawn at random.

    Where fewer agree than the budget asks for, the rest are those whose label is most probable.
    """
    budget = min(budget, len(pool))
    agrees = (pool.probabilities.argmax(1) == pool.labels).numpy()
    chosen = draw.permutation(np.flatnonzero(agrees))[:budget]
    if len(chosen) < budget:
        own = pool.probabilities.gather(1, pool.labels[:, None])[:, 0]
        own = torch.where(torch.from_numpy(agrees), -torch.inf, own)
        chosen = np.concatenate(
            [chosen, own.argsort(descending=True, stable=True)[: budget - len(chosen)].numpy()]
        )
    return unweighted(np.sort(chosen))
