"""The best single point of each class of a small pool: what a pursuit with a budget of one chooses,
for all classes together.

Clients with a few samples each have budgets of one in most classes, where preparing a pursuit costs
more than the choice.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from gcfl.base.data_types import Coreset, IntArray
from gcfl.base.errors import DataError
from gcfl.coreset.omp import Pursuit, scores_of
from gcfl.coreset.pool import Pool


class Singles:
    """g_j = (p_y - 1)·[h_j, 1] of a pool, against row y of target (C, d + 1), or (C, d) without
    bias.
    """

    def __init__(self, pool: Pool, target: Tensor, how: Pursuit) -> None:
        self._how = how
        labels = pool.labels.numpy()
        features, wanted = (
            pool.features.numpy().astype(np.float64),
            target.numpy().astype(np.float64),
        )
        coefficients = (
            pool.probabilities.numpy()[np.arange(len(labels)), labels].astype(np.float64) - 1.0
        )
        aims, d = wanted[labels], features.shape[1]
        dots, squares = (
            np.einsum("nd,nd->n", features, aims[:, :d]),
            np.einsum("nd,nd->n", features, features),
        )
        if pool.bias:
            dots, squares = dots + aims[:, d], squares + 1
        self._inner, self._norms = coefficients * dots, coefficients * coefficients * squares
        if not np.isfinite(self._norms).all():
            raise DataError("features or probabilities are NaN, infinite or too large to square")
        self._slack = how.tolerance * np.sqrt(np.einsum("cd,cd->c", wanted, wanted))

    def best(self, rows: IntArray, label: int) -> Coreset:
        """Which of these rows, all of that label, and w = ⟨g_j, g⟩ / (‖g_j‖² + λ) where that lowers
        the objective.
        """
        first, norms = self._inner[rows], self._norms[rows]
        gain = first if self._how.nonnegative else np.abs(first)
        j = int(scores_of(self._how, gain, first, norms).argmax())
        lowers = gain[j] > self._slack[label] * np.sqrt(norms[j])
        return Coreset(
            np.array([j]), np.array([first[j] / (norms[j] + self._how.ridge) if lowers else 0.0])
        )
