"""Wrong labels, made on purpose, with the truth kept apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gcfl.data.partition import Partition
from gcfl.types import IntArray


@dataclass(frozen=True)
class Truth:
    """What no method may see: clean labels (n,) and which samples are noisy (n,), by row of the source."""

    labels: IntArray
    noisy: npt.NDArray[np.bool_]


def closed_set(
    labels: IntArray, partition: Partition, classes: int, rate: float, draw: np.random.Generator
) -> tuple[IntArray, Truth]:
    """Observed labels (n,), and the truth: exactly round(rate * n_i) samples of every client i get another label, uniformly.

    `round` is Python's (halves to even). A flipped label is never the clean one.
    """
    sizes = partition.sizes
    flips = np.array([round(rate * int(size)) for size in sizes], dtype=np.int64)
    # One random key per sample; within each client, the lowest keys are flipped.
    owners = partition.owners
    ranked = np.lexsort((draw.random(len(owners)), owners))
    rank = np.arange(len(owners)) - np.repeat(partition.offsets[:-1], sizes)
    chosen = partition.order[ranked[rank < np.repeat(flips, sizes)]]
    observed = labels.copy()
    observed[chosen] = (labels[chosen] + draw.integers(1, classes, len(chosen))) % classes
    noisy = np.zeros(len(labels), dtype=bool)
    noisy[chosen] = True
    return observed, Truth(labels, noisy)
