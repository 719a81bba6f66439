"""What the clients see of their samples: labels and inputs after the noise that the settings ask
for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gcfl.base import rng
from gcfl.base.data_types import IntArray, Shard
from gcfl.data.corruption import Scale, chosen, corrupt, measure
from gcfl.data.noise import (
    Flip,
    Kind,
    Truth,
    code,
    confusion,
    open_set,
    pair,
    rates_of,
    strike,
    uniform,
)
from gcfl.data.options import DataOptions
from gcfl.data.partition import Partition
from gcfl.data.side_files import read_labels, read_matrix
from gcfl.data.source import Source


@dataclass(frozen=True)
class Observed:
    """labels (n,) by row of the source, the truth, the classes that stayed where some left, and the
    spoiled inputs.

    scale: by which they were spoiled, measured on the clients' rows.
    """

    labels: IntArray
    truth: Truth
    kept: IntArray | None
    changed_rows: IntArray
    changed: npt.NDArray[Any] | None
    scale: Scale | None


def observe(source: Source, partition: Partition, options: DataOptions, seed: int) -> Observed:
    """The kinds one after the other; no sample is hit twice. Kinds with a rate share it evenly."""
    kinds, draw = options.kinds, rng.stream(seed, "noise")
    rated = [kind for kind in kinds if kind != "given"]
    struck: list[Kind] = [kind for kind in rated if kind != "open"]
    clean, labels, kept = source.y, source.y, None
    hit = np.zeros(len(source), dtype=np.int8)
    held = np.zeros(len(source), dtype=bool)
    held[partition.order] = True
    classes = len(source.classes)
    if "open" in kinds:
        reduced = open_set(source.y, classes, options.noise / len(rated), draw)
        clean, labels, kept, classes = (
            reduced.clean,
            reduced.observed,
            reduced.kept,
            len(reduced.kept),
        )
        hit[clean < 0] = code("open")
    if "given" in kinds:
        labels = read_labels(options.noise_file, source)
        hit[(labels != clean) & held] = code("given")
    rates = rates_of(
        options.noise,
        options.noise_spread,
        options.noise_rates,
        len(partition),
        rng.stream(seed, "rates"),
    )
    changed_rows = np.zeros(0, dtype=np.int64)
    if struck:
        rows = strike(partition, rates * (len(struck) / len(rated)), struck, hit, draw)
        labels, spoil = _apply(labels, classes, struck, rows, options, draw)
        for kind, where in zip(struck, rows, strict=True):
            hit[where] = code(kind)
        changed_rows = np.sort(spoil)
    changed, scale = (
        None,
        measure(source.x, np.sort(partition.order)) if "attribute" in kinds else None,
    )
    if scale is not None and len(changed_rows):
        names = chosen(source.x, options.corruptions)
        changed = corrupt(source.x, changed_rows, names, options.severity, seed, scale)
    return Observed(labels, Truth(clean, hit), kept, changed_rows, changed, scale)


def spoiled(
    shard: Shard,
    rate: float,
    purpose: str,
    classes: int,
    options: DataOptions,
    seed: int,
    scale: Scale | None,
) -> Shard:
    """The server's set or the test set, with the same noise as the clients' where somebody asks for
    it.
    """
    if rate == 0:
        return shard
    draw = rng.stream(seed, "noise", purpose)
    whole = Partition(np.arange(len(shard)), np.array([0, len(shard)]))
    rows = strike(whole, np.array([rate]), options.kinds, np.zeros(len(shard), dtype=np.int8), draw)
    labels, spoil = _apply(shard.y.numpy(), classes, options.kinds, rows, options, draw)
    x = shard.x
    if scale is not None and len(spoil):
        x = x.clone()
        names = chosen(x.numpy(), options.corruptions)
        values = corrupt(x.numpy(), spoil, names, options.severity, seed, scale, purpose)
        x[torch.from_numpy(spoil)] = torch.from_numpy(np.asarray(values))
    return Shard(x, torch.from_numpy(labels), shard.ids)


def _apply(
    labels: IntArray,
    classes: int,
    kinds: list[Kind],
    rows: list[IntArray],
    options: DataOptions,
    draw: np.random.Generator,
) -> tuple[IntArray, IntArray]:
    """The labels after every kind that flips some, and the rows whose inputs are to be spoiled."""
    flipped, spoil = labels.copy(), np.zeros(0, dtype=np.int64)
    for kind, where in zip(kinds, rows, strict=True):
        if kind == "attribute":
            spoil = where
        else:
            flipped[where] = _flip(kind, classes, options)(labels[where], draw)
    return flipped, spoil


def _flip(kind: Kind, classes: int, options: DataOptions) -> Flip:
    if kind == "confusion":
        return confusion(read_matrix(options.noise_file, classes))
    return pair(classes) if kind == "pair" else uniform(classes)
