"""Local only: every client trains a model of its own on its own samples, and nobody shares anything.

The round's score is the mean of the clients' models' scores on the test set; the run's final model is their mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from torch import Tensor

from gcfl.methods.average import step
from gcfl.methods.parts import LocalRule, ServerRule, ServerView
from gcfl.methods.replies import Replies
from gcfl.types import Tree


class Alone(LocalRule):
    """Training goes on from the client's own model."""

    name: ClassVar[str] = "alone"
    summary: ClassVar[str] = "every client trains its own model, nothing is shared"

    def start(self, model: Tree, remembered: Tree) -> Tree:
        return remembered or model

    def finish(self, local: Tree, fixed: Tree, steps: Tensor | int, lr: float) -> tuple[Tree, Tree]:
        return {}, local


class Separate(ServerRule):
    """Judges the clients' models one by one."""

    name: ClassVar[str] = "separate"
    summary: ClassVar[str] = "the clients' models, judged one by one"

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> tuple[Tree, Tree]:
        return state, step(view, replies.mean(by_examples=False), 1.0)

    def judged(self, view: ServerView, model: Tree, replies: Replies) -> Iterable[Tree]:
        return (step(view, replies[client].delta, 1.0) for client in replies)
