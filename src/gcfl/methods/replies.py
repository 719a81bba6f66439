"""The clients' answers of one round; in `stacked.py`, the same of many trained at once.

Rules ask for sums and columns; the round asks which answers are valid and what they cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gcfl.base import codec
from gcfl.base.data_types import FloatArray, IntArray, Observed, Tree, Update
from gcfl.base.text import brief

METRIC_BYTES = 8  # a number in a message
Problem = Callable[[int, Update], str | None]  # why an answer of a client cannot be used


class Replies(Mapping[int, Update]):
    """Updates by client, sorted by client.

    failures: clients that gave none, and why, cut short. observed: what clients of a simulation
    trained on, for the observer alone; a client that is missing trained on all its samples.
    """

    def __init__(
        self,
        updates: Mapping[int, Update],
        failures: Mapping[int, str] | None = None,
        observed: Mapping[int, Observed] | None = None,
    ) -> None:
        self._updates = dict(sorted(updates.items()))
        self.failures = {client: brief(why) for client, why in (failures or {}).items()}
        self.observed = dict(sorted((observed or {}).items()))

    def __getitem__(self, client: int) -> Update:
        return self._updates[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._updates)

    def __len__(self) -> int:
        return len(self._updates)

    @property
    def clients(self) -> IntArray:
        return np.fromiter(self, dtype=np.int64, count=len(self))

    @property
    def examples(self) -> IntArray:
        """(m,) how many samples each trained on."""
        return np.array([update.examples for update in self.values()], dtype=np.int64)

    def metric(self, name: str) -> FloatArray:
        """(m,) one of the plain numbers that clients send."""
        return np.array([update.metrics[name] for update in self.values()], dtype=np.float64)

    def column(self, part: str, name: str) -> Tensor:
        """(m, ...) what the clients sent of one tensor of one part."""
        return torch.stack([update.payload[part][name] for update in self.values()])

    def mean(self, by_examples: bool) -> Tree:
        """The weighted mean of the deltas, in the order of the clients."""
        return mean_delta(list(self.values()), by_examples)

    def shares(self, by_examples: bool) -> FloatArray:
        """(m,) each one's weight in that mean: n_i / Σ n, or 1/m."""
        counts = self.examples.astype(np.float64) if by_examples else np.ones(len(self))
        shares: FloatArray = counts / counts.sum()
        return shares

    def rows(self, name: str) -> Tensor:
        """(m, ...) one tensor of the updates."""
        return torch.stack([update.delta[name] for update in self.values()])

    def combination(self, weights: FloatArray) -> Tree:
        """Σ_i w_i Δ_i; whole numbers in float64."""
        found = {}
        for name in next(iter(self.values())).delta:
            rows = self.rows(name)
            rows = rows.to(float_of(rows))
            found[name] = torch.tensordot(torch.from_numpy(weights).to(rows), rows, dims=1)
        return found

    def gram(self, names: Iterable[str]) -> FloatArray:
        """(m, m) inner products ⟨Δ_i, Δ_j⟩ over those tensors, in float64."""
        total = torch.zeros(len(self), len(self), dtype=torch.float64)
        for name in names:
            flat = self.rows(name).reshape(len(self), -1).double()
            total += flat @ flat.T
        found: FloatArray = total.numpy()
        return found

    def norms(self, names: Iterable[str], part: str = "") -> FloatArray:
        """(m,) of those tensors of the updates, or of what a part adds, in float64."""
        squares = np.zeros(len(self))
        for name in names:
            rows = (self.column(part, name) if part else self.rows(name)).reshape(len(self), -1)
            squares += torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).numpy() ** 2
        found: FloatArray = np.sqrt(squares)
        return found

    def scaled(self, factors: FloatArray, names: Collection[str], part: str = "") -> Replies:
        """Those tensors of the updates, or of what a part adds, times a factor for each client."""
        updates = {}
        for (client, one), factor in zip(self.items(), factors.tolist(), strict=True):
            tree = one.payload[part] if part else one.delta
            changed = {**tree, **{name: tree[name] * factor for name in names}}
            updates[client] = (
                replace(one, payload={**one.payload, part: changed})
                if part
                else replace(one, delta=changed)
            )
        return Replies(updates, self.failures, self.observed)

    def products(self, direction: Tree) -> tuple[FloatArray, FloatArray]:
        """(⟨Δ_i, d⟩ (m,), ‖Δ_i‖ (m,)) over the tensors of a direction d, in float64."""
        found = [
            products({name: one.delta[name].unsqueeze(0) for name in direction}, direction)
            for one in self.values()
        ]
        inner, norms = (np.concatenate(each) for each in zip(*found, strict=True))
        return inner, norms

    def sum(self, part: str, name: str) -> Tensor:
        """The sum over clients of what they sent of one tensor of one part."""
        first, *others = (update.payload[part][name] for update in self.values())
        total = first.clone()
        for tensor in others:
            total += tensor
        return total

    def among(self, clients: Collection[int]) -> Replies:
        """Those of some clients."""
        kept = {client: update for client, update in self.items() if client in clients}
        return Replies(kept, {}, self.observed)

    def plus(self, client: int, update: Update) -> Replies:
        """One more."""
        return Replies({**self, client: update})

    def checked(self, problem: Problem) -> tuple[Replies, dict[int, str]]:
        """The valid ones, and by client why another is left out: a failure, or a problem."""
        wrong = {client: problem(client, update) for client, update in self.items()}
        bad = {client: text for client, text in wrong.items() if text is not None}
        valid = {client: update for client, update in self.items() if client not in bad}
        return Replies(valid, {}, self.observed), dict(sorted({**self.failures, **bad}.items()))

    def readable(self, problem: Problem) -> tuple[Replies, dict[int, str]]:
        """The same, by a look at names and plain numbers alone."""
        return self.checked(problem)

    def bytes(self) -> dict[str, int]:
        """What was sent, by payload name, summed over clients."""
        sent: Counter[str] = Counter()
        for update in self.values():
            sent["model"] += codec.size(update.delta)
            sent.update({name: codec.size(tree) for name, tree in update.payload.items()})
            sent["metrics"] += METRIC_BYTES * (len(update.metrics) + 1)
        return dict(sent)


def mean_delta(updates: list[Update], by_examples: bool) -> Tree:
    """The weighted mean of the deltas, in the order given; whole numbers in float64."""
    shares = [float(update.examples) if by_examples else 1.0 for update in updates]
    total = sum(shares)
    mean: Tree = {}
    for update, share in zip(updates, shares, strict=True):
        for name, delta in update.delta.items():
            part = delta if delta.is_floating_point() else delta.double()
            if name in mean:
                mean[name].add_(part, alpha=share / total)
            else:
                mean[name] = part * (share / total)
    return mean


def products(delta: Tree, direction: Tree) -> tuple[FloatArray, FloatArray]:
    """Of deltas (m, ...) with a direction (...): inner products (m,) and norms (m,)."""
    count = len(next(iter(delta.values())))
    inner, squares = torch.zeros(2, count, dtype=torch.float64)
    for name, along in direction.items():
        rows = delta[name].reshape(count, -1).double()  # twice the size, so one tensor at a time
        inner += rows @ along.flatten().to(rows)
        squares += rows.square().sum(dim=1)
    return inner.numpy(), squares.sqrt().numpy()


def float_of(tensor: Tensor) -> torch.dtype:
    return tensor.dtype if tensor.is_floating_point() else torch.float64
