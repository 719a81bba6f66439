"""FedProx: local steps are held near the model that was sent.

Each client minimises F_i(θ) + μ/2 ‖θ - θ_t‖², so the gradient of a step is ∇F_i(θ) + μ (θ - θ_t).
"""

from __future__ import annotations

from typing import ClassVar

from gcfl.base.data_types import Tree
from gcfl.base.options import NonNegative
from gcfl.methods.base import LocalRule


class Proximal(LocalRule):
    """A pull towards the global model."""

    name: ClassVar[str] = "proximal"
    summary: ClassVar[str] = "FedProx: local steps pulled towards the global model"

    mu: NonNegative = 0.01
    """strength of the pull towards the global model"""

    def begin(self, model: Tree, received: Tree, memory: Tree) -> Tree:
        return model

    def correct(self, gradient: Tree, params: Tree, fixed: Tree) -> Tree:
        if self.mu == 0:
            return gradient
        return {
            name: slope + self.mu * (params[name].detach() - fixed[name])
            for name, slope in gradient.items()
        }
