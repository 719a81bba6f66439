"""What every selector chooses from: the samples of one party as the current model sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gcfl.base.data_types import Coreset
from gcfl.coreset.budget import Split, per_class
from gcfl.coreset.gradients import Gradients, own_label, whole


@dataclass(frozen=True)
class Pool:
    """features (n, d): the last layer's input; probabilities (n, C); labels (n,), or (n, C) zeros
    and ones for sigmoid outputs.
    """

    features: Tensor
    probabilities: Tensor
    labels: Tensor
    bias: bool = True

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @property
    def classes(self) -> int:
        return int(self.probabilities.shape[1])

    def own_label(self) -> Gradients:
        """g_j = (p_y - 1)·[h_j, 1]: of the weights that feed the sample's own label."""
        return own_label(self.features, self.probabilities, self.labels, self.bias)

    def whole(self) -> Gradients:
        """g_j = (p_j - onehot(y_j)) ⊗ [h_j, 1]: of the full last layer."""
        return whole(self.features, self.probabilities, self.labels, self.bias)

    def each_class(
        self, budget: int, split: Split, pick: Callable[[int, Tensor, int], Coreset]
    ) -> Coreset:
        """`pick(label, rows, b_c)` for every class with a share b_c of the budget, put together;
        rows (n_c,) are its samples.

        What `pick` returns counts within rows.
        """
        labels = self.labels.numpy()
        shares = per_class(np.bincount(labels, minlength=self.classes), budget, split)
        indices, weights = [np.empty(0, dtype=np.int64)], [np.empty(0)]
        for label in np.flatnonzero(shares).tolist():
            rows = np.flatnonzero(labels == label)
            found = pick(label, torch.from_numpy(rows), int(shares[label]))
            indices.append(rows[found.indices])
            weights.append(found.weights)
        return Coreset(np.concatenate(indices), np.concatenate(weights))


def unweighted(indices: Tensor | np.ndarray) -> Coreset:
    """These points, each with weight 1."""
    chosen = np.asarray(indices, dtype=np.int64)
    return Coreset(chosen, np.ones(len(chosen)))
