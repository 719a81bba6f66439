"""How sure the noise rate is: an interval by resampling the samples."""

from __future__ import annotations

import numpy as np
import torch

from gcfl.base import rng
from gcfl.base.errors import ConfigError
from gcfl.labels import em
from gcfl.labels.checks import Given, checked_logits
from gcfl.labels.posterior import NoiseModel, fit_samples, rule_of

_AT_ONCE = 200_000  # weights held in memory together


def rate_interval(
    logits: Given,
    labels: Given,
    model: NoiseModel | None = None,
    *,
    seed: int = 0,
    resamples: int = 200,
    level: float = 0.95,
) -> tuple[float, float]:
    """The middle `level` of the rates of resamples: n samples drawn with replacement, and
    everything fitted anew, the temperature too where the model gives none.

    It tells what the draw of the samples leaves open. What a wrong model of the noise or a badly
    calibrated network adds is not in it.
    """
    if not 0 < level < 1:
        raise ConfigError(f"level must be in (0, 1), got {level!r}")
    if resamples < 2:
        raise ConfigError(f"resamples must be at least 2, got {resamples!r}")
    model = model or NoiseModel()
    logits, labels = checked_logits(logits, labels)
    rule = rule_of(model, logits.shape[1])
    n = len(labels)
    draw = rng.stream(seed, "labels", "bootstrap")
    rates = []
    for first in range(0, resamples, max(1, _AT_ONCE // n)):
        count = min(max(1, _AT_ONCE // n), resamples - first)
        rows = draw.integers(0, n, (count, n)) + n * np.arange(count)[:, None]
        times = np.bincount(rows.ravel(), minlength=count * n).reshape(count, n)
        samples = em.Samples(logits[None], labels[None], torch.from_numpy(times).to(logits))
        rates.append(fit_samples(samples, model, rule).rate.cpu().numpy())
    low, high = np.quantile(np.concatenate(rates), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
