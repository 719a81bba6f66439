"""Every selector by its name, and one function for all of them, with every input checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gcfl.base import rng
from gcfl.base.data_types import Coreset
from gcfl.base.errors import ConfigError, DataError, did_you_mean
from gcfl.base.options import checked
from gcfl.coreset.baselines import Agreement, Random, SmallLoss
from gcfl.coreset.matching import Glister, GradientMatching, GradMatch
from gcfl.coreset.pool import Pool
from gcfl.coreset.representation import Craig, Crust, FacilityLocation
from gcfl.coreset.selector import ByClass, Selector, WithVariants
from gcfl.coreset.sift import Sift

_LISTED = (
    GradientMatching,
    Random,
    FacilityLocation,
    Crust,
    Craig,
    Glister,
    GradMatch,
    SmallLoss,
    Agreement,
    Sift,
)
SELECTORS: dict[str, type[Selector]] = {selector.name: selector for selector in _LISTED}


def select(
    selector: str,
    features: Any,
    probabilities: Any,
    labels: Any,
    budget: int,
    target: Any = None,
    *,
    seed: int = 0,
    bias: bool = True,
    head: Any = None,
    **options: Any,
) -> Coreset:
    """`budget` of the n samples, and their weights.

    features (n, d), probabilities (n, C), labels (n,) class numbers, or (n, C) zeros and ones for
    sigmoid outputs (variant "whole" only); arrays of numpy or torch. target: (C, d + 1), or (C, d)
    where the last layer has no bias, for the selectors that match one. head: (C, d) the last
    layer's weights, for crust="released". options: the fields of the selector's class (variant,
    split, score, ridge, ...); those that only others have are ignored.
    """
    if selector not in SELECTORS:
        raise ConfigError(f"selector {selector!r} is unknown{did_you_mean(selector, SELECTORS)}")
    chosen = _with_options(SELECTORS[selector], options)
    pool = _pool(features, probabilities, labels, bias)
    if head is not None:
        pool = replace(pool, head=_head(head, pool))
    if pool.labels.ndim == 2 and not (
        chosen.multi_label and getattr(chosen, "variant", "whole") == "whole"
    ):
        able = ", ".join(name for name, one in SELECTORS.items() if one.multi_label)
        raise ConfigError(f"labels (n, C) need variant='whole' and one of {able}")
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 0:
        raise ConfigError(f"budget must be a whole number of at least 0, got {budget!r}")
    goal = None if target is None else _target(target, pool)
    found, _ = chosen.pick(pool, goal, int(budget), lambda *_: rng.stream(seed, "select"), {})
    return chosen.narrow(found, int(budget), lambda *_: rng.stream(seed, "select"))


def _with_options(kind: type[Selector], options: dict[str, Any]) -> Selector:
    """The selector with those of the options that it has."""
    by_class = issubclass(kind, ByClass) and not issubclass(kind, WithVariants)
    if by_class and options.get("variant") == "whole":
        raise ConfigError(f"{kind.name} chooses class by class: it has no variant 'whole'")
    known = {name for one in SELECTORS.values() for name in one.model_fields}
    for name in options:
        if name not in known:
            raise ConfigError(f"unknown option {name}{did_you_mean(name, known)}")
    mine = {name: value for name, value in options.items() if name in kind.model_fields}
    return checked(kind, mine)


def _tensor(name: str, value: Any) -> Tensor:
    array = (
        value.detach().cpu()
        if isinstance(value, Tensor)
        else torch.from_numpy(np.ascontiguousarray(value))
    )
    if array.is_floating_point() and not bool(torch.isfinite(array).all()):
        raise DataError(f"{name} has NaN or infinite values")
    return array


def _pool(features: Any, probabilities: Any, labels: Any, bias: bool) -> Pool:
    h, p, y = (
        _tensor("features", features),
        _tensor("probabilities", probabilities),
        _tensor("labels", labels),
    )
    h = h if h.dtype in (torch.float32, torch.float64) else h.float()
    if h.ndim != 2 or p.ndim != 2 or len(h) != len(p) or len(h) != len(y):
        shapes = ", ".join(str(tuple(part.shape)) for part in (h, p, y))
        raise DataError(
            f"features (n, d), probabilities (n, C) and labels (n,) must agree in n, got {shapes}"
        )
    if y.ndim == 1:
        if y.is_floating_point() and not bool((y == y.round()).all()):
            raise DataError("labels must be whole numbers")
        y = y.long()
        if len(y) and not (int(y.min()) >= 0 and int(y.max()) < p.shape[1]):
            raise DataError(
                f"labels must be in 0 .. {p.shape[1] - 1}, got {int(y.min())} .. {int(y.max())}"
            )
    elif y.shape != p.shape:
        raise DataError(
            f"labels (n, C) must have the shape of probabilities, got {tuple(y.shape)} and "
            f"{tuple(p.shape)}"
        )
    return Pool(h, p.to(h.dtype), y, bias)


def _head(head: Any, pool: Pool) -> Tensor:
    weights = _tensor("head", head)
    expected = (pool.classes, pool.features.shape[1])
    if tuple(weights.shape) != expected:
        raise DataError(f"head must have shape {expected}, got {tuple(weights.shape)}")
    return weights


def _target(target: Any, pool: Pool) -> Tensor:
    goal = _tensor("target", target)
    expected = (pool.classes, pool.features.shape[1] + int(pool.bias))
    if tuple(goal.shape) != expected:
        raise DataError(f"target must have shape {expected}, got {tuple(goal.shape)}")
    return goal
