"""Averaging: θ ← θ + η_g · Σ a_i δ_i, with a_i = 1/m or n_i / Σ n."""

from __future__ import annotations

from typing import ClassVar, Literal

from gcfl.base.data_types import Tree
from gcfl.methods.parts import ServerRule, ServerView
from gcfl.methods.replies import Replies


class Average(ServerRule):
    """The mean of the updates, added to the model."""

    name: ClassVar[str] = "average"
    summary: ClassVar[str] = "the mean of the clients' updates"

    weighting: Literal["uniform", "examples"] = "uniform"
    """weigh clients equally, or by the samples they trained on"""

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> tuple[Tree, Tree]:
        return state, step(view, replies.mean(self.weighting == "examples"), self.rate)


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
