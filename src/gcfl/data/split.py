"""The server's clean set, the test set, and what is left for the clients: by a seeded shuffle."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gcfl.base import rng
from gcfl.base.data_types import IntArray, Shard
from gcfl.base.errors import ConfigError, DataError
from gcfl.base.options import resolve_size
from gcfl.data.options import DataOptions
from gcfl.data.partition import Partition, spread
from gcfl.data.source import Pair, Source


def split(source: Source, options: DataOptions, seed: int) -> tuple[IntArray, Shard, Shard]:
    """(rows of the clients, the server's clean set, the test set): a seeded shuffle, or the
    source's own sets where it has them.
    """
    if source.validation_from_test and source.test is not None:
        return np.arange(len(source)), *_split_official_test(source, source.test, options, seed)
    rest, validation, test = split_rows(source, options, seed)
    return (
        rest,
        _set(source, source.validation, validation),
        _set(source, source.test, test),
    )


def split_rows(
    source: Source, options: DataOptions, seed: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Rows of the clients, of the clean set, of the test set; none for a set that the source
    brings.
    """
    n = len(source)
    test_size = 0 if source.test else _size("test", options.test, n)
    validation_size = 0 if source.validation else _size("validation", options.validation, n)
    if test_size + validation_size >= n:
        raise DataError(
            f"data.test ({test_size}) and data.validation ({validation_size}) leave nothing of the "
            f"{n} samples for the clients"
        )
    shuffled = rng.stream(seed, "split").permutation(n)
    if source.alike and source.groups is not None:
        shuffled = spread(source.groups, shuffled)
    test, validation, rest = np.split(shuffled, [test_size, test_size + validation_size])
    if options.validation_balanced and validation_size:
        validation, rest = _balanced(source.y, shuffled[test_size:], validation_size)
    return np.sort(rest), validation, test


def _size(name: str, given: int | float | str, total: int) -> int:
    if isinstance(given, str):
        raise ConfigError(f"data.{name} names a set of its own ({given}), which was not read")
    return resolve_size(given, total)


def split_server(source: Source, options: DataOptions, seed: int) -> tuple[Shard, Shard]:
    """(the clean set, the test set) of a source that is the server's alone."""
    validation, test = split_server_rows(source, options, seed)
    return _set(source, source.validation, validation), _set(source, source.test, test)


def split_server_rows(source: Source, options: DataOptions, seed: int) -> tuple[IntArray, IntArray]:
    """Rows of the clean set and of the test set, of a source that is the server's alone."""
    size = 0 if source.test else _size("test", options.test, len(source))
    if size >= len(source):
        raise DataError(
            f"data.test ({size}) leaves nothing of the server's {len(source)} samples for its "
            "clean set"
        )
    test, validation = np.split(rng.stream(seed, "split").permutation(len(source)), [size])
    return validation, test


def _split_official_test(
    source: Source, official: Pair, options: DataOptions, seed: int
) -> tuple[Shard, Shard]:
    """An official test set, shuffled, cut into the server's clean set and the test set.

    Sizes are counts, or shares of the training set, and at most half of the official set for the
    server; the test set gets at most what the server leaves.
    """
    x, y = official
    chosen, rest = split_official_rows(source, y, options, seed)
    # Ids go on after the training rows, so that no two samples of a source share one.
    validation, test = (_shard(x[rows], y[rows], rows + len(source)) for rows in (chosen, rest))
    return validation, test


def split_official_rows(
    source: Source, y: IntArray, options: DataOptions, seed: int
) -> tuple[IntArray, IntArray]:
    """Rows of an official test set with the labels y: of the clean set, and of the test set."""
    size = _size("validation", options.validation, len(source))
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
    end = size + _size("test", options.test, len(source))
    shuffled = rng.stream(seed, "split").permutation(len(y))
    chosen, rest = shuffled[:size], shuffled[size:end]
    if options.validation_balanced:  # a test set that is the same for every size of the clean set
        rest = shuffled[: min(end - size, len(y) - size)]
        chosen, _ = _balanced(y, shuffled[len(rest) :], size)
    return chosen, rest


def _balanced(y: IntArray, order: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """The first `size` of these rows with classes as equal as can be, and the others."""
    labels = y[order]
    rank = np.empty(len(order), dtype=np.int64)  # its place among the rows of its class
    for label in np.unique(labels):
        rank[labels == label] = np.arange(int((labels == label).sum()))
    taken = np.sort(np.lexsort((np.arange(len(order)), rank))[:size])
    return order[taken], np.delete(order, taken)


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


def part(
    partition: Partition, share: float, draw: np.random.Generator
) -> tuple[Partition, Partition]:
    """(what stays, a random share of each client's samples, rounded): at least one sample of every
    client is on either side, where it has two.
    """
    owners, sizes = partition.owners, partition.sizes
    shuffled = np.lexsort((draw.random(len(owners)), owners))  # client by client
    rank = np.empty(len(owners), dtype=np.int64)
    rank[shuffled] = np.arange(len(owners)) - partition.offsets[owners]
    taken = rank < np.minimum(np.maximum(np.round(share * sizes), 1), sizes - 1)[owners]
    return partition.keep(~taken), partition.keep(taken)
