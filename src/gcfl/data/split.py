"""Which samples are the server's, which are for the test, which are left for the clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gcfl.base import rng
from gcfl.base.data_types import IntArray, Shard
from gcfl.base.errors import DataError
from gcfl.base.options import resolve_size
from gcfl.data.options import DataOptions
from gcfl.data.source import Pair, Source


def split(source: Source, options: DataOptions, seed: int) -> tuple[IntArray, Shard, Shard]:
    """(rows of the clients, the server's clean set, the test set): a seeded shuffle, or the
    source's own sets where it has them.
    """
    n = len(source)
    if source.validation_from_test and source.test is not None:
        return np.arange(n), *_split_official_test(source, source.test, options, seed)
    test_size = 0 if source.test else resolve_size(options.test, n)
    validation_size = 0 if source.validation else resolve_size(options.validation, n)
    if test_size + validation_size >= n:
        raise DataError(
            f"data.test ({test_size}) and data.validation ({validation_size}) leave nothing of the "
            f"{n} samples for the clients"
        )
    shuffled = rng.stream(seed, "split").permutation(n)
    test, validation, rest = np.split(shuffled, [test_size, test_size + validation_size])
    return (
        np.sort(rest),
        _set(source, source.validation, validation),
        _set(source, source.test, test),
    )


def split_server(source: Source, options: DataOptions, seed: int) -> tuple[Shard, Shard]:
    """(the server's clean set, the test set) of a source that is the server's alone: nothing is
    left for clients.
    """
    size = 0 if source.test else resolve_size(options.test, len(source))
    if size >= len(source):
        raise DataError(
            f"data.test ({size}) leaves nothing of the server's {len(source)} samples for its "
            "clean set"
        )
    test, validation = np.split(rng.stream(seed, "split").permutation(len(source)), [size])
    return _set(source, source.validation, validation), _set(source, source.test, test)


def _split_official_test(
    source: Source, official: Pair, options: DataOptions, seed: int
) -> tuple[Shard, Shard]:
    """An official test set, shuffled, cut into the server's clean set and the test set.

    Sizes are counts, or shares of the training set, and at most half of the official set for the
    server; the test set gets at most what the server leaves.
    """
    x, y = official
    size = resolve_size(options.validation, len(source))
    if isinstance(options.validation, float):
        size = min(size, len(y) // 2)
    if size >= len(y):
        raise DataError(
            f"data.validation is {size}, but the official test set that it is cut from has "
            f"{len(y)} samples"
        )
    if size == 0:
        raise DataError(
            f"the official test set has {len(y)} sample, too few for the server's clean set and "
            "the test set both"
        )
    # What is beyond the end is simply not there: the test set is then all that is left.
    end = size + resolve_size(options.test, len(source))
    shuffled = rng.stream(seed, "split").permutation(len(y))
    # Ids go on after the training rows, so that no two samples of a source share one.
    validation, test = (
        _shard(x[rows], y[rows], rows + len(source))
        for rows in (shuffled[:size], shuffled[size:end])
    )
    return validation, test


def _set(source: Source, given: Pair | None, rows: IntArray) -> Shard:
    """A set that the source brings, or else these rows of its samples."""
    if given is not None:
        return _shard(*given, np.arange(len(given[1])))
    return _shard(source.x[rows], source.y[rows], rows)


def _shard(x: npt.NDArray[Any], y: IntArray, ids: IntArray) -> Shard:
    return Shard(
        torch.from_numpy(np.ascontiguousarray(x)),
        torch.from_numpy(np.ascontiguousarray(y)),
        ids.astype(np.int64),
    )
