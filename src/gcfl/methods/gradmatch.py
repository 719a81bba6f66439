"""GradMatch: a coreset whose gradient matches that of the client's own data, wrong labels included.
No server help.
"""

from __future__ import annotations

from typing import ClassVar

from gcfl.base.data_types import Coreset, Tree
from gcfl.coreset.matching import match_own_label_wise, match_own_whole
from gcfl.methods.choices import PursuitOptions, VariantOptions
from gcfl.methods.parts import ClientView
from gcfl.methods.periodic import Unaided


class GradMatch(Unaided, VariantOptions, PursuitOptions):
    """min over |X| <= b, w >= 0 of ‖Σ w_j g_j - mean_j g_j‖² + λ‖w‖², per class or whole."""

    name: ClassVar[str] = "gradmatch"
    summary: ClassVar[str] = (
        "a coreset whose gradient matches the client's own data (GradMatch, no server help)"
    )

    def pick(self, view: ClientView, target: Tree, budget: int) -> Coreset:
        if self.variant == "whole":
            return match_own_whole(view.pool, budget, self.how)
        return match_own_label_wise(view.pool, budget, self.how, self.split)
