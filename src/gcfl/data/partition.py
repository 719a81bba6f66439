"""Who holds which sample: index lists into one array, as one order and N + 1 offsets."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.data_types import IntArray
from gcfl.base.errors import ConfigError, DataError
from gcfl.base.options import largest_remainder
from gcfl.data.options import DataOptions
from gcfl.data.source import Source

log = logging.getLogger("gcfl.data")


@dataclass(frozen=True)
class Partition:
    """Client i holds order[offsets[i] : offsets[i + 1]]."""

    order: IntArray
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> IntArray:
        return self.order[self.offsets[client] : self.offsets[client + 1]]

    @cached_property
    def sizes(self) -> IntArray:
        return np.diff(self.offsets)

    @property
    def owners(self) -> IntArray:
        """(n,) the client of each place in `order`."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def keep(self, mask: np.ndarray) -> Partition:
        """Only the places of `order` where mask (n,) holds."""
        offsets = np.concatenate([[0], np.cumsum(mask)])[self.offsets]
        return Partition(self.order[mask], offsets.astype(np.int64))


def assign(
    source: Source, rows: IntArray, options: DataOptions, draw: np.random.Generator
) -> tuple[Partition, tuple[str, ...] | None]:
    """Who holds which of these rows, by the partition that the settings name, and the clients'
    names where the data has them.

    Where that would break what was asked for (shards, groups, given), nothing is moved to reach the
    minimum.
    """
    labels, classes, clients = source.y[rows], len(source.classes), options.clients
    if options.client_per_group and source.groups is not None:
        clients = len(np.unique(source.groups[rows]))
    names: tuple[str, ...] | None = None
    if options.partition == "given" or source.clients is not None:
        lines, everyone = _owners(source, options)
        _warn_of_lost("clients", lines, rows)
        found, owners = np.unique(lines[rows], return_inverse=True)
        if everyone is not None:  # in the order they were given in
            place = {name: number for number, name in enumerate(everyone)}
            order = np.argsort([place[name] for name in found.tolist()])
            found, owners = found[order], np.argsort(order)[owners]
        clients, names = len(found), tuple(found.tolist())
    elif clients * options.min_size > len(rows):
        raise _too_few(len(rows), clients, options.min_size)
    elif options.partition == "groups":
        if source.groups is None:
            raise DataError(
                f"{source.name} has no groups; a table names their column with data.group"
            )
        _warn_of_lost("groups", source.groups, rows)
        owners = whole_groups(source.groups[rows], clients, draw)
        names = _group_names(source.groups[rows], owners, clients)
    elif options.partition == "shards":
        owners = shards(labels, classes, clients, options.classes_per_client, draw)
    else:
        if options.partition == "iid":
            owners = iid(labels, clients, draw)
        elif options.partition == "quantity":
            owners = quantity(labels, clients, options.alpha, draw)
        else:
            owners = dirichlet(labels, classes, clients, options.alpha, draw)
        owners = ensure_minimum(owners, clients, options.min_size, draw)
    partition = from_owners(rows, owners, clients)
    smallest = int(partition.sizes.argmin())
    if partition.sizes[smallest] < options.min_size:
        raise DataError(
            f"client {names[smallest] if names else smallest} has {partition.sizes[smallest]} "
            f"samples, fewer than data.min_size ({options.min_size}); lower data.min_size"
        )
    return partition, names


def _owners(
    source: Source, options: DataOptions
) -> tuple[npt.NDArray[Any], tuple[str, ...] | None]:
    """(n,) whose each sample is, by a file or by the data itself; then also the clients' order."""
    if source.clients is None or source.groups is None:
        if options.owners is None:
            raise ConfigError(
                "partition 'given' needs data.owners: a file with the client's name of every "
                "sample, one per line"
            )
        return np.array(source.lines(options.owners, "data.owners")), None
    if options.partition != "given" or options.owners is not None:
        setting = "partition" if options.partition != "given" else "owners"
        raise ConfigError(
            f"data.{setting} has no effect on data that comes client by client: everyone keeps "
            "what it was given"
        )
    if options.clients != len(source.clients):
        raise ConfigError(
            f"data.clients is {options.clients}, but data was given for {len(source.clients)} "
            "clients; leave data.clients out"
        )
    return source.groups, source.clients


def spread(groups: npt.NDArray[Any], order: IntArray) -> IntArray:
    """Rows (n,) in an order whose every stretch has the same share of each group, to within one
    sample; within a group they stay as they were.
    """
    _, group, sizes = np.unique(groups[order], return_inverse=True, return_counts=True)
    by_group = np.argsort(group, kind="stable")
    rank = np.empty(len(order))
    rank[by_group] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[np.argsort((rank + 0.5) / sizes[group], kind="stable")]


def _warn_of_lost(what: str, names: npt.NDArray[Any], rows: IntArray) -> None:
    """Clients whose samples all went to server and test: somebody should know."""
    everyone = np.unique(names)
    lost = np.setdiff1d(everyone, names[rows]).tolist()
    if lost:
        log.warning(
            "%d of %d %s have no sample left beside the server's and the test set: %s",
            len(lost),
            len(everyone),
            what,
            ", ".join(lost[:5]) + (", ..." if len(lost) > 5 else ""),
        )


def _group_names(
    groups: npt.NDArray[Any], owners: IntArray, clients: int
) -> tuple[str, ...] | None:
    """The clients' names, where each holds exactly one group."""
    names, first = np.unique(groups, return_index=True)
    if len(names) != clients:
        return None
    return tuple(str(names[place]) for place in np.argsort(owners[first]))


def from_owners(ids: IntArray, owners: IntArray, clients: int) -> Partition:
    """Samples `ids` (n,) belong to `owners` (n,)."""
    by_owner = np.argsort(owners, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=clients))])
    return Partition(ids[by_owner].astype(np.int64), offsets.astype(np.int64))


def iid(labels: IntArray, clients: int, draw: np.random.Generator) -> IntArray:
    """Owners (n,): a random deal, sizes equal to within one."""
    return draw.permutation(np.arange(len(labels)) % clients)


def dirichlet(
    labels: IntArray, classes: int, clients: int, alpha: float, draw: np.random.Generator
) -> IntArray:
    """Owners (n,): per class, shares ~ Dirichlet(alpha), dealt by largest remainder."""
    owners = np.empty(len(labels), dtype=np.int64)
    for label in range(classes):
        members = draw.permutation(np.flatnonzero(labels == label))
        shares = _dirichlet_row(clients, alpha, draw)
        owners[members] = np.repeat(np.arange(clients), largest_remainder(shares, len(members)))
    return owners


def _dirichlet_row(clients: int, alpha: float, draw: np.random.Generator) -> np.ndarray:
    gammas = draw.standard_gamma(alpha, clients)
    total = gammas.sum()
    if total > 0:
        return np.asarray(gammas / total)
    # A tiny alpha underflows every gamma: in the limit, one client gets everything.
    shares = np.zeros(clients)
    shares[draw.integers(clients)] = 1.0
    return shares


def shards(
    labels: IntArray, classes: int, clients: int, per_client: int, draw: np.random.Generator
) -> IntArray:
    """Owners (n,): every client holds at most `per_client` classes; a class is dealt evenly to the
    clients that hold it.

    Classes are handed out in shuffled rounds, so that each is held by as many clients as any other,
    to within one.
    """
    per_client = min(per_client, classes)
    if clients * per_client < classes:
        raise DataError(
            f"{clients} clients with {per_client} classes each cannot hold all {classes} classes; "
            "raise data.classes_per_client"
        )
    holders: list[list[int]] = [[] for _ in range(classes)]
    for client in draw.permutation(clients).tolist():
        # The classes with the fewest holders first; equal ones in random order.
        order = np.lexsort((draw.random(classes), np.array(list(map(len, holders)))))
        for label in order[:per_client].tolist():
            holders[label].append(client)
    owners = np.empty(len(labels), dtype=np.int64)
    for label, others in enumerate(holders):
        members = draw.permutation(np.flatnonzero(labels == label))
        owners[members] = np.resize(draw.permutation(others), len(members))
    return owners


def quantity(labels: IntArray, clients: int, alpha: float, draw: np.random.Generator) -> IntArray:
    """Owners (n,): sizes ~ Dirichlet(alpha, ..., alpha), classes as they fall."""
    counts = largest_remainder(_dirichlet_row(clients, alpha, draw), len(labels))
    return draw.permutation(np.repeat(np.arange(clients), counts))


def whole_groups(groups: np.ndarray, clients: int, draw: np.random.Generator) -> IntArray:
    """Owners (n,): every group whole to one client; the largest first, to the smallest client."""
    names, inverse, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if clients > len(names):
        raise DataError(
            f"data.clients is {clients}, but only {len(names)} groups have samples for clients; "
            "lower data.clients"
        )
    loads = np.zeros(clients, dtype=np.int64)
    holder = np.empty(len(names), dtype=np.int64)
    for group in np.lexsort((draw.random(len(names)), -sizes)).tolist():
        holder[group] = loads.argmin()
        loads[holder[group]] += sizes[group]
    return holder[inverse]


def ensure_minimum(
    owners: IntArray, clients: int, minimum: int, draw: np.random.Generator
) -> IntArray:
    """Owners (n,) where every client has at least `minimum` samples.

    What is missing is taken from the largest clients, always one from the largest of the moment,
    until nobody lacks; which of a donor's samples move is drawn at random. The rest stays where it
    was.
    """
    if clients * minimum > len(owners):
        raise _too_few(len(owners), clients, minimum)
    sizes = np.bincount(owners, minlength=clients)
    lacking = np.maximum(minimum - sizes, 0)
    deficit = int(lacking.sum())
    if deficit == 0:
        return owners
    given = _levelled(sizes, deficit)
    # Rank every sample at random within its owner: the first given[owner] of them move.
    shuffled = draw.permutation(len(owners))
    by_owner = shuffled[np.argsort(owners[shuffled], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    rank = np.arange(len(owners)) - np.repeat(starts, sizes)
    moving = draw.permutation(by_owner[rank < np.repeat(given, sizes)])
    mended = owners.copy()
    mended[moving] = np.repeat(np.arange(clients), lacking)
    return mended


def _too_few(samples: int, clients: int, minimum: int) -> DataError:
    return DataError(
        f"{clients} clients with at least {minimum} samples each need {clients * minimum} samples, "
        f"but there are {samples}; lower data.clients or data.min_size"
    )


def _levelled(sizes: IntArray, deficit: int) -> IntArray:
    """How many each client gives if `deficit` are taken one by one from the largest so far."""
    low, high = 0, int(sizes.max())
    while low < high:  # the lowest level that does not take more than the deficit
        level = (low + high) // 2
        if int(np.maximum(sizes - level, 0).sum()) <= deficit:
            high = level
        else:
            low = level + 1
    given = np.maximum(sizes - low, 0)
    rest = deficit - int(given.sum())
    given[np.flatnonzero(sizes - given == low)[:rest]] += 1
    return given
