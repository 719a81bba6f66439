"""ELR: early-learning regularisation (Liu et al., 2020, "Early-Learning Regularization Prevents
Memorization of Noisy Labels").

A network learns the right labels first and the wrong ones later. What it said of a sample so far is
kept as a running mean, and it is held to that:

    t_j ← β t_j + (1 - β) p_j / Σ p_j            without a gradient, at first 0
    loss_j = l_j + λ log(1 - ⟨p_j, t_j⟩)         p_j = softmax(logits), clamped to [1e-4, 1 - 1e-4]

l is train.loss, in the paper cross-entropy. The targets t (n, C) stay with the client. One that
lost them, or whose samples are others than before, starts again at 0. A server that takes part
trains plainly: its labels are in no doubt.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import AfterValidator
from torch import Tensor

from gcfl.base.data_types import Tree
from gcfl.base.options import NonNegative, within
from gcfl.methods.base import LocalRule
from gcfl.models.network import Network, Output

_LEAST = 1e-4


class EarlyLearning(LocalRule):
    """Predictions held to their own running mean."""

    name: ClassVar[str] = "early-learning"
    summary: ClassVar[str] = "ELR: predictions held to what the model said of a sample so far"
    keeps: ClassVar[bool] = True
    doubts: ClassVar[bool] = True

    strength: NonNegative = 3.0
    """λ, the weight of the regularisation"""
    decay: Annotated[float, AfterValidator(within(0, 1, high_open=True))] = 0.7
    """β, by which older predictions count in a sample's target"""

    def note(self, output: Output, kept: Tensor) -> Tensor:
        p = _probabilities(output)
        return self.decay * kept + (1 - self.decay) * p / p.sum(dim=-1, keepdim=True)

    def loss(self, network: Network, output: Output, x: Tensor, fixed: Tree) -> Tensor | None:
        if self.strength == 0:
            return None
        return self.strength * torch.log1p(-(fixed["kept"] * _probabilities(output)).sum(dim=-1))


def _probabilities(output: Output) -> Tensor:
    return torch.softmax(output.logits, dim=-1).clamp(_LEAST, 1 - _LEAST)
