"""DP-SGD on the server's clean set: every step looks at all of it.

    g = (Σ clip(∇l_j(θ), S) + N(0, (z S)²)) / n        v ← m v + g + λ θ        θ ← θ - η v

with l the cross-entropy and n the noisy number of clean samples. There is no sampling, so a step is
one Gaussian release. The model is in evaluation mode: what it makes of a sample must not depend on
the others, as it would with BatchNorm's own statistics of a batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gcfl.base import rng
from gcfl.base.data_types import Tree
from gcfl.methods.ledger import Ledger
from gcfl.methods.noise import shortened
from gcfl.methods.training import SGD, Trained
from gcfl.methods.views import ServerView

_NUMBERS = 1 << 24  # of gradients that are held at once


def noisy_descent(view: ServerView, ledger: Ledger, model: Tree, lr: float, steps: int) -> Trained:
    """So many steps from a model, or fewer where the budget ends. Its loss is not told."""
    network, options = view.setting.network, view.setting.train
    local = {name: tensor.to(network.device, copy=True) for name, tensor in model.items()}
    names = list(network.trained)
    tensors = [local[name] for name in names]
    optimiser = SGD(tensors, lr, options.momentum, options.weight_decay)
    n, done = len(view.validation), 0
    counts = ledger.counts(view.validation.y, network.classes)
    while counts is not None and done < steps:
        found = ledger.step(gradient_sum(view, local, ledger.clip))
        if found is None:
            break
        parts = torch.split(found / counts.sum(), [tensor.numel() for tensor in tensors])
        optimiser.step(
            [part.reshape(one.shape).to(one) for part, one in zip(parts, tensors, strict=True)]
        )
        done += 1
    view.meter.forward += n * done
    view.meter.backward += n * done
    view.meter.steps += done
    return Trained(local, n, done, math.nan, None)


def gradient_sum(view: ServerView, model: Tree, clip: float) -> Tensor:
    """(P,) Σ_j clip(∇l_j, S) over the clean set and all trained weights."""
    network, n = view.setting.network, len(view.validation)
    params = {name: model[name].detach() for name in network.trained}
    rest = {name: tensor for name, tensor in model.items() if name not in params}

    def loss(params: Tree, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(network({**params, **rest}, x[None]).logits, y[None])

    slopes = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    size = sum(tensor.numel() for tensor in params.values())
    total = torch.zeros(size, dtype=torch.float64)
    with rng.isolated(view.setting.seed, "privacy"):
        for rows in torch.split(torch.arange(n), max(1, _NUMBERS // size)):
            x = network.prepare(view.validation.x[rows])
            found = slopes(params, x, view.validation.y[rows].to(network.device))
            flat = torch.cat([found[name].flatten(1).cpu() for name in params], dim=1)
            total += shortened(flat, clip).sum(0)
    return total
