"""Pure mathematics: features, residuals, target -> coreset. Knows nothing of clients or rounds."""

from gcfl.coreset.budget import per_class, points
from gcfl.coreset.gradients import Gradients, label_wise_target, own_label, whole
from gcfl.coreset.matching import match_label_wise, match_whole
from gcfl.coreset.omp import Pursuit, pursue

__all__ = [
    "Gradients",
    "Pursuit",
    "label_wise_target",
    "match_label_wise",
    "match_whole",
    "own_label",
    "per_class",
    "points",
    "pursue",
    "whole",
]
