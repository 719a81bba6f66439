"""MOON: a client's features are drawn to those of the global model and away from those of its own
previous one.

    -log exp(s(z, z_glob) / τ) / (exp(s(z, z_glob) / τ) + exp(s(z, z_prev) / τ)),   s = cosine
        similarity

times μ, averaged over the batch. z = h(x), the input of the last layer; model.projection inserts
MOON's projection head before it. A client without a previous model (its first round) has z_prev =
z_glob, where the term is constant: nothing is added, and nothing is computed. So too where that
round is a late one, or its memory was lost. (The authors' code gives each client a network of its
own at the start, which is what a late one is then pushed away from.)
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from gcfl.base.data_types import Tree
from gcfl.base.options import NonNegative, Positive
from gcfl.methods.base import LocalRule
from gcfl.models.network import Network, Output

# features no longer than this have hardly a direction, and must not have a huge gradient
_SHORTEST = 1e-4


class Contrastive(LocalRule):
    """A model-contrastive term; the client remembers its last local model."""

    name: ClassVar[str] = "contrastive"
    summary: ClassVar[str] = (
        "MOON: features drawn to the global model's, away from the client's previous ones"
    )

    mu: NonNegative = 1.0
    """weight of the contrastive term"""
    temperature: Positive = 0.5
    """τ of the contrastive term"""

    @property
    def needs_head(self) -> bool:
        return True

    def begin(self, model: Tree, received: Tree, memory: Tree) -> Tree:
        if not memory or self.mu == 0:
            return {}
        previous = {f"previous.{name}": tensor for name, tensor in memory.items()}
        return previous | {f"global.{name}": tensor for name, tensor in model.items()}

    def forwards(self, fixed: Tree) -> int:
        return 3 if fixed else 1

    def loss(self, network: Network, output: Output, x: Tensor, fixed: Tree) -> Tensor | None:
        if not fixed:
            return None
        with torch.no_grad():
            common, previous = (
                network(_named(fixed, prefix), x).features for prefix in ("global.", "previous.")
            )
        return self.mu * contrast(output.features, common, previous, self.temperature)

    def finish(
        self, local: Tree, fixed: Tree, steps: Tensor | float, lr: float
    ) -> tuple[Tree, Tree]:
        return {}, local


def contrast(features: Tensor, common: Tensor, previous: Tensor, temperature: float) -> Tensor:
    """(n,) each sample's loss: log(1 + exp((s_prev - s_glob) / τ)), the formula above."""
    near, far = (
        cosine_similarity(features, other, dim=-1, eps=_SHORTEST) for other in (common, previous)
    )
    return softplus((far - near) / temperature)


def _named(fixed: Tree, prefix: str) -> Tree:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in fixed.items()
        if name.startswith(prefix)
    }
