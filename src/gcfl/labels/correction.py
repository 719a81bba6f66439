"""The loss of a model whose labels went through T: forward correction.

    ℓ = -log Σ_c T[c, ỹ] p_c(x),   p = softmax(z)

Its minimiser is the model of the true classes when T is true: a label's gradient is weighed by the
probability that it is right, at every step.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gcfl.labels.checks import Given, tensor


def corrected_losses(logits: Given, labels: Given, transition: Given) -> Tensor:
    """(..., n) the loss of each sample, from logits (..., n, C), labels (..., n) or (n,), and T
    (C, C), or one T per client (m, C, C) for logits (m, n, C).

    In log space, and differentiable in logits and T. T = I gives cross-entropy. Zeros in T are
    exact: such a class takes no part. A label that T calls impossible for every class has a large
    constant loss and no gradient: it says nothing of the class. Nothing here looks at values, so it
    can be batched over clients by `torch.func.vmap`.
    """
    logits, labels = tensor(logits, "logits"), tensor(labels, "labels")
    matrix = tensor(transition, "transition").to(logits.dtype)
    return losses_from_columns(logits, labels, log_columns(matrix))


def losses_from_columns(logits: Tensor, labels: Tensor, columns: Tensor) -> Tensor:
    """`corrected_losses` with `log_columns` of T, which a loop over batches computes once."""
    if columns.ndim == 2:
        chosen = columns[labels]
    else:
        index = labels.expand(logits.shape[:-1]).unsqueeze(-1)
        chosen = torch.take_along_dim(columns, index, dim=-2)
    return -torch.logsumexp(torch.log_softmax(logits, dim=-1) + chosen, dim=-1)


def log_columns(transition: Tensor) -> Tensor:
    """(..., C, C) log T[c, k] at [k, c]; -inf for zeros, but finite where all of k's are zero."""
    turned = transition.transpose(-1, -2)
    possible = turned > 0
    # Zeros are replaced before the logarithm too: its slope there would be infinite.
    logs = torch.where(possible, turned, 1.0).log()
    smallest = math.log(torch.finfo(turned.dtype).tiny)
    zero = torch.where(possible.any(-1, keepdim=True), -torch.inf, smallest)
    return torch.where(possible, logs, zero.to(logs.dtype))
