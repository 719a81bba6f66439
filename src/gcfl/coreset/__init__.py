"""Coreset selection as a library of its own. Knows nothing of clients or rounds.

    from gcfl.coreset import select
    chosen = select("gcfl", features, probabilities, labels, budget=50, target=target)
    chosen.indices, chosen.weights

features (n, d) are the input of the last linear layer, probabilities (n, C) the model's, labels
(n,). The target is the gradient to match: `label_wise_target` or `whole_target` of a clean set. See
`docs/coresets.md`.
"""

from typing import TYPE_CHECKING, Any

from gcfl.base.data_types import Coreset
from gcfl.coreset.gradients import Gradients, label_wise_target, own_label, whole, whole_target
from gcfl.coreset.matching import GradientMatching
from gcfl.coreset.omp import Pursuit, pursue
from gcfl.coreset.pool import Pool, per_class, points, unweighted
from gcfl.coreset.registry import SELECTORS, select
from gcfl.coreset.selector import ByClass, Draw, Selector, Targeted, WithVariants, at_random

if TYPE_CHECKING:
    from gcfl.coreset.estimator import CoresetSelector

__all__ = [
    "SELECTORS",
    "ByClass",
    "Coreset",
    "CoresetSelector",
    "Draw",
    "GradientMatching",
    "Gradients",
    "Pool",
    "Pursuit",
    "Selector",
    "Targeted",
    "WithVariants",
    "at_random",
    "label_wise_target",
    "own_label",
    "per_class",
    "points",
    "pursue",
    "select",
    "unweighted",
    "whole",
    "whole_target",
]


def __getattr__(name: str) -> Any:
    """scikit-learn takes most of a second to import: only where its face is asked for."""
    if name == "CoresetSelector":
        from gcfl.coreset.estimator import CoresetSelector

        return CoresetSelector
    raise AttributeError(f"module 'gcfl.coreset' has no attribute {name!r}")
