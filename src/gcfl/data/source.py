"""What a reader gives: arrays and class names. Knows nothing of clients or noise."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base import rng
from gcfl.base.data_types import IntArray
from gcfl.base.errors import DataError

Pair = tuple[npt.NDArray[Any], IntArray]


@dataclass(frozen=True)
class Source:
    """x (n, ...), y (n,) in 0 .. C - 1, C class names; optionally sets of their own for server and
    test, and a group per sample.

    validation_from_test: the server's clean set is cut from `test`, as the paper does with official
    test sets. own: somebody's own data, whose labels nobody vouches for. rows, of: where these
    samples are some of more, their rows among those, and how many those are. columns: a table's, in
    the order of the features.
    """

    name: str
    x: npt.NDArray[Any]
    y: IntArray
    classes: tuple[str | int, ...]
    validation: Pair | None = None
    test: Pair | None = None
    groups: npt.NDArray[Any] | None = None
    validation_from_test: bool = False
    own: bool = False
    rows: IntArray | None = None
    of: int | None = None
    columns: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def digest(self) -> str:
        """A hash of every array, so that two runs on different arrays never share a folder."""
        sha = hashlib.sha256()
        for array in (self.x, self.y, *(self.validation or ()), *(self.test or ())):
            sha.update(f"{array.dtype}{array.shape}".encode())
            sha.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
        sha.update(repr(self.classes).encode())
        if self.groups is not None:
            sha.update("\x1f".join(self.groups.tolist()).encode())
        return sha.hexdigest()[:16]


def subset(source: Source, samples: int | None, seed: int) -> Source:
    """A random `samples` of the source, in its order; its own validation and test sets stay
    whole.
    """
    if samples is None or samples == len(source):
        return source
    if samples > len(source):
        raise DataError(
            f"data.samples is {samples}, but {source.name} has only {len(source)} samples"
        )
    keep = np.sort(rng.stream(seed, "subset").permutation(len(source))[:samples])
    groups = None if source.groups is None else source.groups[keep]
    rows = keep if source.rows is None else source.rows[keep]
    return replace(
        source,
        x=source.x[keep],
        y=source.y[keep],
        groups=groups,
        rows=rows,
        of=source.of or len(source),
    )
