"""Problems with a known truth, for the tests of labels."""

from __future__ import annotations

import numpy as np
import torch

from gcfl.base import rng


def symmetric(rate, classes):
    same = np.eye(classes)
    return (1 - rate) * same + rate / (classes - 1) * (1 - same)


def calibrated(seed, n=1000, classes=10, transition=None, prior=None, distance=1.7):
    """Gaussian classes whose exact log-densities are the logits, so that softmax(z) is the true
    posterior under a uniform prior. Gives logits, observed labels, true classes.
    """
    draw = rng.stream(seed, "scene")
    means = draw.normal(size=(classes, 30))
    means *= distance / np.linalg.norm(means, axis=1, keepdims=True)
    truth = draw.choice(classes, n, p=prior)
    x = means[truth] + draw.normal(size=(n, 30))
    logits = x @ means.T - (means**2).sum(1) / 2
    rows = symmetric(0.4, classes) if transition is None else transition
    observed = (rows[truth].cumsum(1) < draw.random((n, 1))).sum(1)
    return torch.from_numpy(logits), torch.from_numpy(observed), torch.from_numpy(truth)


def rough(seed, n, classes, scale=3.0):
    """Any logits, any labels."""
    draw = rng.stream(seed, "rough")
    logits = torch.from_numpy(draw.normal(size=(n, classes)) * scale)
    return logits, torch.from_numpy(draw.integers(0, classes, n))
