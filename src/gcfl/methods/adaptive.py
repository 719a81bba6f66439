"""Server optimisers: the mean update Δ is taken as a gradient, and the server takes a step of its
own along it.

    FedAvgM   v ← β v + Δ                                    θ ← θ + η_g v
    FedAdam   m ← β₁ m + (1 - β₁) Δ,  v ← β₂ v + (1 - β₂) Δ²    θ ← θ + η_g m / (√v + τ)

v starts at τ², and there is no bias correction, as in "Adaptive Federated Optimization". Statistics
of normalisation layers are averaged as always.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar

import torch
from pydantic import AfterValidator
from torch import Tensor

from gcfl.base.data_types import Tree
from gcfl.base.options import Positive, within
from gcfl.methods.average import Average, step
from gcfl.methods.parts import ServerView
from gcfl.methods.replies import Replies

Decay = Annotated[float, AfterValidator(within(0, 1, high_open=True))]


class Adaptive(Average):
    """A step along the mean update that depends on the updates before."""

    @abstractmethod
    def advance(self, state: Tree, name: str, delta: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """What changes in the state, and the direction of the step, for one tensor."""

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> tuple[Tree, Tree]:
        mean = replies.mean(self.weighting == "examples")
        after = dict(state)
        for name in view.setting.network.trained:
            changed, mean[name] = self.advance(
                state, name, mean[name].to(state[f"speed.{name}"].device)
            )
            after |= changed
        return after, step(view, mean, self.rate)


class ServerMomentum(Adaptive):
    """FedAvgM."""

    name: ClassVar[str] = "server-momentum"
    summary: ClassVar[str] = "FedAvgM: averaging with momentum at the server"

    momentum: Decay = 0.9
    """fedavgm: β"""

    def server_init(self, model: Tree) -> Tree:
        return {
            f"speed.{name}": torch.zeros_like(tensor)
            for name, tensor in model.items()
            if tensor.is_floating_point()
        }

    def advance(self, state: Tree, name: str, delta: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        speed = self.momentum * state[f"speed.{name}"] + delta
        return {f"speed.{name}": speed}, speed


class ServerAdam(Adaptive):
    """FedAdam."""

    name: ClassVar[str] = "server-adam"
    summary: ClassVar[str] = "FedAdam: an Adam step at the server along the mean update"

    rate: Annotated[float, AfterValidator(within(0, 1000, low_open=True))] = 0.01
    """η_g, the server's learning rate"""
    beta1: Decay = 0.9
    """fedadam: β₁"""
    beta2: Decay = 0.99
    """fedadam: β₂"""
    tau: Positive = 1e-3
    """fedadam: τ, what keeps the step finite"""

    def server_init(self, model: Tree) -> Tree:
        floating = {name: tensor for name, tensor in model.items() if tensor.is_floating_point()}
        still = {f"speed.{name}": torch.zeros_like(tensor) for name, tensor in floating.items()}
        return still | {
            f"square.{name}": torch.full_like(tensor, self.tau**2)
            for name, tensor in floating.items()
        }

    def advance(self, state: Tree, name: str, delta: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        speed = self.beta1 * state[f"speed.{name}"] + (1 - self.beta1) * delta
        square = self.beta2 * state[f"square.{name}"] + (1 - self.beta2) * delta**2
        return {f"speed.{name}": speed, f"square.{name}": square}, speed / (
            square.sqrt() + self.tau
        )
