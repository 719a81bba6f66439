"""Where the samples of server and test come from."""

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


def cut(source: Source, options: DataOptions, seed: int) -> tuple[IntArray, Shard, Shard]:
    """Rows of the clients, the server's shard, the test shard: a seeded shuffle, or the source's
    own sets where it has them.
    """
    if source.validation_from_test and source.test is not None:
        return np.arange(len(source)), *_cut_test(source, source.test, options, seed)
    n = len(source)
    shuffled = rng.stream(seed, "split").permutation(n)
    wanted = {"test": 0 if source.test else resolve_size(options.test, n)}
    wanted["validation"] = 0 if source.validation else resolve_size(options.validation, n)
    taken = wanted["test"] + wanted["validation"]
    if taken >= n:
        raise DataError(
            f"data.test ({wanted['test']}) and data.validation ({wanted['validation']}) leave "
            f"nothing of the {n} samples "
            "for the clients"
        )
    test_rows, validation_rows, rest = np.split(shuffled, [wanted["test"], taken])
    test = (
        _shard(*source.test)
        if source.test
        else _shard(source.x[test_rows], source.y[test_rows], test_rows)
    )
    validation = (
        _shard(*source.validation)
        if source.validation
        else _shard(source.x[validation_rows], source.y[validation_rows], validation_rows)
    )
    return np.sort(rest), validation, test


def apart(source: Source, options: DataOptions, seed: int) -> tuple[Shard, Shard]:
    """(the server's clean set, the test set) of a source that is the server's alone: nothing is
    left for clients.
    """
    rows = rng.stream(seed, "split").permutation(len(source))
    size = 0 if source.test else resolve_size(options.test, len(source))
    if size >= len(source):
        raise DataError(
            f"data.test ({size}) leaves nothing of the server's {len(source)} samples for its "
            "clean set"
        )
    tested, clean = np.split(rows, [size])
    test = (
        _shard(*source.test) if source.test else _shard(source.x[tested], source.y[tested], tested)
    )
    if source.validation:
        return _shard(*source.validation), test
    return _shard(source.x[clean], source.y[clean], clean), test


def _cut_test(
    source: Source, official: Pair, options: DataOptions, seed: int
) -> tuple[Shard, Shard]:
    """An official test set, shuffled, cut into the server's clean set and the test set.

    Sizes are counts, or shares of the training set, and at most half of the official set for the
    server; the test set gets at most what the server leaves.
    """
    x, y = official
    size = resolve_size(options.validation, len(source))
    wanted = min(size, len(y) // 2) if isinstance(options.validation, float) else size
    if wanted >= len(y):
        raise DataError(
            f"data.validation is {wanted}, but the official test set that it is cut from has "
            f"{len(y)} samples"
        )
    if wanted == 0:
        raise DataError(
            f"the official test set has {len(y)} sample, too few for the server's clean set and "
            "the test set both"
        )
    left = min(resolve_size(options.test, len(source)), len(y) - wanted)
    # Ids go on after the training rows, so that no two samples of a source share one.
    shuffled = rng.stream(seed, "split").permutation(len(y))
    validation, test = shuffled[:wanted], shuffled[wanted : wanted + left]
    return _shard(x[validation], y[validation], validation + len(source)), _shard(
        x[test], y[test], test + len(source)
    )


def _shard(x: npt.NDArray[Any], y: IntArray, ids: IntArray | None = None) -> Shard:
    rows = np.arange(len(y)) if ids is None else ids
    return Shard(
        torch.from_numpy(np.ascontiguousarray(x)),
        torch.from_numpy(np.ascontiguousarray(y)),
        rows.astype(np.int64),
    )


def statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and sd per channel of (n, C, H, W) as (C, 1, 1), per feature of (n, d) as (d,); a
    constant one gets sd 1.
    """
    values = x.double()
    across = (0, *range(2, x.ndim))
    shape = (-1, *(1,) * (x.ndim - 2))
    mean = values.mean(dim=across).reshape(shape)
    deviation = values.std(dim=across, correction=0).reshape(shape)
    deviation[deviation <= 1e-12 * mean.abs().clamp(min=1)] = 1.0
    return mean.float(), deviation.float()


def within(shard: Shard, kept: IntArray, what: str) -> Shard:
    """Only the samples of the remaining classes, in their new numbers."""
    renumbered = torch.full((int(max(kept.max(), shard.y.max())) + 1,), -1, dtype=torch.int64)
    renumbered[torch.from_numpy(kept)] = torch.arange(len(kept))
    labels = renumbered[shard.y]
    stays = labels >= 0
    if not bool(stays.any()):
        raise DataError(f"open-set noise leaves nothing of {what}")
    return Shard(shard.x[stays], labels[stays], shard.ids[stays.numpy()])
