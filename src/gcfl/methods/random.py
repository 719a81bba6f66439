"""Random: the baseline that any selection has to beat."""

from __future__ import annotations

from typing import ClassVar

from gcfl.methods.parts import ClientView, ServerView
from gcfl.methods.periodic import Periodic, at_random
from gcfl.types import Coreset, Tree


class Random(Periodic):
    """b samples uniformly without replacement, drawn again every K rounds."""

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "a random share of each client's samples, drawn again every K rounds"

    def target(self, view: ServerView) -> Tree:
        return {}

    def pick(self, view: ClientView, target: Tree, budget: int) -> Coreset:
        return at_random(view, budget, "round", view.round)
