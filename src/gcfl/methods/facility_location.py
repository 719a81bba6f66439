"""Facility location: the samples that best represent all of a client's features."""

from __future__ import annotations

from typing import ClassVar

from gcfl.base.data_types import Coreset, Tree
from gcfl.coreset.representation import represent_label_wise, represent_whole
from gcfl.methods.choices import VariantOptions
from gcfl.methods.parts import ClientView
from gcfl.methods.periodic import Unaided


class FacilityLocation(Unaided, VariantOptions):
    """max over |X| <= b of Σ_i max_{j in X} (1 + cos(h_i, h_j)) / 2, per class or whole."""

    name: ClassVar[str] = "facility"
    summary: ClassVar[str] = "samples that best represent the client's features (facility location)"

    def pick(self, view: ClientView, target: Tree, budget: int) -> Coreset:
        if self.variant == "whole":
            return represent_whole(view.pool, budget)
        return represent_label_wise(view.pool, budget, self.split)
