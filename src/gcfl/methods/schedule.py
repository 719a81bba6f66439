"""Who takes which of its samples in which step, for many clients at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gcfl.base import rng
from gcfl.base.data_types import FloatArray, IntArray
from gcfl.methods.options import TrainOptions


def schedule(
    seed: int,
    round: int,
    clients: IntArray,
    sizes: IntArray,
    options: TrainOptions,
    ordered: bool = False,
) -> tuple[npt.NDArray[np.int64], IntArray]:
    """(m, S, batch) which of its samples each client takes in each step, -1 where a batch is short;
    (m,) how many steps.

    The same orders as `training.orders` gives, in one draw per pass for all clients. ordered: also
    where a batch is a client's whole set, because places in it are drawn for.
    """
    batch = min(options.batch, int(sizes.max()))
    per_pass = -(-sizes // options.batch)
    passes = np.maximum(options.epochs, -(-options.min_steps // per_pass))
    steps = np.full(len(sizes), options.steps) if options.steps else passes * per_pass
    table = np.full((len(sizes), int(steps.max()), batch), -1, dtype=np.int64)
    # Every batch is a client's whole set, whose order does not matter.
    if int(per_pass.max()) == 1 and not ordered:
        table[:] = np.where(np.arange(batch) < sizes[:, None], np.arange(batch), -1)[:, None]
        table[np.arange(table.shape[1]) >= steps[:, None]] = -1
        return table, steps
    bases = rng.keys(clients.tolist(), seed, "order", round)
    for number in range(int((-(-steps // per_pass)).max())):
        orders = rng.orders(bases, number, sizes)
        for place in range(int(per_pass.max())):
            step = number * per_pass + place
            now = np.flatnonzero((place < per_pass) & (step < steps))
            part = orders[now, place * options.batch : place * options.batch + batch]
            table[now, step[now], : part.shape[1]] = np.where(part < sizes[now, None], part, -1)
    return table, steps


def rows_of(
    sizes: IntArray, weights: list[FloatArray] | None
) -> tuple[IntArray, IntArray, Tensor | None]:
    """(m, longest) the rows of x that each client's samples are, (m,) how many count, and every
    row's weight where used.

    Weights are scaled to mean 1 per client, and samples of weight 0 do not count.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    if weights is None:
        return starts[:, None] + np.arange(int(sizes.max())), sizes, None
    kept, scale = [], []
    for own in weights:
        positive = np.flatnonzero(own > 0)
        kept.append(positive if len(positive) else np.arange(len(own)))
        scale.append(own / own[positive].mean() if len(positive) else np.ones(len(own)))
    counts = np.array([len(own) for own in kept])
    rows = np.zeros((len(kept), int(counts.max())), dtype=np.int64)
    for place, counted in enumerate(kept):
        rows[place, : len(counted)] = starts[place] + counted
    return rows, counts, torch.from_numpy(np.concatenate(scale)).float()
