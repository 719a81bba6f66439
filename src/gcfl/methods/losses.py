"""Losses of single samples, from logits (n, C) and labels (n,), p = softmax(logits)_y.

cross-entropy   -log p, with a share s of the label spread over all classes: (1 - s) · (-log p) + s
                · mean_k (-log p_k)
gce             (1 - p^q) / q                            between cross-entropy (q → 0) and the mean
                absolute error (q = 1)
sce             α (-log p) - β · A (1 - p), A < 0         reverse cross-entropy, whose log 0 is A
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gcfl.base.data_types import Shard, Tree
from gcfl.labels import fit_temperature, losses_from_columns
from gcfl.methods.augmentation import Mix
from gcfl.methods.options import TrainOptions
from gcfl.methods.views import ServerView

_WORST = 100.0  # a loss that counts for any that is larger, or none


def sample_losses(
    logits: Tensor, labels: Tensor, options: TrainOptions, columns: Tensor | None = None
) -> Tensor:
    """(n,) the loss of each sample; also (m, n) from logits (m, n, C), for many clients at once.

    columns: `log_columns` of T (C, C), or of each client's (m, C, C), for the corrected loss.
    """
    if options.loss == "corrected" and columns is not None:
        return losses_from_columns(logits, labels, columns)
    if options.loss in ("cross-entropy", "corrected"):
        # Classes before samples: a softmax over few classes is then several times faster.
        laid_out = logits.transpose(1, 2) if logits.ndim == 3 else logits
        return cross_entropy(laid_out, labels, reduction="none", label_smoothing=options.smoothing)
    log_p = torch.log_softmax(logits, dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    if options.loss == "gce":
        return (1 - torch.exp(options.gce_q * log_p)) / options.gce_q
    reverse = options.sce_beta * -options.sce_log_zero
    return -options.sce_alpha * log_p + reverse * (1 - log_p.exp())


def mean_loss(
    logits: Tensor,
    labels: Tensor,
    options: TrainOptions,
    weights: Tensor | None,
    columns: Tensor | None = None,
    mix: Mix | None = None,
) -> Tensor:
    """The mean over a batch, each sample times its weight; with mixup, that of both labels."""
    if mix is not None:
        others = None if weights is None else weights[mix.partners]
        own = mean_loss(logits, labels, options, weights, columns)
        other = mean_loss(logits, labels[mix.partners], options, others, columns)
        return mix.share * own + (1 - mix.share) * other
    if weights is None and options.loss == "cross-entropy":
        return cross_entropy(logits, labels, label_smoothing=options.smoothing)
    losses = sample_losses(logits, labels, options, columns)
    return losses.mean() if weights is None else (losses * weights).mean()


def tempered_loss(view: ServerView, model: Tree, shard: Shard) -> float:
    """min_τ of the mean over clean samples of -log softmax(z / τ)_y: how good a model is, however
    sure of itself; counted.
    """
    view.meter.forward += len(shard)
    logits = view.setting.network.outputs(model, shard.x).logits.cpu()
    return min(calibrated_loss(logits, shard.y), _WORST)


def calibrated_loss(logits: Tensor, labels: Tensor) -> float:
    """min_τ of the mean of -log softmax(z / τ)_y; infinite where the logits are not finite."""
    if not bool(torch.isfinite(logits).all()):
        return math.inf
    scaled = logits.double() / fit_temperature(logits, labels)
    return float(cross_entropy(scaled, labels))
