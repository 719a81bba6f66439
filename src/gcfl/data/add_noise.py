"""What the clients see of their samples: labels and inputs after the noise that is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gcfl.base import rng
from gcfl.base.data_types import FloatArray, IntArray, Shard
from gcfl.base.errors import ConfigError, DataError, did_you_mean
from gcfl.data.corruption import Corruption, chosen, corrupt, measure
from gcfl.data.lookalikes import Lookalikes, look
from gcfl.data.noise import Flip, Kind, Truth, code, confusion, open_set, pair, renumbered, uniform
from gcfl.data.options import DataOptions
from gcfl.data.partition import Partition
from gcfl.data.source import Source, read_text

_NO_ROWS: IntArray = np.zeros(0, dtype=np.int64)
_ALIKE = {"similar", "mistakes"}
_SETS = {"validation": "the server's clean set", "test": "the test set"}


@dataclass(frozen=True)
class Observed:
    """By row of the source: observed labels (n,) and the truth; classes (C',) of the task, as
    numbers of the source's; which rows' inputs were spoiled, what they became, and how; what a weak
    model takes the samples for, where a kind of noise goes by it.
    """

    labels: IntArray
    truth: Truth
    classes: IntArray
    spoiled_rows: IntArray
    spoiled: npt.NDArray[Any] | None
    corruption: Corruption | None
    lookalikes: Lookalikes | None


def add_noise(source: Source, partition: Partition, options: DataOptions, seed: int) -> Observed:
    """The kinds one after the other; no sample is hit twice. Kinds with a rate share it evenly."""
    kinds, draw = options.kinds, rng.stream(seed, "noise")
    with_rate = [kind for kind in kinds if kind != "given"]
    per_sample: list[Kind] = [kind for kind in with_rate if kind != "open"]
    clean, labels, classes = source.y, source.y, np.arange(len(source.classes))
    hit = np.zeros(len(source), dtype=np.int8)
    if "open" in kinds:
        task = open_set(source.y, len(classes), options.noise / len(with_rate), draw)
        clean, labels, classes = task.clean, task.observed, task.classes
        hit[clean < 0] = code("open")
    if "given" in kinds:
        labels = read_labels(options.noise_file, source)
        hit[partition.order[(labels != clean)[partition.order]]] = code("given")
    rates = client_rates(options, len(partition), rng.stream(seed, "rates"))
    rows_of: Mapping[Kind, IntArray] = {}
    lookalikes = None
    if _ALIKE & set(kinds) and (rates.any() or options.validation_noise or options.test_noise):
        rows = np.sort(partition.order[clean[partition.order] >= 0])
        lookalikes = look(source.x, clean, rows, len(classes), seed)
    if per_sample:
        share = len(per_sample) / len(with_rate)
        rows_of = strike(partition, rates * share, per_sample, hit, draw, lookalikes)
        labels = _flip(labels, len(classes), rows_of, options, draw, lookalikes)
    for kind, rows in rows_of.items():
        hit[rows] = code(kind)
    spoiled_rows = np.sort(rows_of.get("attribute", _NO_ROWS))
    corruption, spoiled = None, None
    if "attribute" in kinds:
        scale = measure(source.x, np.sort(partition.order))
        corruption = Corruption(chosen(source.x, options.corruptions), options.severity, scale)
    if corruption is not None and len(spoiled_rows):
        spoiled = corrupt(source.x, spoiled_rows, corruption, seed)
    truth = Truth(clean, hit)
    return Observed(labels, truth, classes, spoiled_rows, spoiled, corruption, lookalikes)


def add_noise_to_set(
    shard: Shard, purpose: str, clients: Observed, options: DataOptions, seed: int
) -> Shard:
    """The server's set ("validation") or the test set: only classes of the task, in their new
    numbers, and with the clients' kind of noise where somebody asks for it.

    Classes are similar as among the clients; mistakes are those of a weak model on this set.
    """
    labels = renumbered(shard.y.numpy(), clients.classes)
    if (labels < 0).any():
        stays = labels >= 0
        if not stays.any():
            raise DataError(f"open-set noise leaves nothing of {_SETS[purpose]}")
        shard, labels = Shard(shard.x[stays], shard.y[stays], shard.ids[stays]), labels[stays]
    rate, x = getattr(options, f"{purpose}_noise"), shard.x
    if rate:
        draw = rng.stream(seed, "noise", purpose)
        whole = Partition(np.arange(len(shard)), np.array([0, len(shard)]))
        hit = np.zeros(len(shard), dtype=np.int8)
        alike, classes = clients.lookalikes, len(clients.classes)
        if alike is not None and "mistakes" in options.kinds:
            alike = replace(look(x.numpy(), labels, whole.order, classes, seed), odds=alike.odds)
        rows_of = strike(whole, np.array([rate]), options.kinds, hit, draw, alike)
        labels = _flip(labels, classes, rows_of, options, draw, alike)
        rows = rows_of.get("attribute", _NO_ROWS)
        if clients.corruption is not None and len(rows):
            x = x.clone()
            spoiled = corrupt(x.numpy(), rows, clients.corruption, seed, purpose)
            x[torch.from_numpy(rows)] = torch.from_numpy(np.asarray(spoiled))
    return Shard(x, torch.from_numpy(labels), shard.ids)


def client_rates(options: DataOptions, clients: int, draw: np.random.Generator) -> FloatArray:
    """(N,) each client's rate: as listed, or drawn from noise ± spread, kept in [0, 1)."""
    if options.noise_rates is not None:
        if len(options.noise_rates) != clients:
            raise DataError(
                f"data.noise_rates has {len(options.noise_rates)} rates, but there are {clients} "
                "clients"
            )
        return np.array(options.noise_rates)
    drawn = options.noise + options.noise_spread * draw.uniform(-1, 1, clients)
    return np.clip(drawn, 0, np.nextafter(1, 0))


def strike(
    partition: Partition,
    rates: FloatArray,
    kinds: Sequence[Kind],
    hit: npt.NDArray[np.int8],
    draw: np.random.Generator,
    lookalikes: Lookalikes | None = None,
) -> dict[Kind, IntArray]:
    """The rows that each kind hits: of every client i, round(rates[i] · n_i) samples in all, shared
    evenly.

    `round` is Python's (halves to even); what does not divide evenly goes to the kinds named first.
    Samples that some noise has hit before (hit (n,) not 0, or by a kind named earlier) are left
    alone. Which of the others are hit is drawn, except for "mistakes": those with the largest
    `leaning` are, and draws decide between equal ones.
    """
    sizes, owners = partition.sizes, partition.owners
    totals = np.array(
        [round(float(rate) * int(size)) for rate, size in zip(rates, sizes, strict=True)],
        dtype=np.int64,
    )
    taken = hit[partition.order] != 0
    free = sizes - np.bincount(owners[taken], minlength=len(sizes))
    if (totals > free).any():
        client = int((totals > free).argmax())
        raise DataError(
            f"client {client} has only {free[client]} of {sizes[client]} samples that no other "
            f"noise has hit, and {totals[client]} more are to be; lower data.noise"
        )
    # One random key per sample; within each client, the lowest keys are hit.
    keys = draw.random(len(owners))
    rank = np.arange(len(owners)) - np.repeat(partition.offsets[:-1], sizes)
    rows = {}
    for place, kind in enumerate(kinds):
        first = np.zeros(len(owners), dtype=np.float32)
        if kind == "mistakes" and lookalikes is not None:
            first = -lookalikes.leaning[partition.order]
        ranked = np.lexsort((keys, first, taken, owners))
        counts = totals // len(kinds) + (place < totals % len(kinds))
        places = ranked[rank < np.repeat(counts, sizes)]
        rows[kind] = partition.order[places]
        taken[places] = True
    return rows


def _flip(
    labels: IntArray,
    classes: int,
    rows_of: Mapping[Kind, IntArray],
    options: DataOptions,
    draw: np.random.Generator,
    lookalikes: Lookalikes | None,
) -> IntArray:
    """The labels after every kind that flips some."""
    flipped = labels.copy()
    for kind, rows in rows_of.items():
        if kind != "attribute":
            flipped[rows] = _flip_of(kind, classes, options, lookalikes)(labels[rows], draw)
        if kind == "mistakes" and lookalikes is not None:
            # where a weak model has nothing to say, any other class
            other = lookalikes.other[rows]
            flipped[rows] = np.where(other < 0, flipped[rows], other)
    return flipped


def _flip_of(kind: Kind, classes: int, options: DataOptions, lookalikes: Lookalikes | None) -> Flip:
    if kind == "confusion":
        return confusion(read_matrix(options.noise_file, classes))
    if kind == "similar" and lookalikes is not None:
        return confusion(lookalikes.odds)
    return pair(classes) if kind == "pair" else uniform(classes)


def read_labels(path: str | None, source: Source) -> IntArray:
    """(n,) the observed labels, by class name, or by number where no line is a name."""
    if path is None:
        raise ConfigError(
            "noise_kind 'given' needs data.noise_file: a file with the observed label of every "
            "sample, one per line"
        )
    numbers = {str(name): number for number, name in enumerate(source.classes)}
    names = source.lines(path, "data.noise_file")
    if not any(name in numbers for name in names) and all(name.isdigit() for name in names):
        numbers = {str(number): number for number in numbers.values()}
    unknown = next((name for name in names if name not in numbers), None)
    if unknown is not None:
        raise DataError(
            f"{path} has the label {unknown!r}, which is not a class of "
            f"{source.name}{did_you_mean(unknown, numbers)}"
        )
    return np.array([numbers[name] for name in names], dtype=np.int64)


def read_matrix(path: str | None, classes: int) -> FloatArray:
    """(C, C) numbers separated by spaces or commas, a row per line."""
    if path is None:
        raise ConfigError(
            "noise_kind 'confusion' needs data.noise_file: a table of numbers, a row per class"
        )
    lines = read_text(path, "data.noise_file").replace(",", " ").splitlines()
    try:
        matrix = np.array(
            [[float(cell) for cell in line.split()] for line in lines if line.strip()]
        )
    except ValueError as error:
        raise DataError(f"{path} (data.noise_file) is not a table of numbers ({error})") from None
    if matrix.shape != (classes, classes):
        raise DataError(
            f"{path} (data.noise_file) must be a table of {classes} x {classes} numbers, got shape "
            f"{matrix.shape}"
        )
    return matrix
