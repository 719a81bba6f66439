"""The public face: one function for every selector, with every input checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gcfl.base import rng
from gcfl.base.data_types import Coreset
from gcfl.base.errors import ConfigError, DataError, did_you_mean
from gcfl.coreset import matching, representation, simple
from gcfl.coreset.budget import Split
from gcfl.coreset.omp import Pursuit
from gcfl.coreset.pool import Pool


@dataclass(frozen=True)
class _Call:
    """One selection: the pool, what to match, and how."""

    pool: Pool
    budget: int
    target: Tensor | None
    whole: bool
    split: Split
    seed: int
    how: Pursuit = field(default_factory=Pursuit)

    @property
    def draw(self) -> np.random.Generator:
        return rng.stream(self.seed, "select")

    def needed_target(self) -> Tensor:
        if self.target is None:
            raise ConfigError(
                "this selector matches a target: pass target=label_wise_target(...) of a clean "
                "set, or whole_target(...)"
            )
        return self.target


def _gcfl(call: _Call) -> Coreset:
    if call.whole:
        return matching.match_whole(call.pool, call.needed_target(), call.budget, call.how)
    return matching.match_label_wise(
        call.pool, call.needed_target(), call.budget, call.how, call.split, call.draw
    )


def _gradmatch(call: _Call) -> Coreset:
    if call.whole:
        return matching.match_own_whole(call.pool, call.budget, call.how)
    return matching.match_own_label_wise(call.pool, call.budget, call.how, call.split)


def _glister(call: _Call) -> Coreset:
    if call.whole:
        return matching.glister_whole(call.pool, call.needed_target(), call.budget)
    return matching.glister_label_wise(
        call.pool, call.needed_target(), call.budget, call.split, call.draw
    )


def _facility(call: _Call) -> Coreset:
    if call.whole:
        return representation.represent_whole(call.pool, call.budget)
    return representation.represent_label_wise(call.pool, call.budget, call.split)


SELECTORS: dict[str, Callable[[_Call], Coreset]] = {
    "gcfl": _gcfl,
    "gradmatch": _gradmatch,
    "glister": _glister,
    "facility": _facility,
    "crust": lambda call: representation.crust(call.pool, call.budget, call.split),
    "craig": lambda call: representation.craig(call.pool, call.budget, call.split),
    "small-loss": lambda call: simple.small_loss(call.pool, call.budget, call.split),
    "agreement": lambda call: simple.agreement(call.pool, call.budget, call.draw),
    "random": lambda call: simple.uniform(call.pool, call.budget, call.draw),
}
_WITHOUT_VARIANT = ("crust", "craig", "small-loss")  # per class by nature
_WITH_MULTI_LABELS = ("gcfl", "gradmatch", "glister", "facility", "random")


def select(
    selector: str,
    features: Any,
    probabilities: Any,
    labels: Any,
    budget: int,
    target: Any = None,
    *,
    variant: str = "label-wise",
    split: Split = "proportional",
    seed: int = 0,
    bias: bool = True,
    **pursuit: Any,
) -> Coreset:
    """`budget` of the n samples, and their weights.

    features (n, d), probabilities (n, C), labels (n,) class numbers, or (n, C) zeros and ones for
    sigmoid outputs (variant "whole" only); arrays of numpy or torch. target: (C, d + 1), or (C, d)
    where the last layer has no bias, for the selectors that match one. `pursuit` are the fields of
    `Pursuit` (score, ridge, nonnegative, points_per_step, tolerance).
    """
    if selector not in SELECTORS:
        raise ConfigError(f"selector {selector!r} is unknown{did_you_mean(selector, SELECTORS)}")
    if variant not in ("label-wise", "whole"):
        raise ConfigError(f"variant must be 'label-wise' or 'whole', got {variant!r}")
    if variant == "whole" and selector in _WITHOUT_VARIANT:
        raise ConfigError(f"{selector} chooses class by class: it has no variant 'whole'")
    pool = _pool(features, probabilities, labels, bias)
    if pool.labels.ndim == 2 and (variant != "whole" or selector not in _WITH_MULTI_LABELS):
        raise ConfigError(
            f"labels (n, C) need variant='whole' and one of {', '.join(_WITH_MULTI_LABELS)}"
        )
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 0:
        raise ConfigError(f"budget must be a whole number of at least 0, got {budget!r}")
    goal = None if target is None else _target(target, pool)
    try:
        how = Pursuit(**pursuit)
    except TypeError:
        known = Pursuit.__dataclass_fields__
        wrong = next(name for name in pursuit if name not in known)
        raise ConfigError(f"unknown option {wrong}{did_you_mean(wrong, known)}") from None
    return SELECTORS[selector](_Call(pool, int(budget), goal, variant == "whole", split, seed, how))


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


def _target(target: Any, pool: Pool) -> Tensor:
    goal = _tensor("target", target)
    expected = (pool.classes, pool.features.shape[1] + int(pool.bias))
    if tuple(goal.shape) != expected:
        raise DataError(f"target must have shape {expected}, got {tuple(goal.shape)}")
    return goal
