"""The clients' answers of one round, one by one or stacked: nobody needs to know which.

Rules ask for sums and columns; the round asks which answers are valid and what they cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gcfl.base import codec
from gcfl.base.data_types import FloatArray, IntArray, Observed, Tree, Update

_METRIC_BYTES = 8  # a number in a message
Problem = Callable[[int, Update], str | None]  # why an answer of a client cannot be used


class Replies(Mapping[int, Update]):
    """Updates by client, sorted by client.

    failures: clients that gave none, and why. observed: what clients of a simulation trained on,
    for the observer alone; a client that is missing trained on all its samples.
    """

    def __init__(
        self,
        updates: Mapping[int, Update],
        failures: Mapping[int, str] | None = None,
        observed: Mapping[int, Observed] | None = None,
    ) -> None:
        self._updates = dict(sorted(updates.items()))
        self.failures = dict(failures or {})
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

    def products(self, direction: Tree) -> tuple[FloatArray, FloatArray]:
        """(⟨Δ_i, d⟩ (m,), ‖Δ_i‖ (m,)) over the tensors of a direction d, in float64."""
        found = [
            _products({name: one.delta[name].unsqueeze(0) for name in direction}, direction)
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
        return Replies({client: update for client, update in self.items() if client in clients})

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
            sent["metrics"] += _METRIC_BYTES * (len(update.metrics) + 1)
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


class Stacked(Replies):
    """Answers of many clients trained at once: tensors with clients as first dimension."""

    def __init__(
        self,
        clients: IntArray,
        delta: Tree,
        payload: Mapping[str, Tree],
        examples: IntArray,
        metrics: Mapping[str, FloatArray],
        failures: Mapping[int, str] | None = None,
        observed: Mapping[int, Observed] | None = None,
    ) -> None:
        super().__init__({}, failures, observed)
        self._clients = clients
        self._delta, self._payload = delta, payload
        self._examples, self._metrics = examples, metrics
        self._place = {client: place for place, client in enumerate(clients.tolist())}

    def __getitem__(self, client: int) -> Update:
        place = self._place[client]
        return Update(
            _at(self._delta, place),
            {part: _at(tree, place) for part, tree in self._payload.items()},
            int(self._examples[place]),
            {name: float(values[place]) for name, values in self._metrics.items()},
        )

    def __iter__(self) -> Iterator[int]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)

    @property
    def clients(self) -> IntArray:
        return self._clients

    @property
    def examples(self) -> IntArray:
        return self._examples

    def metric(self, name: str) -> FloatArray:
        return self._metrics[name]

    def column(self, part: str, name: str) -> Tensor:
        return self._payload[part][name]

    def mean(self, by_examples: bool) -> Tree:
        shares = self._examples if by_examples else np.ones(len(self))
        weights = torch.from_numpy(shares / shares.sum())
        return {
            name: torch.tensordot(
                weights.to(_float_of(tensor)), tensor.to(_float_of(tensor)), dims=1
            )
            for name, tensor in self._delta.items()
        }

    def products(self, direction: Tree) -> tuple[FloatArray, FloatArray]:
        return _products(self._delta, direction)

    def sum(self, part: str, name: str) -> Tensor:
        return self._payload[part][name].sum(dim=0)

    def among(self, clients: Collection[int]) -> Replies:
        return self._only(np.isin(self._clients, list(clients)))

    def readable(self, problem: Problem) -> tuple[Replies, dict[int, str]]:
        """They are right by construction."""
        return self, {}

    def checked(self, problem: Problem) -> tuple[Replies, dict[int, str]]:
        """Names and shapes are right by construction: only what is not finite is looked at."""
        finite = np.ones(len(self), dtype=bool)
        for tree in (self._delta, *self._payload.values()):
            for tensor in tree.values():
                totals = tensor.reshape(len(self), -1).sum(dim=1, dtype=torch.float64)
                finite &= torch.isfinite(totals).numpy()
        bad = {one: problem(one, self[one]) or "" for one in self._clients[~finite].tolist()}
        left_out = dict(sorted({**self.failures, **bad}.items()))
        return (self._only(finite) if bad else self), left_out

    def _only(self, chosen: npt.NDArray[np.bool_]) -> Stacked:
        rows = torch.from_numpy(np.flatnonzero(chosen))
        return Stacked(
            self._clients[chosen],
            _at(self._delta, rows),
            {part: _at(tree, rows) for part, tree in self._payload.items()},
            self._examples[chosen],
            {name: values[chosen] for name, values in self._metrics.items()},
            observed=self.observed,
        )

    def bytes(self) -> dict[str, int]:
        sent = {"model": codec.size(self._delta)}
        sent |= {name: codec.size(tree) for name, tree in self._payload.items() if tree}
        return {**sent, "metrics": _METRIC_BYTES * (len(self._metrics) + 1) * len(self)}


def _products(delta: Tree, direction: Tree) -> tuple[FloatArray, FloatArray]:
    """Of deltas (m, ...) with a direction (...): inner products (m,) and norms (m,)."""
    count = len(next(iter(delta.values())))
    inner, squares = torch.zeros(2, count, dtype=torch.float64)
    for name, along in direction.items():
        rows = delta[name].reshape(count, -1).double()  # twice the size, so one tensor at a time
        inner += rows @ along.flatten().to(rows)
        squares += rows.square().sum(dim=1)
    return inner.numpy(), squares.sqrt().numpy()


def _at(tree: Tree, place: int | Tensor) -> Tree:
    return {name: tensor[place] for name, tensor in tree.items()}


def _float_of(tensor: Tensor) -> torch.dtype:
    return tensor.dtype if tensor.is_floating_point() else torch.float64
