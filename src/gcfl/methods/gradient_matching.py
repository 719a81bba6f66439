"""GCFL: a coreset whose last-layer gradient matches that of the server's clean set.

Server half: the gradient of D_S (`targeted`). Client half: orthogonal matching pursuit towards it.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from gcfl.base import rng
from gcfl.base.data_types import Coreset, Tree
from gcfl.coreset import match_label_wise, match_whole
from gcfl.methods.choices import PursuitOptions
from gcfl.methods.parts import ClientView
from gcfl.methods.targeted import Targeted


class GradientMatching(Targeted, PursuitOptions):
    """min over |X| <= b, w >= 0 of ‖Σ w_j g_j - g‖² + λ‖w‖², per class or whole."""

    name: ClassVar[str] = "gcfl"
    summary: ClassVar[str] = (
        "a coreset whose gradient matches the server's clean set (the paper's method)"
    )

    def pick(self, view: ClientView, target: Tree, budget: int) -> Coreset:
        if self.variant == "whole":
            return match_whole(view.pool, target["target"], budget, self.how)
        draw = partial(rng.stream, view.setting.seed, "absent", view.round, view.client)
        return match_label_wise(view.pool, target["target"], budget, self.how, self.split, draw)
