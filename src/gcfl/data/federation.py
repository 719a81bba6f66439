"""From a source to a federation: noisy clients, the server's clean set, a test set, the truth."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gcfl.base import rng
from gcfl.base.data_types import IntArray, Shard
from gcfl.base.encoding import Encoding
from gcfl.base.errors import DataError
from gcfl.base.layout import AS_GIVEN, Layout
from gcfl.data.add_noise import Observed, add_noise, add_noise_to_set
from gcfl.data.cleaned import relabelled
from gcfl.data.encoding import encoded
from gcfl.data.noise import Truth
from gcfl.data.options import DataOptions, check
from gcfl.data.partition import Partition, assign
from gcfl.data.source import Source, cache_folder
from gcfl.data.split import part, split, split_server

LARGEST_IN_MEMORY = 2 << 30  # bytes; above, the clients' samples are a mapped file
_BLOCK = 1024


@dataclass(frozen=True)
class ClientData:
    """What the clients hold: their samples x (n, ...) alone, observed labels y (n,), index lists
    into both.

    No truth, and nothing of the server's. ids (n,): the row of the source that each sample came
    from. names: the clients', where the data has them. whole: how many samples each held before
    some were taken away, which a budget is of.
    """

    x: torch.Tensor
    y: torch.Tensor
    ids: IntArray
    partition: Partition
    names: tuple[str, ...] | None = None
    whole: IntArray | None = None

    def __len__(self) -> int:
        return len(self.partition)

    def shard(self, client: int) -> Shard:
        rows = self.partition[client]
        places = torch.from_numpy(rows)
        whole = None if self.whole is None else int(self.whole[client])
        return Shard(self.x[places], self.y[places], self.ids[rows], whole)

    @property
    def source_rows(self) -> Partition:
        """The same index lists, as rows of the source."""
        return Partition(self.ids[self.partition.order], self.partition.offsets)


@dataclass(frozen=True)
class Federation:
    """One federation. `truth` is for observers of a simulation only; None: nobody knows it.
    encoding: how the samples were made of a table's columns. layout: how inputs came, before they
    were samples. client_test: samples of the clients that they keep for testing, as places of
    `clients.x`.
    """

    clients: ClientData
    validation: Shard
    test: Shard
    classes: tuple[str | int, ...]
    normaliser: tuple[torch.Tensor, torch.Tensor] | None
    truth: Truth | None
    encoding: Encoding | None = None
    layout: Layout = AS_GIVEN
    client_test: Partition | None = None

    def clean_only(self) -> Federation:
        """The same federation with every noisy client sample taken away: what Skyline trains on."""
        if self.truth is None:
            raise DataError(
                "skyline needs the truth, and which of your own labels are wrong is known only "
                "where data.noise flips them"
            )
        clean = self.clients.partition.keep(~self.truth.noisy[self.clients.source_rows.order])
        if int(clean.sizes.min()) == 0:
            raise DataError(
                f"client {int(clean.sizes.argmin())} has no clean sample left, so skyline cannot "
                "train there; lower data.noise or raise data.min_size"
            )
        whole = self.clients.partition.sizes if self.clients.whole is None else self.clients.whole
        return replace(self, clients=replace(self.clients, partition=clean, whole=whole))

    def pooled(self) -> Federation:
        """The same samples in the hands of one client: what centralised training sees."""
        order = self.clients.partition.order
        together = Partition(order, np.array([0, len(order)]))
        whole = None if self.clients.whole is None else np.array([self.clients.whole.sum()])
        return replace(
            self, clients=replace(self.clients, partition=together, names=None, whole=whole)
        )


def alone(source: Source, options: DataOptions, seed: int, names: tuple[str, ...]) -> Federation:
    """The server's part of a federation whose clients bring samples of their own, which nobody sees
    here.

    The source is the server's: its own test set, or a share of it, is for testing, and all else is
    the clean set.
    """
    source = encoded(source, options, seed, alone=True)
    validation, test = split_server(source, options, seed)
    nobody = Partition(np.empty(0, dtype=np.int64), np.zeros(len(names) + 1, dtype=np.int64))
    return Federation(
        clients=ClientData(validation.x[:0], validation.y[:0], nobody.order, nobody, names),
        validation=validation,
        test=test,
        classes=source.classes,
        normaliser=normaliser(validation.x, source.encoding) if options.normalise else None,
        truth=None,
        encoding=source.encoding,
        layout=source.layout,
    )


def build(source: Source, options: DataOptions, seed: int) -> Federation:
    """Split the source into test, validation and clients (seeded), assign samples to clients, add
    noise, and take the normalisation from the server.
    """
    source = encoded(source, options, seed)
    check(source, options)
    rows, validation, test = split(source, options, seed)
    partition, names = assign(source, rows, options, rng.stream(seed, "partition"))
    observed = add_noise(source, partition, options, seed)
    # On one's own data nobody knows which labels were wrong before we flipped some.
    unknown = source.own and "given" not in options.kinds and not observed.truth.noisy.any()
    if options.labels is not None:
        partition, observed = relabelled(source, partition, observed, options.labels)
        rows = np.sort(partition.order)
    validation = add_noise_to_set(validation, "validation", observed, options, seed)
    test = add_noise_to_set(test, "test", observed, options, seed)
    held, client_test = Partition(np.searchsorted(rows, partition.order), partition.offsets), None
    if options.client_test:
        held, client_test = part(held, options.client_test, rng.stream(seed, "client test"))
    return Federation(
        clients=ClientData(
            _samples(source.x, rows, observed),
            torch.from_numpy(observed.labels[rows]),
            rows,
            held,
            names,
        ),
        validation=validation,
        test=test,
        classes=tuple(source.classes[label] for label in observed.classes),
        normaliser=normaliser(validation.x, source.encoding) if options.normalise else None,
        truth=None if unknown else observed.truth,
        encoding=source.encoding,
        layout=source.layout,
        client_test=client_test,
    )


def normaliser(
    x: torch.Tensor, encoding: Encoding | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and sd per channel (C, 1, 1) or per feature (d,); a constant one gets sd 1. Features of
    a table that say yes or no stay as they are: a rare yes would else be a huge number.
    """
    values = x.double()
    across = (0, *range(2, x.ndim))
    shape = (-1, *(1,) * (x.ndim - 2))
    mean = values.mean(dim=across).reshape(shape)
    deviation = values.std(dim=across, correction=0).reshape(shape)
    deviation[deviation <= 1e-12 * mean.abs().clamp(min=1)] = 1.0
    if encoding is not None:
        said = torch.from_numpy(~encoding.measured)
        mean[said], deviation[said] = 0.0, 1.0
    return mean.float(), deviation.float()


def _samples(x: npt.NDArray[Any], rows: IntArray, observed: Observed) -> torch.Tensor:
    """(m, ...) rows of x (ascending), spoiled where noise did: copied out of the source, so that
    nothing else of it is within the clients' reach.
    """
    if observed.spoiled is None and len(rows) == len(x):
        return _tensor(x)
    copied = _empty((len(rows), *x.shape[1:]), x.dtype)
    for start in range(0, len(rows), _BLOCK):  # x may be a file larger than memory
        copied[start : start + _BLOCK] = x[rows[start : start + _BLOCK]]
    if observed.spoiled is not None:
        copied[np.searchsorted(rows, observed.spoiled_rows)] = observed.spoiled
    return _tensor(copied)


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array to be filled: in memory, or, where large, in a nameless file."""
    if int(np.prod(shape, dtype=np.int64)) * dtype.itemsize <= LARGEST_IN_MEMORY:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=cache_folder()) as file:
        return np.memmap(file, dtype, "w+", shape=shape)


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """The same memory as a tensor. Nothing here ever writes to it: read-only arrays are welcome."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(
            np.ascontiguousarray(array) if min(array.strides, default=0) < 0 else np.asarray(array)
        )
