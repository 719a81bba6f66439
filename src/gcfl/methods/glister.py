"""GLISTER, linearised on the broadcast target: samples whose gradient points most along the
server's.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from gcfl.base import rng
from gcfl.base.data_types import Coreset, Tree
from gcfl.coreset.matching import glister_label_wise, glister_whole
from gcfl.methods.parts import ClientView
from gcfl.methods.targeted import Targeted


class Glister(Targeted):
    """max over |X| <= b of Σ_{j in X} ⟨g_j, g⟩: the first-order gain of one gradient step on X for
    the clean set's loss.
    """

    name: ClassVar[str] = "glister"
    summary: ClassVar[str] = (
        "samples whose gradient points most along the server's (GLISTER, one linearised step)"
    )

    def pick(self, view: ClientView, target: Tree, budget: int) -> Coreset:
        if self.variant == "whole":
            return glister_whole(view.pool, target["target"], budget)
        draw = partial(rng.stream, view.setting.seed, "absent", view.round, view.client)
        return glister_label_wise(view.pool, target["target"], budget, self.split, draw)
