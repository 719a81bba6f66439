"""GCFL: a coreset whose last-layer gradient matches that of the server's clean set.

Server half: the gradient of D_S, label-wise (row c: mean of (p_c - 1)·[h, 1] over the samples of class c) or whole (the
mean gradient of the last layer). Client half: orthogonal matching pursuit towards it. C·(d + 1) numbers travel, the
size of the last layer, and only to clients that are due.
"""

from __future__ import annotations

import logging
from typing import ClassVar, Literal

import numpy as np
import torch

from gcfl import rng
from gcfl.coreset import Pursuit, label_wise_target, match_label_wise, match_whole, whole
from gcfl.coreset.budget import Split
from gcfl.coreset.omp import Score
from gcfl.errors import DataError
from gcfl.methods.parts import ClientView, ServerView
from gcfl.methods.periodic import Periodic
from gcfl.options import Count, NonNegative
from gcfl.types import Coreset, Shard, Tree

log = logging.getLogger("gcfl")


class GradientMatching(Periodic):
    """min over |X| <= b, w >= 0 of ‖Σ w_j g_j - g‖² + λ‖w‖², per class or whole."""

    name: ClassVar[str] = "gcfl"
    summary: ClassVar[str] = "a coreset whose gradient matches the server's clean set (the paper's method)"

    variant: Literal["label-wise", "whole"] = "label-wise"
    """one pursuit per class, or one over all samples"""
    score: Score = "correlation"
    """which point is next: correlation (classical), distance (the paper's text), nearest (no residual)"""
    ridge: NonNegative = 0.5
    """λ, the weight of ‖w‖²"""
    nonnegative: bool = True
    """weights w >= 0"""
    split: Split = "proportional"
    """how the budget is shared over classes (label-wise)"""
    points_per_step: Count = 1
    """points added before the weights are solved again"""
    tolerance: NonNegative = 1e-10
    """stop the pursuit at this residual, relative to the target, and fill the budget"""
    allow_single: bool = False
    """accept a class with a single sample in the server's set, whose features the gradient then reveals"""

    def check(self, validation: Shard, classes: tuple[str | int, ...]) -> None:
        if self.variant == "whole":
            return
        counts = np.bincount(validation.y.numpy(), minlength=len(classes))
        single = [str(classes[label]) for label in np.flatnonzero(counts == 1)]
        if single and not self.allow_single:
            raise DataError(
                f"the server's clean set has a single sample of class {', '.join(single)}, and its gradient would reveal "
                "that sample's features; raise data.validation, or set coreset.allow_single = true"
            )
        few = [str(classes[label]) for label in np.flatnonzero((counts > 0) & (counts < 5))]
        if few:
            log.warning(
                "the server's clean set has fewer than 5 samples of class %s: their gradient tells much about them", ", ".join(few)
            )
        none = [str(classes[label]) for label in np.flatnonzero(counts == 0)]
        if none:
            log.warning("the server's clean set has no sample of class %s: clients choose at random there", ", ".join(none))

    def target(self, view: ServerView) -> Tree:
        outputs, labels = view.outputs, view.validation.y.to(view.outputs.logits.device)
        bias = view.setting.network.bias
        probabilities = torch.softmax(outputs.logits, dim=1)
        if self.variant == "whole":
            return {"target": whole(outputs.features, probabilities, labels, bias).mean().cpu()}
        return {"target": label_wise_target(outputs.features, probabilities, labels, bias).cpu()}

    def pick(self, view: ClientView, target: Tree, budget: int) -> Coreset:
        bias = view.setting.network.bias
        how = Pursuit(self.score, self.ridge, self.nonnegative, self.points_per_step, self.tolerance)
        features, probabilities = view.outputs.features.cpu(), view.probabilities.cpu()
        if self.variant == "whole":
            return match_whole(features, probabilities, view.shard.y, target["target"], budget, how, bias)
        draw = rng.stream(view.setting.seed, "absent", view.round, view.client)
        return match_label_wise(features, probabilities, view.shard.y, target["target"], budget, how, self.split, draw, bias)
