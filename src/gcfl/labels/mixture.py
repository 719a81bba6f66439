"""Two kinds of values told apart, how many dimensions outputs fill, and labels set to a model's.

Wrong labels leave marks that FedCorr (Xu et al., CVPR 2022) reads: a model trained on them spreads
its outputs over more dimensions, and gives them larger losses.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

_TINY = 1e-6  # distances below count as this
_ROWS = 1 << 23  # so many distances at once, 64 MB


@cache
def fitter() -> tuple[type[Any], ThreadpoolController]:
    """scikit-learn's mixture and the threads behind it; slow to import, so only where asked for."""
    from sklearn.mixture import GaussianMixture

    return GaussianMixture, ThreadpoolController()


def upper_component(values: Tensor, word: int) -> Tensor:
    """(n,) whether each value belongs to the component with the larger mean, of two Gaussians
    fitted to all of them; none does where all are alike.

    word: what the fit draws from.
    """
    column = values.double().numpy()[:, None]
    if len(np.unique(column)) < 2:
        return torch.zeros(len(values), dtype=torch.bool)
    mixture, threads = fitter()
    with threads.limit(limits=1):  # the number of threads changes the order of sums
        fitted = mixture(n_components=2, random_state=word).fit(column)
        return torch.from_numpy(fitted.predict(column) == fitted.means_[:, 0].argmax())


def intrinsic_dimensions(points: Tensor, neighbours: int) -> Tensor:
    """(n,) the local intrinsic dimensionality at each of the points (n, d):

        -k / Σ_j log(r_j / r_k),   r_1 <= ... <= r_k the distances to its k nearest others

    0 where all of these coincide with it. With n - 1 < k others, all of them count.
    """
    points = points.double()
    n = len(points)
    k = min(neighbours, n - 1)
    if k < 1:
        return torch.zeros(n, dtype=torch.float64)
    found = []
    for block in torch.split(points, max(1, _ROWS // n)):
        between = torch.cdist(block, points, compute_mode="donot_use_mm_for_euclid_dist")
        near = between.topk(k + 1, largest=False).values[:, 1:]  # without itself
        near, far = near.clamp(min=_TINY), near[:, -1:]
        found.append(torch.where(far[:, 0] > 0, -k / (near / (far + _TINY)).log().sum(dim=1), 0.0))
    return torch.cat(found)


def relabelled(
    labels: Tensor, losses: Tensor, probabilities: Tensor, share: float, confidence: float
) -> Tensor:
    """(n,) labels, of which among the round(share · n) with the largest losses those are set to the
    model's answer whose probability is above `confidence`. probabilities (n, C).
    """
    largest = losses.argsort(descending=True, stable=True)[: round(share * len(labels))]
    sure, answers = probabilities[largest].max(dim=1)
    chosen = sure > confidence
    mended = labels.clone()
    mended[largest[chosen]] = answers[chosen]
    return mended
