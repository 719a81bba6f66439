"""CRUST and CRAIG: medoids in gradient space, per class, weighted by the size of their clusters."""

from __future__ import annotations

from typing import ClassVar

from gcfl.base.data_types import Coreset, Tree
from gcfl.coreset.representation import craig, crust
from gcfl.methods.choices import SplitOptions
from gcfl.methods.parts import ClientView
from gcfl.methods.periodic import Unaided


class Crust(Unaided, SplitOptions):
    """min over |X| <= b of Σ_i min_{j in X} ‖g_i - g_j‖, per class, with last-layer gradients g."""

    name: ClassVar[str] = "crust"
    summary: ClassVar[str] = "medoids of the last-layer gradients per class (CRUST)"

    def pick(self, view: ClientView, target: Tree, budget: int) -> Coreset:
        return crust(view.pool, budget, self.split)


class Craig(Unaided, SplitOptions):
    """min over |X| <= b of Σ_i min_{j in X} ‖e_i - e_j‖, per class, with residuals e = p -
    onehot(y).
    """

    name: ClassVar[str] = "craig"
    summary: ClassVar[str] = "medoids of the output residuals per class (CRAIG)"

    def pick(self, view: ClientView, target: Tree, budget: int) -> Coreset:
        return craig(view.pool, budget, self.split)
