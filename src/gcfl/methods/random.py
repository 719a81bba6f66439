"""Random: the baseline that any selection has to beat."""

from __future__ import annotations

from typing import ClassVar

from gcfl.base.data_types import Coreset, Tree
from gcfl.methods.parts import ClientView
from gcfl.methods.periodic import Unaided, at_random


class Random(Unaided):
    """b samples uniformly without replacement, drawn again every K rounds."""

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "a random share of each client's samples, drawn again every K rounds"

    def pick(self, view: ClientView, target: Tree, budget: int) -> Coreset:
        return at_random(view, budget, "round", view.round)
