"""Noise, made on purpose, with the truth kept apart.

uniform     a wrong label: any other class of the task, equally likely
pair        a wrong label: the next class (the last one's next is the first)
confusion   a wrong label: another class, as likely as a matrix says
open        samples of classes outside the task, under labels of the task
given       labels as somebody observed them
attribute   the label is right, the sample itself is spoiled (see corruption.py)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from gcfl.base.data_types import FloatArray, IntArray
from gcfl.base.errors import DataError
from gcfl.data.partition import Partition

Kind = Literal["uniform", "pair", "confusion", "open", "given", "attribute"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OUTSIDE = -1  # the clean label of a sample whose class is not in the task
Flip = Callable[[IntArray, np.random.Generator], IntArray]  # clean labels (m,) -> other labels (m,)


@dataclass(frozen=True)
class Truth:
    """What no method may see, by row of the source: clean labels (n,), and which noise hit a sample
    (n,).

    kinds: 0 for a clean sample, else 1 + the noise's place in KINDS.
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


def strike(
    partition: Partition,
    rates: FloatArray,
    kinds: Sequence[Kind],
    hit: npt.NDArray[np.int8],
    draw: np.random.Generator,
) -> list[IntArray]:
    """For each kind, the rows that it hits: of every client i, round(rates[i] · n_i) samples in
    all, shared evenly.

    `round` is Python's (halves to even); what does not divide evenly goes to the kinds named first.
    Samples that some noise has hit before (hit (n,) not 0) are left alone.
    """
    sizes, owners = partition.sizes, partition.owners
    totals = np.array(
        [round(float(rate) * int(size)) for rate, size in zip(rates, sizes, strict=True)],
        dtype=np.int64,
    )
    taken = hit[partition.order] != 0
    free = sizes - np.bincount(owners[taken], minlength=len(sizes))
    if (totals > free).any():
        client = int((totals > free).argmax())
        raise DataError(
            f"client {client} has only {free[client]} of {sizes[client]} samples that no other "
            f"noise has hit, and {totals[client]} "
            "more are to be; lower data.noise"
        )
    # One random key per sample; within each client, the lowest keys are hit.
    ranked = np.lexsort((draw.random(len(owners)), taken, owners))
    rank = np.arange(len(owners)) - np.repeat(partition.offsets[:-1], sizes)
    rows, start = [], np.zeros_like(totals)
    for place in range(len(kinds)):
        end = start + totals // len(kinds) + (place < totals % len(kinds))
        rows.append(
            partition.order[
                ranked[(rank >= np.repeat(start, sizes)) & (rank < np.repeat(end, sizes))]
            ]
        )
        start = end
    return rows


def rates_of(
    rate: float, spread: float, rates: list[float] | None, clients: int, draw: np.random.Generator
) -> FloatArray:
    """(N,) each client's rate: as listed, or drawn from rate ± spread, kept in [0, 1)."""
    if rates is not None:
        if len(rates) != clients:
            raise DataError(
                f"data.noise_rates has {len(rates)} rates, but there are {clients} clients"
            )
        return np.array(rates)
    drawn = rate + spread * draw.uniform(-1, 1, clients)
    return np.clip(drawn, 0, np.nextafter(1, 0))


@dataclass(frozen=True)
class OpenSet:
    """The reduced task: kept (C',) are the old numbers of its classes; observed (n,) and clean (n,)
    are in new numbers.

    clean is OUTSIDE for a sample whose class left.
    """

    kept: IntArray
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
    kept = np.sort(draw.permutation(classes)[gone:])
    renumbered = np.full(classes, OUTSIDE, dtype=np.int64)
    renumbered[kept] = np.arange(len(kept))
    clean = renumbered[labels]
    outside = clean == OUTSIDE
    observed = clean.copy()
    observed[outside] = draw.integers(0, len(kept), int(outside.sum()))
    return OpenSet(kept, observed, clean)
