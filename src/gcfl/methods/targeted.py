"""What selectors share that are told a gradient of the server's clean set.

The server half sends the gradient of D_S: label-wise (row c: mean of (p_c - 1)·[h, 1] over the
samples of class c) or whole (the mean gradient of the last layer). C·(d + 1) numbers travel, the
size of the last layer, and only to clients that are due.
"""

from __future__ import annotations

import logging
from abc import ABC

import numpy as np

from gcfl.base.data_types import Shard, Tree
from gcfl.base.errors import DataError
from gcfl.coreset import label_wise_target, whole_target
from gcfl.methods.choices import VariantOptions
from gcfl.methods.parts import ServerView
from gcfl.methods.periodic import Periodic

log = logging.getLogger("gcfl")


class Targeted(Periodic, VariantOptions, ABC):
    """A selector that needs the gradient of the server's clean set."""

    allow_single: bool = False
    """accept a class with a single sample in the server's set, whose features the gradient then
    reveals
    """

    def check(self, validation: Shard, classes: tuple[str | int, ...]) -> None:
        if self.variant == "whole":
            self._check_size(len(validation))
            return
        counts = np.bincount(validation.y.numpy(), minlength=len(classes))
        single = [str(classes[label]) for label in np.flatnonzero(counts == 1)]
        if single and not self.allow_single:
            raise DataError(
                f"the server's clean set has a single sample of class {', '.join(single)}, and its "
                "gradient would reveal "
                "that sample's features; enlarge it (data.validation), or set allow_single = true "
                "(coreset.allow_single)"
            )
        few = [str(classes[label]) for label in np.flatnonzero((counts > 0) & (counts < 5))]
        if few:
            log.warning(
                "the server's clean set has fewer than 5 samples of class %s: their gradient tells "
                "much about them",
                ", ".join(few),
            )
        none = [str(classes[label]) for label in np.flatnonzero(counts == 0)]
        if none:
            log.warning(
                "the server's clean set has no sample of class %s: clients choose at random there",
                ", ".join(none),
            )

    def _check_size(self, size: int) -> None:
        if size == 1 and not self.allow_single:
            raise DataError(
                "the server's clean set is a single sample, which its gradient would reveal; "
                "enlarge it (data.validation), "
                "or set allow_single = true (coreset.allow_single)"
            )
        if size < 5:
            log.warning(
                "the server's clean set has fewer than 5 samples: their gradient tells much about "
                "them"
            )

    def target(self, view: ServerView) -> Tree:
        pool = view.pool
        gradient = whole_target if self.variant == "whole" else label_wise_target
        return {"target": gradient(pool.features, pool.probabilities, pool.labels, pool.bias)}
