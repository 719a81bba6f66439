"""From a source to a federation: clients with noisy labels, the server's clean set, a clean test set, and the truth apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gcfl import rng
from gcfl.data.noise import Truth, closed_set
from gcfl.data.options import DataOptions
from gcfl.data.partition import Partition, dirichlet, ensure_minimum, from_owners, iid, too_few
from gcfl.data.source import Pair, Source
from gcfl.errors import DataError
from gcfl.options import resolve_size
from gcfl.types import IntArray, Shard


@dataclass(frozen=True)
class ClientData:
    """What the clients hold: one array of their samples alone, observed labels, index lists into it.

    No truth, and nothing of the server's. ids (n,): the row of the source that each row of x came from.
    """

    x: torch.Tensor
    y: torch.Tensor
    ids: IntArray
    partition: Partition

    def __len__(self) -> int:
        return len(self.partition)

    def shard(self, client: int) -> Shard:
        own = self.partition[client]
        rows = torch.from_numpy(own)
        return Shard(self.x[rows], self.y[rows], self.ids[own])

    @property
    def source_rows(self) -> Partition:
        """The same index lists, as rows of the source."""
        return Partition(self.ids[self.partition.order], self.partition.offsets)


@dataclass(frozen=True)
class Federation:
    """One federation. `truth` is for observers of a simulation only: no method is ever handed it. None: nobody knows it."""

    clients: ClientData
    validation: Shard
    test: Shard
    classes: tuple[str | int, ...]
    normaliser: tuple[torch.Tensor, torch.Tensor] | None
    truth: Truth | None

    def clean_only(self) -> Federation:
        """The same federation with every noisy client sample taken away: what Skyline trains on."""
        if self.truth is None:
            raise DataError(
                "skyline needs the truth, and which of your own labels are wrong is known only where data.noise flips them"
            )
        kept = self.clients.partition.keep(~self.truth.noisy[self.clients.source_rows.order])
        if int(kept.sizes.min()) == 0:
            raise DataError(
                f"client {int(kept.sizes.argmin())} has no clean sample left, so skyline cannot train there; "
                "lower data.noise or raise data.min_size"
            )
        return replace(self, clients=replace(self.clients, partition=kept))


def build(source: Source, options: DataOptions, seed: int) -> Federation:
    """Cut the source into test, validation and clients (seeded), deal, flip labels, and take the normalisation from the server."""
    rest, validation, test = _cut(source, options, seed)
    if options.clients * options.min_size > len(rest):
        raise too_few(len(rest), options.clients, options.min_size)
    labels = source.y[rest]
    draw = rng.stream(seed, "partition")
    if options.partition == "iid":
        owners = iid(labels, options.clients, draw)
    else:
        owners = dirichlet(labels, len(source.classes), options.clients, options.alpha, draw)
    owners = ensure_minimum(owners, options.clients, options.min_size, draw)
    partition = from_owners(rest, owners, options.clients)
    observed, truth = closed_set(source.y, partition, len(source.classes), options.noise, rng.stream(seed, "noise"))
    own = source.x if len(rest) == len(source) else source.x[rest]
    local = Partition(np.searchsorted(rest, partition.order), partition.offsets)
    # On one's own data nobody knows which labels were wrong before we flipped some.
    unknown = source.own and options.noise == 0
    return Federation(
        clients=ClientData(torch.from_numpy(np.ascontiguousarray(own)), torch.from_numpy(observed[rest]), rest, local),
        validation=validation,
        test=test,
        classes=source.classes,
        normaliser=_statistics(validation.x) if options.normalise else None,
        truth=None if unknown else truth,
    )


def _cut(source: Source, options: DataOptions, seed: int) -> tuple[IntArray, Shard, Shard]:
    """Rows of the clients, the server's shard, the test shard: a seeded shuffle, or the source's own sets where it has them."""
    if source.validation_from_test and source.test is not None:
        return np.arange(len(source)), *_cut_test(source, source.test, options, seed)
    n = len(source)
    shuffled = rng.stream(seed, "split").permutation(n)
    wanted = {"test": 0 if source.test else resolve_size(options.test, n)}
    wanted["validation"] = 0 if source.validation else resolve_size(options.validation, n)
    taken = wanted["test"] + wanted["validation"]
    if taken >= n:
        raise DataError(
            f"data.test ({wanted['test']}) and data.validation ({wanted['validation']}) leave nothing of the {n} samples "
            "for the clients"
        )
    test_rows, validation_rows, rest = np.split(shuffled, [wanted["test"], taken])
    test = _shard(*source.test) if source.test else _shard(source.x[test_rows], source.y[test_rows], test_rows)
    validation = (
        _shard(*source.validation)
        if source.validation
        else _shard(source.x[validation_rows], source.y[validation_rows], validation_rows)
    )
    return np.sort(rest), validation, test


def _cut_test(source: Source, official: Pair, options: DataOptions, seed: int) -> tuple[Shard, Shard]:
    """An official test set, shuffled, cut into the server's clean set and the test set.

    Sizes are counts, or shares of the training set, and at most half of the official set for the server; the test set gets
    at most what the server leaves.
    """
    x, y = official
    size = resolve_size(options.validation, len(source))
    wanted = min(size, len(y) // 2) if isinstance(options.validation, float) else size
    if wanted >= len(y):
        raise DataError(f"data.validation is {wanted}, but the official test set that it is cut from has {len(y)} samples")
    left = min(resolve_size(options.test, len(source)), len(y) - wanted)
    # Ids go on after the training rows, so that no two samples of a source share one.
    shuffled = rng.stream(seed, "split").permutation(len(y))
    validation, test = shuffled[:wanted], shuffled[wanted : wanted + left]
    return _shard(x[validation], y[validation], validation + len(source)), _shard(x[test], y[test], test + len(source))


def _shard(x: npt.NDArray[Any], y: IntArray, ids: IntArray | None = None) -> Shard:
    rows = np.arange(len(y)) if ids is None else ids
    return Shard(torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(np.ascontiguousarray(y)), rows.astype(np.int64))


def _statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and sd per channel of (n, C, H, W) as (C, 1, 1), per feature of (n, d) as (d,); a constant one gets sd 1."""
    values = x.double()
    across = (0, *range(2, x.ndim))
    shape = (-1, *(1,) * (x.ndim - 2))
    mean = values.mean(dim=across).reshape(shape)
    deviation = values.std(dim=across, correction=0).reshape(shape)
    deviation[deviation <= 1e-12 * mean.abs().clamp(min=1)] = 1.0
    return mean.float(), deviation.float()
