"""What a server can tell its clients: a calibration of the model, and the rate of all of them.

A temperature mends a model that is too sure. A half-trained one also favours some classes, and then
every client sees noise that is not there: a class bias mends that.

    p = softmax(z / τ + b)        minimises  -Σ_j log p_j[y_j] + ‖b‖² / 2    over clean samples

The model must not have trained on these samples, or it looks too good: cut them off before, or
cross-fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from gcfl.base.errors import DataError
from gcfl.labels.checks import Given, checked, checked_logits, tensor

COLDEST, WARMEST = 0.05, 20.0
_HALVINGS = 40
_NEWTON_STEPS = 20
_SETTLED = 1e-9  # a step of the bias that is as good as none
_ROUNDING = 1e-12  # of the loss


@dataclass(frozen=True)
class Calibration:
    """temperature: τ. bias: (C,) b. prior: (C,) the class shares of the clean samples, which the
    calibrated probabilities hold for: the training prior ρ of a `NoiseModel`.
    """

    temperature: float
    bias: Tensor
    prior: Tensor

    def apply(self, logits: Given) -> Tensor:
        """z / τ + b for logits (..., C), in float64; their own temperature is 1."""
        return tensor(logits, "logits").double() / self.temperature + self.bias


def fit_temperature(logits: Given, labels: Given) -> float:
    """τ that minimises -Σ_j log softmax(z_j / τ)[y_j], from logits (n, C) and clean labels (n,).

    τ stays in [0.05, 20]: a model without a mistake has no finite best one, and neither has one
    that knows nothing.
    """
    logits, labels = _prepared(*checked(logits, labels))
    return _search(logits, labels, lambda sharpness: (logits * sharpness).softmax(1))


def fit_calibration(logits: Given, labels: Given) -> Calibration:
    """τ and the class bias b, from logits (n, C) and clean labels (n,)."""
    logits, labels = _prepared(*checked_logits(logits, labels))
    n, classes = logits.shape
    seen = torch.bincount(labels, minlength=classes).to(logits.dtype)
    bias = torch.zeros_like(seen)

    def fitted(sharpness: float) -> Tensor:
        nonlocal bias  # where the last one ended is near
        bias = _fit_bias(logits * sharpness, seen, bias)
        return (logits * sharpness + bias).softmax(1)

    temperature = _search(logits, labels, fitted)
    fitted(1 / temperature)
    return Calibration(temperature, bias, (seen + 1) / (n + classes))


def pool_rates(rates: Sequence[float], sizes: Sequence[int]) -> tuple[float, float]:
    """The mean rate r of clients, weighted by their sizes, and how many samples it should weigh
    for each of them: the `prior_rate` and `rate_weight` of a `NoiseModel`.

    The weight is r(1-r) / v, where v is the variance of the rates beyond what binomial draws of
    these sizes have: clients that are alike shrink, clients that differ are left alone. It is at
    most the number of all samples.
    """
    if len(rates) != len(sizes) or len(sizes) == 0 or min(sizes) < 1:
        raise DataError(
            f"rates need one size of at least 1 each, got {len(rates)} rates and {len(sizes)} sizes"
        )
    each, counts = np.asarray(rates, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    if not ((each >= 0) & (each <= 1)).all():
        raise DataError("rates must be in [0, 1]")
    shares = counts / counts.sum()
    rate = float(shares @ each)
    binomial = rate * (1 - rate)
    beyond = float(shares @ ((each - rate) ** 2 - binomial / counts))
    most = float(counts.sum())
    return rate, most if beyond * most <= binomial else binomial / beyond


def _prepared(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return logits - logits.amax(1, keepdim=True), labels


def _search(logits: Tensor, labels: Tensor, fitted: Callable[[float], Tensor]) -> float:
    """The loss is convex in s = 1/τ, also after the best bias for each s, and its slope is
    Σ_j (Σ_c p_jc z_jc - z_j[y_j]): its sign halves an interval of log s.
    """
    own = (logits * one_hot(labels, logits.shape[1])).sum()
    low, high = math.log(1 / WARMEST), math.log(1 / COLDEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if float((fitted(math.exp(middle)) * logits).sum() - own) > 0:
            high = middle
        else:
            low = middle
    return math.exp(-(low + high) / 2)


def _fit_bias(scores: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
    """b that minimises Σ_j log Σ_c exp(s_jc + b_c) - Σ_c n_c b_c + ‖b‖² / 2, for scores (n, C) and
    class counts (C,): Newton steps, halved where the loss would grow.
    """
    identity = torch.eye(len(seen), dtype=seen.dtype, device=seen.device)

    def loss(bias: Tensor) -> float:
        value = torch.logsumexp(scores + bias, dim=1).sum() - seen @ bias + bias @ bias / 2
        return float(value)

    now = loss(bias)
    for _ in range(_NEWTON_STEPS):
        p = (scores + bias).softmax(1)
        slope = p.sum(0) - seen + bias
        step = torch.linalg.solve(torch.diag(p.sum(0)) - p.T @ p + identity, slope)
        if float(step.abs().max()) < _SETTLED:
            break
        size = 1.0
        # Near the minimum the loss cannot tell steps apart, and Newton's own is the best.
        while (tried := loss(bias - size * step)) > now + _ROUNDING * (1 + abs(now)):
            size /= 2
        bias, now = bias - size * step, tried
    return bias
