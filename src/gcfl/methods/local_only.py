"""Local only: every client trains a model of its own on its own samples, and nobody shares
anything.

The round's score is the mean of the scores of its clients' models on the test set; what the run
leaves in the end is the mean of the last round's models. Every client starts from the initial
model, whenever it comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from torch import Tensor

from gcfl.base.data_types import Shard, Tree
from gcfl.base.errors import ConfigError
from gcfl.methods.averaging import step
from gcfl.methods.base import LocalRule, ServerRule
from gcfl.methods.replies import Replies
from gcfl.methods.views import ServerView


class Alone(LocalRule):
    """Training goes on from the client's own model."""

    name: ClassVar[str] = "alone"
    summary: ClassVar[str] = "every client trains its own model, nothing is shared"

    def start(self, model: Tree, memory: Tree) -> Tree:
        return memory or model

    def finish(
        self, local: Tree, fixed: Tree, steps: Tensor | float, lr: float
    ) -> tuple[Tree, Tree]:
        return {}, local


class Separate(ServerRule):
    """Judges the clients' models one by one."""

    name: ClassVar[str] = "separate"
    summary: ClassVar[str] = "the clients' models, judged one by one"

    shares: ClassVar[bool] = False
    refuses: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "clean": ("takes_part",),
        "labels": ("guard",),
    }

    def check(self, validation: Shard, classes: tuple[str | int, ...]) -> None:
        if self.rate != type(self).model_fields["rate"].default:
            raise ConfigError(
                "server.rate has no effect with local-only: the clients' models never meet"
            )

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> tuple[Tree, Tree]:
        if view.round < view.setting.rounds - 1:
            return state, dict(view.model)
        return state, step(view, replies.mean(by_examples=False), 1.0)

    def judged(self, view: ServerView, model: Tree, replies: Replies) -> Iterable[Tree]:
        return (step(view, replies[client].delta, 1.0) for client in replies)
