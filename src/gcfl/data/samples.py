"""The clients' samples: an array of their own, or, where the source is a file mapped into memory, a view that copies nothing."""

from __future__ import annotations

import mmap
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gcfl.types import IntArray


@dataclass(frozen=True)
class Samples:
    """Sample i is row i of base or, with rows, row rows[i]; where place[i] >= 0, it is row place[i] of changed, made by noise."""

    base: torch.Tensor
    rows: IntArray | None = None
    changed: torch.Tensor | None = None
    place: IntArray | None = None

    def take(self, index: IntArray) -> torch.Tensor:
        """(m, ...) the samples at these places, copied."""
        taken = self.base.index_select(0, torch.from_numpy(index if self.rows is None else self.rows[index]))
        if self.changed is not None and self.place is not None:
            place = self.place[index]
            hit = place >= 0
            taken[torch.from_numpy(hit)] = self.changed[torch.from_numpy(place[hit])]
        return taken


def samples(x: npt.NDArray[Any], rows: IntArray, changed_rows: IntArray, changed: npt.NDArray[Any] | None) -> Samples:
    """Rows of x (ascending), of which `changed_rows` have become `changed`.

    Out of memory they are copied, so that nothing else of x is within the clients' reach. Out of a mapped file they are not.
    """
    at = np.searchsorted(rows, changed_rows)
    if not mapped(x):
        own = x if changed is None and len(rows) == len(x) else x[rows]
        if changed is not None:
            own[at] = changed
        return Samples(tensor(own))
    if changed is None:
        return Samples(tensor(x), rows)
    place = np.full(len(rows), -1, dtype=np.int64)
    place[at] = np.arange(len(at))
    return Samples(tensor(x), rows, tensor(changed), place)


def mapped(x: npt.NDArray[Any]) -> bool:
    """Whether the array lies in a mapped file."""
    holder: Any = x
    while isinstance(holder, np.ndarray):
        if isinstance(holder, np.memmap):
            return True
        holder = holder.base
    return isinstance(holder, mmap.mmap)


def tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """The same memory as a tensor. Nothing here ever writes to it, so read-only arrays are welcome."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(np.ascontiguousarray(array) if min(array.strides, default=0) < 0 else np.asarray(array))
