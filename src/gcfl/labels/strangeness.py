"""How strange an input is to a model, against clean samples: for inputs that belong to no class of
the task, or that were spoiled.

With ĥ = h / ‖h‖ the last layer's normalised input and μ_c the mean of ĥ over the clean samples of
class c, a sample's distance is min_c ‖ĥ - μ_c‖, and its strangeness the share of clean samples
whose distance is smaller. C·d + 101 numbers say all of it: about the size of the last layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_STEPS = 101  # quantiles


@dataclass(frozen=True)
class Strangeness:
    """means (C', d) of the classes that the clean set has; quantiles (101,) of its distances."""

    means: Tensor
    quantiles: Tensor

    def of(self, features: Tensor) -> Tensor:
        """(n,) in [0, 1], from features (n, d)."""
        distance = _distances(features, self.means)
        place = torch.searchsorted(self.quantiles, distance.contiguous())
        return place.double() / _STEPS


def fit_strangeness(features: Tensor, labels: Tensor) -> Strangeness:
    """From the clean samples: features (m, d), labels (m,). Each sample's own share is taken out
    of its class's mean, so that small classes do not look closer than they are.
    """
    unit = torch.nn.functional.normalize(features.double(), dim=1)
    present = torch.unique(labels)
    means = torch.stack([unit[labels == label].mean(0) for label in present])
    distances = _distances(features, means)
    for place, label in enumerate(present):
        mine = torch.nonzero(labels == label).flatten()
        if len(mine) > 1:
            others = (means[place] * len(mine) - unit[mine]) / (len(mine) - 1)
            own = (unit[mine] - others).norm(dim=1)
            rest = torch.cat([means[:place], means[place + 1 :]])
            elsewhere = torch.cdist(unit[mine], rest).amin(1) if len(rest) else own
            distances[mine] = torch.minimum(own, elsewhere)
    return Strangeness(means, torch.quantile(distances, torch.linspace(0, 1, _STEPS).double()))


def _distances(features: Tensor, means: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize(features.double(), dim=1)
    return torch.cdist(unit, means).amin(dim=1)
