"""From a source to a federation: clients with noisy labels, the server's clean set, a clean test set, and the truth apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gcfl import rng
from gcfl.data.noise import Truth, closed_set, confusion, open_set, pair, rates_of, uniform
from gcfl.data.options import DataOptions
from gcfl.data.partition import (
    Partition,
    dirichlet,
    ensure_minimum,
    from_owners,
    iid,
    named_owners,
    quantity,
    shards,
    too_few,
    whole_groups,
)
from gcfl.data.side_files import read_labels, read_matrix, read_owners
from gcfl.data.source import Pair, Source
from gcfl.errors import ConfigError, DataError
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
    partition = _deal(source, rest, options, rng.stream(seed, "partition"))
    observed, truth, kept = _observe(source, partition, options, seed)
    classes = source.classes
    if kept is not None:
        classes = tuple(source.classes[label] for label in kept)
        validation, test = _within(validation, kept, "the server's clean set"), _within(test, kept, "the test set")
    own = source.x if len(rest) == len(source) else source.x[rest]
    local = Partition(np.searchsorted(rest, partition.order), partition.offsets)
    # On one's own data nobody knows which labels were wrong before we flipped some.
    unknown = source.own and options.noise_kind != "given" and not truth.noisy.any()
    return Federation(
        clients=ClientData(torch.from_numpy(np.ascontiguousarray(own)), torch.from_numpy(observed[rest]), rest, local),
        validation=validation,
        test=test,
        classes=classes,
        normaliser=_statistics(validation.x) if options.normalise else None,
        truth=None if unknown else truth,
    )


def _observe(source: Source, partition: Partition, options: DataOptions, seed: int) -> tuple[IntArray, Truth, IntArray | None]:
    """What the clients see of the labels, the truth, and, where classes left the task, those that stayed."""
    draw, classes = rng.stream(seed, "noise"), len(source.classes)
    if options.noise_kind in ("open", "given") and (options.noise_rates or options.noise_spread):
        raise ConfigError(f"data.noise_rates and data.noise_spread have no effect with data.noise_kind {options.noise_kind!r}")
    if options.noise_kind == "given" and options.noise:
        raise ConfigError("data.noise has no effect with data.noise_kind 'given': the file says which labels are wrong")
    if options.noise_kind == "open":
        result = open_set(source.y, classes, options.noise, draw)
        return result.observed, result.truth, result.kept
    if options.noise_kind == "given":
        observed = read_labels(options.noise_file, source)
        held = np.zeros(len(source), dtype=bool)
        held[partition.order] = True
        return observed, Truth(source.y, (observed != source.y) & held), None
    if options.noise_kind == "confusion":
        flip = confusion(read_matrix(options.noise_file, classes))
    else:
        flip = pair(classes) if options.noise_kind == "pair" else uniform(classes)
    rates = rates_of(options.noise, options.noise_spread, options.noise_rates, len(partition), rng.stream(seed, "rates"))
    return *closed_set(source.y, partition, rates, flip, draw), None


def _within(shard: Shard, kept: IntArray, what: str) -> Shard:
    """Only the samples of the remaining classes, in their new numbers."""
    renumbered = torch.full((int(max(kept.max(), shard.y.max())) + 1,), -1, dtype=torch.int64)
    renumbered[torch.from_numpy(kept)] = torch.arange(len(kept))
    labels = renumbered[shard.y]
    stays = labels >= 0
    if not bool(stays.any()):
        raise DataError(f"open-set noise leaves nothing of {what}")
    return Shard(shard.x[stays], labels[stays], shard.ids[stays.numpy()])


def _deal(source: Source, rest: IntArray, options: DataOptions, draw: np.random.Generator) -> Partition:
    """Who holds which of the rows `rest`. Where the data itself says who (groups, given), nothing is moved to reach the minimum."""
    labels, classes, clients = source.y[rest], len(source.classes), options.clients
    if options.partition == "given":
        names = read_owners(options.owners, source)[rest]
        owners, known = named_owners(names)
        return _large_enough(from_owners(rest, owners, len(known)), options.min_size, known)
    if clients * options.min_size > len(rest):
        raise too_few(len(rest), clients, options.min_size)
    if options.partition == "groups":
        if source.groups is None:
            raise DataError(f"{source.name} has no groups; a table names their column with data.group")
        return _large_enough(from_owners(rest, whole_groups(source.groups[rest], clients, draw), clients), options.min_size)
    if options.partition == "iid":
        owners = iid(labels, clients, draw)
    elif options.partition == "shards":
        owners = shards(labels, classes, clients, options.classes_per_client, draw)
    elif options.partition == "quantity":
        owners = quantity(labels, clients, options.alpha, draw)
    else:
        owners = dirichlet(labels, classes, clients, options.alpha, draw)
    return from_owners(rest, ensure_minimum(owners, clients, options.min_size, draw), clients)


def _large_enough(partition: Partition, minimum: int, names: list[str] | None = None) -> Partition:
    smallest = int(partition.sizes.argmin())
    if partition.sizes[smallest] < minimum:
        name = names[smallest] if names else smallest
        raise DataError(
            f"client {name} has {partition.sizes[smallest]} samples, fewer than data.min_size ({minimum}); lower data.min_size"
        )
    return partition


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
