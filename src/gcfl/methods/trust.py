"""What any user would try first: trust what the current model finds easy, or agrees with."""

from __future__ import annotations

from typing import ClassVar

from gcfl.base import rng
from gcfl.base.data_types import Coreset, Tree
from gcfl.coreset.simple import agreement, small_loss
from gcfl.methods.choices import SplitOptions
from gcfl.methods.parts import ClientView
from gcfl.methods.periodic import Unaided


class SmallLoss(Unaided, SplitOptions):
    """min over |X| <= b of Σ_{j in X} -log p_j(y_j), per class."""

    name: ClassVar[str] = "small-loss"
    summary: ClassVar[str] = "the samples of smallest loss under the current model, per class"

    def pick(self, view: ClientView, target: Tree, budget: int) -> Coreset:
        return small_loss(view.pool, budget, self.split)


class Agreement(Unaided):
    """b samples at random among those with argmax_c p_j(c) = y_j; where they are too few, the most
    probable labels join.
    """

    name: ClassVar[str] = "agreement"
    summary: ClassVar[str] = "random samples whose label the current model predicts"

    def pick(self, view: ClientView, target: Tree, budget: int) -> Coreset:
        return agreement(
            view.pool, budget, rng.stream(view.setting.seed, "agreement", view.round, view.client)
        )
