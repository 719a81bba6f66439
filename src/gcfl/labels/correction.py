"""The loss of a model whose labels went through T: forward correction.

    ℓ = -log Σ_c T[c, ỹ] p_c(x),   p = softmax(z)

Its minimiser is the model of the true classes when T is true: a label's gradient is weighed by the
probability that it is right, at every step.
"""

from __future__ import annotations

import torch
from torch import Tensor


def corrected_losses(logits: Tensor, labels: Tensor, transition: Tensor) -> Tensor:
    """(..., n) the loss of each sample, from logits (..., n, C), labels (..., n) and T (C, C), or
    one T per client (m, C, C) for logits (m, n, C).

    In log space, and differentiable in logits and T. T = I gives cross-entropy. Zeros in T are
    exact: such a class takes no part. A label that T calls impossible for every class has a large
    constant loss and no gradient: it says nothing of the class. Nothing here looks at values, so it
    can be batched over clients by `torch.func.vmap`.
    """
    log_t = _log_columns(transition.to(logits.dtype))
    columns = torch.take_along_dim(log_t, labels.unsqueeze(-1), dim=-2)
    return -torch.logsumexp(torch.log_softmax(logits, dim=-1) + columns, dim=-1)


def _log_columns(transition: Tensor) -> Tensor:
    """(..., C, C) log T[c, k] at [k, c]; -inf for zeros, but finite where all of k's are zero."""
    turned = transition.transpose(-1, -2)
    possible = turned > 0
    # Zeros are replaced before the logarithm too: its slope there would be infinite.
    logs = torch.where(possible, turned, torch.ones_like(turned)).log()
    least = torch.finfo(turned.dtype).tiny
    nothing = torch.full_like(turned, least).log()
    zero = torch.where(possible.any(-1, keepdim=True), torch.full_like(turned, -torch.inf), nothing)
    return torch.where(possible, logs, zero)
