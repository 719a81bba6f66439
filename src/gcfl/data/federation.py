"""From a source to a federation: clients with noisy labels, the server's clean set, a clean test
set, and the truth apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from gcfl.base import rng
from gcfl.base.data_types import IntArray, Shard
from gcfl.base.errors import DataError
from gcfl.data.checks import check
from gcfl.data.cut import apart, cut, statistics, within
from gcfl.data.deal import deal
from gcfl.data.noise import Truth
from gcfl.data.observe import observe, spoiled
from gcfl.data.options import DataOptions
from gcfl.data.partition import Partition
from gcfl.data.samples import samples
from gcfl.data.source import Source


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
        own = self.partition[client]
        places = torch.from_numpy(own)
        whole = None if self.whole is None else int(self.whole[client])
        return Shard(self.x[places], self.y[places], self.ids[own], whole)

    @property
    def source_rows(self) -> Partition:
        """The same index lists, as rows of the source."""
        return Partition(self.ids[self.partition.order], self.partition.offsets)


@dataclass(frozen=True)
class Federation:
    """One federation. `truth` is for observers of a simulation only: no method is ever handed it.
    None: nobody knows it.
    """

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
                "skyline needs the truth, and which of your own labels are wrong is known only "
                "where data.noise flips them"
            )
        kept = self.clients.partition.keep(~self.truth.noisy[self.clients.source_rows.order])
        if int(kept.sizes.min()) == 0:
            raise DataError(
                f"client {int(kept.sizes.argmin())} has no clean sample left, so skyline cannot "
                "train there; "
                "lower data.noise or raise data.min_size"
            )
        whole = self.clients.partition.sizes if self.clients.whole is None else self.clients.whole
        return replace(self, clients=replace(self.clients, partition=kept, whole=whole))

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
    validation, test = apart(source, options, seed)
    nobody = Partition(np.empty(0, dtype=np.int64), np.zeros(len(names) + 1, dtype=np.int64))
    return Federation(
        clients=ClientData(validation.x[:0], validation.y[:0], nobody.order, nobody, names),
        validation=validation,
        test=test,
        classes=source.classes,
        normaliser=statistics(validation.x) if options.normalise else None,
        truth=None,
    )


def build(source: Source, options: DataOptions, seed: int) -> Federation:
    """Cut the source into test, validation and clients (seeded), deal, make noise, and take the
    normalisation from the server.
    """
    check(source, options)
    rest, validation, test = cut(source, options, seed)
    partition, names = deal(source, rest, options, rng.stream(seed, "partition"))
    seen = observe(source, partition, options, seed)
    classes = source.classes
    if seen.kept is not None:
        classes = tuple(source.classes[label] for label in seen.kept)
        validation, test = (
            within(validation, seen.kept, "the server's clean set"),
            within(test, seen.kept, "the test set"),
        )
    validation = spoiled(
        validation, options.validation_noise, "validation", len(classes), options, seed, seen.scale
    )
    test = spoiled(test, options.test_noise, "test", len(classes), options, seed, seen.scale)
    local = Partition(np.searchsorted(rest, partition.order), partition.offsets)
    # On one's own data nobody knows which labels were wrong before we flipped some.
    unknown = source.own and "given" not in options.kinds and not seen.truth.noisy.any()
    return Federation(
        clients=ClientData(
            samples(source.x, rest, seen.changed_rows, seen.changed),
            torch.from_numpy(seen.labels[rest]),
            rest,
            local,
            names,
        ),
        validation=validation,
        test=test,
        classes=classes,
        normaliser=statistics(validation.x) if options.normalise else None,
        truth=None if unknown else seen.truth,
    )
