"""Who holds which sample, by the partition that the settings name."""

from __future__ import annotations

import numpy as np

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
from gcfl.errors import DataError
from gcfl.types import IntArray


def deal(
    source: Source, rest: IntArray, options: DataOptions, draw: np.random.Generator
) -> tuple[Partition, tuple[str, ...] | None]:
    """Who holds which of the rows `rest`, and the clients' names where the data has them.

    Where the data itself says who (groups, given), nothing is moved to reach the minimum.
    """
    labels, classes, clients = source.y[rest], len(source.classes), options.clients
    if options.partition == "given":
        names = read_owners(options.owners, source)[rest]
        owners, known = named_owners(names)
        return _large_enough(from_owners(rest, owners, len(known)), options.min_size, known), tuple(known)
    if clients * options.min_size > len(rest):
        raise too_few(len(rest), clients, options.min_size)
    if options.partition == "groups":
        if source.groups is None:
            raise DataError(f"{source.name} has no groups; a table names their column with data.group")
        dealt = from_owners(rest, whole_groups(source.groups[rest], clients, draw), clients)
        return _large_enough(dealt, options.min_size), None
    if options.partition == "iid":
        owners = iid(labels, clients, draw)
    elif options.partition == "shards":
        owners = shards(labels, classes, clients, options.classes_per_client, draw)
    elif options.partition == "quantity":
        owners = quantity(labels, clients, options.alpha, draw)
    else:
        owners = dirichlet(labels, classes, clients, options.alpha, draw)
    return from_owners(rest, ensure_minimum(owners, clients, options.min_size, draw), clients), None


def _large_enough(partition: Partition, minimum: int, names: list[str] | None = None) -> Partition:
    smallest = int(partition.sizes.argmin())
    if partition.sizes[smallest] < minimum:
        name = names[smallest] if names else smallest
        raise DataError(
            f"client {name} has {partition.sizes[smallest]} samples, fewer than data.min_size ({minimum}); lower data.min_size"
        )
    return partition
