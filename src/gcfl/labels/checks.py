"""What cannot be used is refused in one sentence, before any work."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gcfl.base.errors import DataError, one_line

Given = Tensor | npt.ArrayLike
_ROUNDED = 1e-3  # so far from 1 are sums of probabilities that were rounded


def tensor(values: Given, name: str) -> Tensor:
    """A tensor as it is; an array of numpy's, or a list of numbers, as one."""
    if isinstance(values, Tensor):
        return values
    try:
        found = np.asarray(values)
        # torch knows little of unsigned numbers
        return torch.tensor(found.astype(np.int64) if found.dtype.kind in "iu" else found)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{name} must be a tensor, an array or a list of numbers ({one_line(error)})"
        ) from None


def checked_logits(logits: Given, labels: Given) -> tuple[Tensor, Tensor]:
    """As `checked`; what can only be probabilities is refused: taken for logits, they would say
    that a model hardly knows anything.
    """
    found, coded = checked(logits, labels)
    if bool((found >= 0).all()) and bool(((found.sum(1) - 1).abs() < _ROUNDED).all()):
        raise DataError(
            "logits must come before the softmax, but these are probabilities: no row has a number "
            "below 0, and each adds up to 1; give their logarithm, log(p), which serves as well"
        )
    return found, coded


def checked(logits: Given, labels: Given) -> tuple[Tensor, Tensor]:
    """Logits (n, C) in float64 and labels (n,) in int64, without their history."""
    logits, labels = tensor(logits, "logits"), tensor(labels, "labels")
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise DataError(
            "label posteriors need logits of shape (n, C) with at least two classes, got shape "
            f"{tuple(logits.shape)}"
        )
    n, classes = logits.shape
    if labels.ndim == 2:
        raise DataError(
            "label posteriors are for multi-class softmax only: labels must be (n,) class numbers, "
            f"got shape {tuple(labels.shape)} as of a sigmoid head"
        )
    if labels.shape != (n,):
        raise DataError(
            f"{n} rows of logits need {n} labels, got labels of shape {tuple(labels.shape)}"
        )
    if n == 0:
        raise DataError("label posteriors need at least one sample, got none")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise DataError(f"labels must be whole class numbers, got {labels.dtype}")
    if not logits.is_floating_point():
        raise DataError(f"logits must be real numbers with a point, got {logits.dtype}")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise DataError(
            f"labels must be in 0 .. {classes - 1}, got {int(labels.min())} .. {int(labels.max())}"
        )
    if not bool(torch.isfinite(logits).all()):
        raise DataError("logits hold NaN or infinite values")
    return logits.detach().double(), labels.detach().long()


def distribution(values: Given, classes: int, name: str) -> Tensor:
    """(C,) a class prior: positive, sum 1."""
    values = tensor(values, name)
    if values.shape != (classes,):
        raise DataError(f"{name} must have shape ({classes},), got {tuple(values.shape)}")
    values = values.detach().double()
    # Written so that NaN fails.
    if not (bool((values > 0).all()) and abs(float(values.sum()) - 1) < 1e-6):
        raise DataError(f"{name} must be positive and add up to 1, got {values.tolist()}")
    return values


def stochastic(matrix: Given, classes: int, name: str) -> Tensor:
    """(C, C) a transition matrix: rows of non-negative numbers with sum 1."""
    matrix = tensor(matrix, name)
    if matrix.shape != (classes, classes):
        raise DataError(f"{name} must have shape ({classes}, {classes}), got {tuple(matrix.shape)}")
    matrix = matrix.detach().double()
    if not (bool((matrix >= 0).all()) and bool(((matrix.sum(1) - 1).abs() < 1e-6).all())):
        raise DataError(f"the rows of {name} must be non-negative and add up to 1")
    return matrix
