"""Where wrong labels gather: samples that look alike share a rate of their own.

One rate for all of a client's samples fits labels that were flipped by chance. Samples that belong
to no class of the task are another matter: they look like each other, and nearly all their labels
are wrong; each of them alone may look like the class that it is called. With w_j the probability
that label j is wrong, ε its mean, and ℓ_j the mean of w over the k nearest other samples, a single
rate leaves Var(ℓ) near ε (1 - ε) / k. What is above that, v, tells how much rates differ from place
to place. The local rate is then that of a Beta prior with mean ε and m = max(1, ε (1 - ε) / v - 1)
pseudo-samples,

    ε_j = (k ℓ_j + m ε) / (k + m),

and the odds that the label is wrong are multiplied by [ε_j / (1 - ε_j)] / [ε₀ / (1 - ε₀)], with ε₀
the mean of the first w. Where v <= 0 nothing changes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gcfl.base import rng
from gcfl.labels.checks import Given, tensor

NEAREST = 10
_PASSES, _STILL = 30, 1e-4  # the new w gives new ℓ; so often, or until no w moves by more
_WIDTH = 128  # features are projected to so many dimensions for the search
_LEAST = 1e-3  # rates stay this far from 0 and 1
_AT_ONCE = 20_000_000  # similarities held in memory together


def with_neighbours(posterior: Given, labels: Given, features: Given) -> Tensor:
    """(n, C) the posterior of each sample's class in the light of labels nearby.

    posterior (n, C) with labels (n,) and features (n, d), in which alike means a large cosine.
    """
    posterior, labels = tensor(posterior, "posterior"), tensor(labels, "labels").long()
    features, n = tensor(features, "features"), len(labels)
    k = min(NEAREST, n - 1)
    if k < 2 or posterior.shape[1] < 2:
        return posterior
    near = nearest(features, k)
    rows = torch.arange(n)
    first = posterior.double()
    start = _inner(1 - first[rows, labels].mean())
    found = first
    for _ in range(_PASSES):
        wrong = 1 - found[rows, labels]
        mean, local = _inner(wrong.mean()), wrong[near].mean(dim=1)
        chance = mean * (1 - mean)
        excess = float(local.var(correction=0) - chance / k)
        if excess <= 0:
            break
        strength = max(1.0, float(chance) / excess - 1)
        rate = _inner((k * local + strength * mean) / (k + strength))
        odds = rate / (1 - rate) * (1 - start) / start
        found = first * odds[:, None]
        found[rows, labels] = first[rows, labels]
        found = found / found.sum(dim=1, keepdim=True)
        if float((1 - found[rows, labels] - wrong).abs().max()) < _STILL:
            break
    return found.to(posterior)


def nearest(features: Tensor, k: int) -> Tensor:
    """(n, k) the other samples with the largest cosine, the nearest first."""
    unit = torch.nn.functional.normalize(_narrow(features.float()), dim=1)
    n = len(unit)
    found = torch.empty(n, k, dtype=torch.int64)
    for block in torch.split(torch.arange(n), max(1, _AT_ONCE // n)):
        alike = unit[block] @ unit.T
        alike[torch.arange(len(block)), block] = -torch.inf
        found[block] = alike.topk(k, dim=1).indices
    return found


def _narrow(features: Tensor) -> Tensor:
    """Wide features by a random projection that is the same for all: cosines stay, nearly."""
    width = features.shape[1]
    if width <= _WIDTH:
        return features
    draw = rng.stream(0, "labels", "projection").standard_normal((width, _WIDTH), dtype="float32")
    return features @ torch.from_numpy(draw)


def _inner(rate: Tensor) -> Tensor:
    return rate.clamp(_LEAST, 1 - _LEAST)
