"""SGD with momentum and weight decay, as torch.optim.SGD defines it, in one fused kernel per step.

torch's own class imports its compiler on first use, which costs more than a second in every
process, and it costs more per step than the arithmetic of a small model.
"""

from __future__ import annotations

import torch
from torch import Tensor


class SGD:
    """b ← m b + (g + wd θ), θ ← θ - lr b, in place; b starts at 0, so the first step takes the
    plain gradient.
    """

    def __init__(
        self, params: list[Tensor], lr: float, momentum: float, weight_decay: float
    ) -> None:
        self._params = params
        self._lr, self._momentum, self._weight_decay = lr, momentum, weight_decay
        self._buffers = [torch.zeros_like(param) for param in params] if momentum else []
        self._fused = params[0].device.type in ("cpu", "cuda")

    @torch.no_grad()
    def step(self, gradients: list[Tensor], first: int | None = None) -> None:
        """One step, of the first so many rows of every tensor where that is said; the gradients may
        be overwritten.
        """
        params, buffers = self._params, self._buffers
        if first is not None and first < len(params[0]):
            params, buffers = (
                [tensor[:first] for tensor in tensors] for tensors in (params, buffers)
            )
        if self._fused:
            # The kernel walks through memory: a gradient that lies there in another order than its
            # parameter would go astray.
            gradients = [
                gradient
                if gradient.stride() == param.stride()
                else torch.empty_like(param).copy_(gradient)
                for gradient, param in zip(gradients, params, strict=True)
            ]
            torch._fused_sgd_(
                params,
                gradients,
                buffers,
                weight_decay=self._weight_decay,
                momentum=self._momentum,
                lr=self._lr,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )
            return
        torch._foreach_add_(gradients, params, alpha=self._weight_decay)
        if buffers:
            torch._foreach_mul_(buffers, self._momentum)
            torch._foreach_add_(buffers, gradients)
        torch._foreach_add_(params, buffers or gradients, alpha=-self._lr)
