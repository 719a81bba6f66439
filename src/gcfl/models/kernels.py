"""Linear layers by oneDNN instead of the BLAS that torch was built with.

torch's builds for x86 multiply matrices by MKL, which takes a slower path on processors that are
not Intel's. oneDNN, by which torch convolves, does not.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from gcfl.base.errors import ConfigError

_LEAST = 2**16  # weights of a layer: with fewer, the call costs more than the product


def take_onednn(module: nn.Module) -> None:
    """Let every large linear layer of the module compute by oneDNN. What it holds stays as it is,
    and results differ by rounding alone.
    """
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        raise ConfigError("engine.linear is onednn, which this build of torch does not have")
    for layer in module.modules():
        if type(layer) is nn.Linear and layer.weight.numel() >= _LEAST:
            layer.forward = partial(_forward, layer)  # type: ignore[method-assign]


def _forward(layer: nn.Linear, x: Tensor) -> Tensor:
    plain = x.ndim != 2 or x.dtype != torch.float32 or x.device.type != "cpu"
    if plain:
        return linear(x, layer.weight, layer.bias)
    found: Tensor = _Linear.apply(x, layer.weight, layer.bias)  # type: ignore[no-untyped-call]
    return found


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b, for x (n, d) and W (k, d)."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


class _Linear(torch.autograd.Function):
    """y = x Wᵀ + b;  ∂x = ∂y W,  ∂W = ∂yᵀ x,  ∂b = the sum of ∂y over samples."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            _product(dy, weight.t()) if for_x else None,
            _product(dy.t(), x.t()) if for_weight else None,
            dy.sum(dim=0) if for_bias else None,
        )
