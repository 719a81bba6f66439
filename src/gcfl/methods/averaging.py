"""Server rules: what becomes of the mean update Δ = Σ a_i δ_i, with a_i = 1/m or n_i / Σ n.

    average   θ ← θ + η_g Δ
    FedAvgM   v ← β v + Δ                                    θ ← θ + η_g v
    FedAdam   m ← β₁ m + (1 - β₁) Δ,  v ← β₂ v + (1 - β₂) Δ²    θ ← θ + η_g m / (√v + τ)

FedAdam's v starts at τ², and there is no bias correction, as in "Adaptive Federated Optimization".
Statistics of normalisation layers are averaged as always.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import AfterValidator
from torch import Tensor

from gcfl.base.data_types import Tree
from gcfl.base.options import Positive, within
from gcfl.methods.base import ServerRule
from gcfl.methods.replies import Replies
from gcfl.methods.views import ServerView

Decay = Annotated[float, AfterValidator(within(0, 1, high_open=True))]


class Clipping(ServerRule):
    """A server rule that can bound each client's update: Δ_i ← Δ_i min(1, c / ‖Δ_i‖)."""

    clip: Positive | Literal["median"] | None = None
    """largest norm of a client's update, longer ones are shortened to it; median: that of the
    round's
    """

    @property
    def bound(self) -> float | Literal["median"] | None:
        return self.clip

    @property
    def fewest(self) -> int:
        return 3 if self.clip == "median" else 1  # the median of two is drawn along by either


class Average(Clipping):
    """The mean of the updates, added to the model."""

    name: ClassVar[str] = "average"
    summary: ClassVar[str] = "the mean of the clients' updates"

    weighting: Literal["uniform", "examples"] = "uniform"
    """weigh clients equally, or by the samples they trained on"""

    @property
    def by_examples(self) -> bool:
        return self.weighting == "examples"

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> tuple[Tree, Tree]:
        return state, step(view, replies.mean(self.by_examples), self.rate)


def step(view: ServerView, delta: Tree, rate: float) -> Tree:
    """model + rate · delta for weights, model + delta for statistics; whole numbers are rounded,
    what has no delta stays.
    """
    weights = set(view.setting.network.trained)
    moved = dict(view.model)
    for name, change in delta.items():
        tensor = view.model[name]
        change = change.to(tensor.device)
        if tensor.is_floating_point():
            moved[name] = tensor.add(change, alpha=rate if name in weights else 1.0)
        else:
            moved[name] = (tensor + change.round()).to(tensor.dtype)
    return moved


class Adaptive(Average):
    """A step along the mean update that depends on the updates before."""

    @abstractmethod
    def advance(self, state: Tree, name: str, delta: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """What changes in the state, and the direction of the step, for one tensor."""

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> tuple[Tree, Tree]:
        mean = replies.mean(self.by_examples)
        after = dict(state)
        device = next(iter(state.values())).device
        for name in view.setting.network.trained:
            changed, mean[name] = self.advance(state, name, mean[name].to(device))
            after |= changed
        return after, step(view, mean, self.rate)


def at_rest(model: Tree) -> Tree:
    """The speed of each tensor before the first round."""
    return {
        f"speed.{name}": torch.zeros_like(tensor)
        for name, tensor in model.items()
        if tensor.is_floating_point()
    }


class ServerMomentum(Adaptive):
    """FedAvgM."""

    name: ClassVar[str] = "server-momentum"
    summary: ClassVar[str] = "FedAvgM: averaging with momentum at the server"

    momentum: Decay = 0.9
    """β, of the server's momentum"""

    def server_init(self, model: Tree) -> Tree:
        return at_rest(model)

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
    """β₁"""
    beta2: Decay = 0.99
    """β₂"""
    tau: Positive = 1e-3
    """τ, what keeps the step finite"""

    def server_init(self, model: Tree) -> Tree:
        return at_rest(model) | {
            f"square.{name}": torch.full_like(tensor, self.tau**2)
            for name, tensor in model.items()
            if tensor.is_floating_point()
        }

    def advance(self, state: Tree, name: str, delta: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        speed = self.beta1 * state[f"speed.{name}"] + (1 - self.beta1) * delta
        square = self.beta2 * state[f"square.{name}"] + (1 - self.beta2) * delta**2
        return {f"speed.{name}": speed, f"square.{name}": square}, speed / (
            square.sqrt() + self.tau
        )
