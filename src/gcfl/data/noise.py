"""Noise, made on purpose, with the truth kept apart.

uniform     a wrong label: any other class of the task, equally likely
pair        a wrong label: the next class (the last one's next is the first)
confusion   a wrong label: another class, as likely as a matrix says
open        samples of classes outside the task, under labels of the task
given       labels as somebody observed them
attribute   the label is right, the sample itself is spoiled (see corruption.py)
similar     a wrong label: another class, the likelier the more it looks like the sample's own
mistakes    a wrong label: what a weak model takes the sample for; the samples that it is most
            inclined to mistake (see lookalikes.py for both)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from gcfl.base.data_types import FloatArray, IntArray
from gcfl.base.errors import DataError

Kind = Literal["uniform", "pair", "confusion", "open", "given", "attribute", "similar", "mistakes"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OUTSIDE = -1  # the clean label of a sample whose class is not in the task
Flip = Callable[[IntArray, np.random.Generator], IntArray]  # clean labels (m,) -> other labels (m,)


@dataclass(frozen=True)
class Truth:
    """What no method may see, by row of the source: clean labels (n,), and which noise hit it.

    kinds (n,): 0 for a clean sample, else 1 + the noise's place in KINDS.
    """

    labels: IntArray
    kinds: npt.NDArray[np.int8]

    @property
    def noisy(self) -> npt.NDArray[np.bool_]:
        """(n,) whether anything is wrong with a sample."""
        return np.not_equal(self.kinds, 0)

    def hit_by(self, kind: Kind) -> npt.NDArray[np.bool_]:
        """(n,) whether it was this noise."""
        return np.equal(self.kinds, code(kind))


def code(kind: Kind) -> int:
    return 1 + KINDS.index(kind)


def uniform(classes: int) -> Flip:
    """Any other class, equally likely."""
    return lambda labels, draw: (labels + draw.integers(1, classes, len(labels))) % classes


def pair(classes: int) -> Flip:
    """The next class."""
    return lambda labels, _: (labels + 1) % classes


def confusion(matrix: FloatArray) -> Flip:
    """Another class, with the odds of row c of matrix (C, C); the diagonal does not count: a flip
    never gives the clean label.
    """
    odds = matrix.astype(np.float64).copy()
    np.fill_diagonal(odds, 0.0)
    totals = odds.sum(axis=1)
    if (odds < 0).any() or (totals <= 0).any() or not np.isfinite(odds).all():
        raise DataError(
            "the confusion matrix needs, in each row, no negative entry and at least one class "
            "that the row's is taken for"
        )
    steps = np.cumsum(odds / totals[:, None], axis=1)

    def flip(labels: IntArray, draw: np.random.Generator) -> IntArray:
        chosen = (draw.random(len(labels))[:, None] >= steps[labels]).sum(axis=1)
        # Rounding may leave the last step just under 1: then the last class that is possible.
        last = odds.shape[1] - 1 - np.argmax(odds[labels, ::-1] > 0, axis=1)
        flipped: IntArray = np.minimum(chosen, last).astype(np.int64)
        return flipped

    return flip


@dataclass(frozen=True)
class OpenSet:
    """The reduced task: classes (C',) are the old numbers of those that remain; observed (n,) and
    clean (n,) are in new numbers, and clean is OUTSIDE for a sample whose class left.
    """

    classes: IntArray
    observed: IntArray
    clean: IntArray


def open_set(labels: IntArray, classes: int, rate: float, draw: np.random.Generator) -> OpenSet:
    """The paper's open-set noise: round(rate · C) classes, drawn at random, leave the task, but
    their samples stay.

    Those samples get labels of the remaining classes, uniformly; the remaining classes are numbered
    anew.
    """
    gone = round(rate * classes)
    if classes - gone < 2:
        raise DataError(
            f"open-set noise of {rate:g} leaves {classes - gone} of {classes} classes; at least "
            "two must remain"
        )
    remaining = np.sort(draw.permutation(classes)[gone:])
    clean = renumbered(labels, remaining)
    outside = clean == OUTSIDE
    observed = clean.copy()
    observed[outside] = draw.integers(0, len(remaining), int(outside.sum()))
    return OpenSet(remaining, observed, clean)


def renumbered(labels: IntArray, classes: IntArray) -> IntArray:
    """Labels (n,) as places in `classes` (C',), OUTSIDE for those of no such class."""
    numbers = np.full(int(max(labels.max(initial=0), classes.max())) + 1, OUTSIDE, dtype=np.int64)
    numbers[classes] = np.arange(len(classes))
    return numbers[labels]
