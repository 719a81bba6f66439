"""Gradient matching: the coreset whose gradient adds up to the server's (the paper's equation 5)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gcfl.coreset.budget import Split, per_class
from gcfl.coreset.gradients import own_label, whole
from gcfl.coreset.omp import Pursuit, pursue
from gcfl.types import Coreset


def match_label_wise(
    features: Tensor,
    probabilities: Tensor,
    labels: Tensor,
    target: Tensor,
    budget: int,
    how: Pursuit,
    split: Split,
    draw: np.random.Generator,
    bias: bool = True,
) -> Coreset:
    """One pursuit per class: over the samples labelled c, g_j = (p_jc - 1)·[h_j, 1] against row c of target (C, d + 1).

    features (n, d), probabilities (n, C), labels (n,). A class whose target is zero (the server has no sample of it)
    gets its points at random from `draw`. The result has exactly min(budget, n) points.
    """
    classes = probabilities.shape[1]
    shares = per_class(np.bincount(labels.numpy(), minlength=classes), budget, split)
    gradients = own_label(features, probabilities, labels, bias)
    indices, weights = [np.empty(0, dtype=np.int64)], [np.empty(0)]
    for label in np.flatnonzero(shares):
        rows = torch.nonzero(labels == int(label))[:, 0]
        if bool((target[label] == 0).all()):
            part = np.sort(draw.permutation(len(rows))[: shares[label]])
            weights.append(np.ones(len(part)))
        else:
            found = pursue(gradients.rows(rows), target[label : label + 1], int(shares[label]), how)
            part = found.indices
            weights.append(found.weights)
        indices.append(rows.numpy()[part])
    return Coreset(np.concatenate(indices), np.concatenate(weights))


def match_whole(
    features: Tensor, probabilities: Tensor, labels: Tensor, target: Tensor, budget: int, how: Pursuit, bias: bool = True
) -> Coreset:
    """One pursuit over all samples, g_j = (p_j - onehot(y_j)) ⊗ [h_j, 1], against the mean gradient (C, d + 1)."""
    return pursue(whole(features, probabilities, labels, bias), target, budget, how)
