"""No selection: every client trains on all that it has."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from gcfl.base.data_types import Coreset, Tree
from gcfl.methods.parts import ClientView, Selection, Selector


class Everything(Selector):
    """X_i = D_i, all weights 1."""

    name: ClassVar[str] = "everything"
    summary: ClassVar[str] = "clients train on all their samples"
    whole: ClassVar[bool] = True

    def select(self, view: ClientView, told: Tree | None, remembered: Tree) -> Selection:
        n = len(view.shard)
        return Selection(Coreset(np.arange(n), np.ones(n)), {}, {})
