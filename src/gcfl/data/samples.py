"""The clients' samples: copied out of the source, so that nothing else of it is within the clients'
reach.
"""

from __future__ import annotations

import tempfile
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gcfl.base.data_types import IntArray
from gcfl.data.home import cache_folder

LARGEST_IN_MEMORY = 2 << 30  # bytes; above, the copy is a mapped file
_BLOCK = 1024


def samples(
    x: npt.NDArray[Any], rows: IntArray, changed_rows: IntArray, changed: npt.NDArray[Any] | None
) -> torch.Tensor:
    """(m, ...) rows of x (ascending), of which `changed_rows` have become `changed`, and nothing
    more.
    """
    if changed is None and len(rows) == len(x):
        return tensor(x)
    own = _empty((len(rows), *x.shape[1:]), x.dtype)
    for start in range(0, len(rows), _BLOCK):  # x may be a file larger than memory
        own[start : start + _BLOCK] = x[rows[start : start + _BLOCK]]
    if changed is not None:
        own[np.searchsorted(rows, changed_rows)] = changed
    return tensor(own)


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array to be filled: in memory, or, where it is large, in a file without a name that goes
    when nobody uses it.
    """
    if int(np.prod(shape, dtype=np.int64)) * dtype.itemsize <= LARGEST_IN_MEMORY:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=cache_folder()) as file:
        return np.memmap(file, dtype, "w+", shape=shape)


def tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """The same memory as a tensor. Nothing here ever writes to it, so read-only arrays are
    welcome.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(
            np.ascontiguousarray(array) if min(array.strides, default=0) < 0 else np.asarray(array)
        )
