"""SCAFFOLD (option II): each client corrects its steps by how its gradients differ from
everybody's.

    step      g - c_i + c
    after K   c_i⁺ = c_i - c + (θ_t - θ_i) / (K η)          stays with the client
    sent      c_i⁺ - c_i
    server    c ← c + 1/N Σ (c_i⁺ - c_i)                     so c stays the mean of all N
        clients' c_i

Plain SGD steps unless somebody asks for momentum: with momentum m a step moves further, up to η /
(1 - m), and K is then the number of plain steps that move as far (`training.plain_steps`), so that
c_i stays a mean of gradients; divided by K η it would come out larger by up to 1 / (1 - m), and
training diverge. An update that the server leaves out changes
neither c nor, since it is not committed, c_i.

A server that takes part (clean.takes_part) is client number N + 1: it has a c_i of its own, learnt
from its clean samples and sent in every round, and c is the mean over all N + 1. So the corrections
c - c_i still add up to 0 over all that train.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from gcfl.base.data_types import Tree
from gcfl.methods.answers import Like, Sent
from gcfl.methods.base import LocalRule
from gcfl.methods.replies import Replies
from gcfl.methods.views import ServerView


class ControlVariates(LocalRule):
    """A correction g - c_i + c, with c_i at the client and c at the server."""

    name: ClassVar[str] = "control-variates"
    summary: ClassVar[str] = "SCAFFOLD: steps corrected by control variates, plain SGD"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"train": {"momentum": 0.0}}

    def server_init(self, model: Tree) -> Tree:
        return {
            name: torch.zeros_like(tensor)
            for name, tensor in model.items()
            if tensor.is_floating_point()
        }

    def announce(self, state: Tree, view: ServerView) -> Mapping[int, Tree]:
        common = {name: state[name] for name in view.setting.network.trained}
        return dict.fromkeys(view.clients, common)

    def sends(self, view: ServerView) -> Sent:
        return {name: Like.of(view.model[name]) for name in view.setting.network.trained}

    def begin(self, model: Tree, received: Tree, memory: Tree) -> Tree:
        mine = memory or {name: torch.zeros_like(common) for name, common in received.items()}
        common = {f"common.{name}": tensor for name, tensor in received.items()}
        start = {f"start.{name}": model[name] for name in received}
        return {f"client.{name}": tensor for name, tensor in mine.items()} | common | start

    def correct(self, gradient: Tree, params: Tree, fixed: Tree) -> Tree:
        return {
            name: slope - fixed[f"client.{name}"] + fixed[f"common.{name}"]
            for name, slope in gradient.items()
        }

    def finish(
        self, local: Tree, fixed: Tree, steps: Tensor | float, lr: float
    ) -> tuple[Tree, Tree]:
        sends, memory = {}, {}
        for key in fixed:
            if key.startswith("start."):
                name = key.removeprefix("start.")
                before = fixed[f"client.{name}"]
                moved = (fixed[key] - local[name]) / (steps * lr)
                memory[name] = before - fixed[f"common.{name}"] + moved
                sends[name] = memory[name] - before
        return sends, memory

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> Tree:
        after = dict(state)
        for name in view.setting.network.trained:
            change = replies.sum("local", name).to(state[name].device)
            after[name] = state[name] + change / view.population
        return after
