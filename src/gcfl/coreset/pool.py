"""What every selector chooses from, how many points, and how they are shared out over classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from gcfl.base.data_types import Coreset, IntArray
from gcfl.base.errors import ConfigError, one_of
from gcfl.base.options import largest_remainder
from gcfl.coreset.gradients import Gradients, own_label, whole

Split = Literal["proportional", "equal"]
_TINY = 1e-300  # stands for a probability of 0


def points(share: float, n: int) -> int:
    """b = max(1, round(share * n)), at most n."""
    return min(n, max(1, round(share * n)))


def per_class(counts: IntArray, budget: int, split: Split) -> IntArray:
    """b_c (C,) with sum exactly min(budget, n), never more than a class has.

    `proportional` to the samples of each class, by largest remainder; `equal` for each class that
    is present, where what exceeds a class is handed on to the others.
    """
    if split not in get_args(Split):
        raise ConfigError(f"split must be {one_of(get_args(Split))}, got {split!r}")
    total = int(counts.sum())
    budget = min(budget, total)
    if total == 0:
        return np.zeros_like(counts)
    if split == "proportional":
        return np.minimum(largest_remainder(counts / total, budget), counts)
    given = np.zeros_like(counts)
    while (left := budget - int(given.sum())) > 0:
        open_classes = np.flatnonzero(given < counts)
        share = left // len(open_classes)
        if share == 0:  # what cannot be split evenly goes to the first ones
            open_classes, share = open_classes[:left], 1
        given[open_classes] = np.minimum(given[open_classes] + share, counts[open_classes])
    return given


@dataclass(frozen=True)
class Pool:
    """The samples of one party as the current model sees them.

    features (n, d): the last layer's input; probabilities (n, C); labels (n,), or (n, C) zeros and
    ones for sigmoid outputs. right (n,): the probability that each label is right, where estimated.
    head (C, d): the weights of the last layer, where they are known.
    """

    features: Tensor
    probabilities: Tensor
    labels: Tensor
    bias: bool = True
    right: Tensor | None = None
    head: Tensor | None = None

    @classmethod
    def unseen(cls, n: int) -> Pool:
        """So many samples of which nothing is known: no model has looked at them."""
        empty = torch.empty((n, 0))
        return cls(empty, empty, torch.zeros(n, dtype=torch.int64))

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @property
    def classes(self) -> int:
        return int(self.probabilities.shape[1])

    @property
    def logits(self) -> Tensor:
        """(n, C) log p in float64: the model's logits, but for a constant per sample."""
        return self.probabilities.double().clamp(min=_TINY).log()

    def own_label(self) -> Gradients:
        """g_j = (p_y - 1)·[h_j, 1]: of the weights that feed the sample's own label."""
        return own_label(self.features, self.probabilities, self.labels, self.bias)

    def whole(self) -> Gradients:
        """g_j = (p_j - onehot(y_j)) ⊗ [h_j, 1]: of the full last layer."""
        return whole(self.features, self.probabilities, self.labels, self.bias)

    def feature_gradients(self) -> Tensor:
        """(n, min(C, d)) float64: ∂L/∂h_j = (p_j - onehot(y_j)) W, turned into fewer columns.

        With Wᵀ = QR, ‖e W‖ = ‖e Rᵀ‖, since the columns of Q are orthonormal: distances stay.
        """
        if self.head is None:
            raise ConfigError(
                "gradients with respect to the features need the last layer's weights: pass "
                "head=W (C, d)"
            )
        upper: Tensor = torch.linalg.qr(self.head.double().T, mode="r").R
        return self.whole().coefficients.double() @ upper.T

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
