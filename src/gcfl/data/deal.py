"""Who holds which sample, by the partition that the settings name."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt

from gcfl.base.data_types import IntArray
from gcfl.base.errors import DataError
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
from gcfl.data.side_files import read_owners
from gcfl.data.source import Source

log = logging.getLogger("gcfl.data")


def deal(
    source: Source, rest: IntArray, options: DataOptions, draw: np.random.Generator
) -> tuple[Partition, tuple[str, ...] | None]:
    """Who holds which of the rows `rest`, and the clients' names where the data has them.

    Where that would break what was asked for (shards, groups, given), nothing is moved to reach the
    minimum.
    """
    labels, classes, clients = source.y[rest], len(source.classes), options.clients
    if options.partition == "given":
        names = read_owners(options.owners, source)
        _tell_lost("clients", names, rest)
        owners, known = named_owners(names[rest])
        return _large_enough(from_owners(rest, owners, len(known)), options.min_size, known), tuple(
            known
        )
    if clients * options.min_size > len(rest):
        raise too_few(len(rest), clients, options.min_size)
    if options.partition == "groups":
        if source.groups is None:
            raise DataError(
                f"{source.name} has no groups; a table names their column with data.group"
            )
        _tell_lost("groups", source.groups, rest)
        groups = source.groups[rest]
        owners = whole_groups(groups, clients, draw)
        single = _named_by(groups, owners, clients)
        return _large_enough(from_owners(rest, owners, clients), options.min_size, single), tuple(
            single
        ) if single else None
    if options.partition == "iid":
        owners = iid(labels, clients, draw)
    elif options.partition == "shards":
        # Samples that moved would bring their classes along, and the limit on those would be
        # broken.
        owners = shards(labels, classes, clients, options.classes_per_client, draw)
        return _large_enough(from_owners(rest, owners, clients), options.min_size), None
    elif options.partition == "quantity":
        owners = quantity(labels, clients, options.alpha, draw)
    else:
        owners = dirichlet(labels, classes, clients, options.alpha, draw)
    return from_owners(rest, ensure_minimum(owners, clients, options.min_size, draw), clients), None


def _tell_lost(what: str, names: npt.NDArray[Any], rest: IntArray) -> None:
    """Those whose samples all went to server and test are not in the federation, and somebody
    should know.
    """
    known = np.unique(names)
    lost = np.setdiff1d(known, names[rest]).tolist()
    if lost:
        shown = ", ".join(lost[:5]) + (", ..." if len(lost) > 5 else "")
        log.warning(
            "%d of %d %s have no sample left beside the server's and the test set: %s",
            len(lost),
            len(known),
            what,
            shown,
        )


def _named_by(groups: npt.NDArray[Any], owners: IntArray, clients: int) -> list[str] | None:
    """The clients' names, where each holds exactly one group."""
    known, first = np.unique(groups, return_index=True)
    if len(known) != clients:
        return None
    return [str(known[place]) for place in np.argsort(owners[first])]


def _large_enough(partition: Partition, minimum: int, names: list[str] | None = None) -> Partition:
    smallest = int(partition.sizes.argmin())
    if partition.sizes[smallest] < minimum:
        name = names[smallest] if names else smallest
        raise DataError(
            f"client {name} has {partition.sizes[smallest]} samples, fewer than data.min_size "
            f"({minimum}); lower data.min_size"
        )
    return partition
