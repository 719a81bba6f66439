"""The clients' answers of one round, one by one or stacked: rules ask for sums and columns, and
need not know which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gcfl.base.data_types import Failure, FloatArray, IntArray, Tree, Update


class Replies(Mapping[int, Update]):
    """Updates by client, sorted by client."""

    def __init__(self, updates: Mapping[int, Update]) -> None:
        self._updates = dict(sorted(updates.items()))

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
        """(m,) one of the plain numbers that clients tell."""
        return np.array([update.metrics[name] for update in self.values()], dtype=np.float64)

    def column(self, part: str, name: str) -> Tensor:
        """(m, ...) what the clients told of one tensor of one part."""
        return torch.stack([update.payload[part][name] for update in self.values()])

    def mean(self, by_examples: bool) -> Tree:
        """The weighted mean of the deltas, summed in the order of the clients; whole numbers are
        averaged in float64.
        """
        return mean_delta(list(self.values()), by_examples)

    def told(self, part: str, name: str) -> Tensor:
        """The sum over clients of what they told of one tensor of one part."""
        first, *others = (update.payload[part][name] for update in self.values())
        total = first.clone()
        for tensor in others:
            total += tensor
        return total

    def plus(self, client: int, update: Update) -> Replies:
        """One more."""
        return Replies({**self, client: update})


def mean_delta(updates: list[Update], by_examples: bool) -> Tree:
    """The weighted mean of the deltas, summed in the order given; whole numbers are averaged in
    float64.
    """
    shares = [float(update.examples) if by_examples else 1.0 for update in updates]
    total = sum(shares)
    mean: Tree = {}
    for update, share in zip(updates, shares, strict=True):
        for name, delta in update.delta.items():
            part = delta if delta.is_floating_point() else delta.double()
            mean[name] = (
                mean[name].add_(part, alpha=share / total)
                if name in mean
                else part * (share / total)
            )
    return mean


class Stacked(Replies):
    """Answers of many clients trained at once: each tensor with the clients as its first
    dimension.
    """

    def __init__(
        self,
        clients: IntArray,
        delta: Tree,
        payload: Mapping[str, Tree],
        examples: IntArray,
        metrics: Mapping[str, FloatArray],
        failures: Mapping[int, Failure] | None = None,
    ) -> None:
        self.failures = failures or {}
        self._clients = clients
        self.delta, self.payload = delta, payload
        self._examples, self.metrics = examples, metrics
        self._place = {client: place for place, client in enumerate(clients.tolist())}

    def __getitem__(self, client: int) -> Update:
        place = self._place[client]
        return Update(
            {name: tensor[place] for name, tensor in self.delta.items()},
            {
                part: {name: tensor[place] for name, tensor in tree.items()}
                for part, tree in self.payload.items()
            },
            int(self._examples[place]),
            {name: float(values[place]) for name, values in self.metrics.items()},
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
        return self.metrics[name]

    def column(self, part: str, name: str) -> Tensor:
        return self.payload[part][name]

    def mean(self, by_examples: bool) -> Tree:
        shares = self._examples if by_examples else np.ones(len(self))
        weights = torch.from_numpy(shares / shares.sum())
        return {
            name: torch.tensordot(
                weights.to(_float_of(tensor)), tensor.to(_float_of(tensor)), dims=1
            )
            for name, tensor in self.delta.items()
        }

    def told(self, part: str, name: str) -> Tensor:
        return self.payload[part][name].sum(dim=0)

    def only(self, keep: npt.NDArray[np.bool_]) -> Stacked:
        """Those where keep (m,) holds."""
        rows = torch.from_numpy(np.flatnonzero(keep))
        return Stacked(
            self._clients[keep],
            {name: tensor[rows] for name, tensor in self.delta.items()},
            {
                part: {name: tensor[rows] for name, tensor in tree.items()}
                for part, tree in self.payload.items()
            },
            self._examples[keep],
            {name: values[keep] for name, values in self.metrics.items()},
        )


def _float_of(tensor: Tensor) -> torch.dtype:
    return tensor.dtype if tensor.is_floating_point() else torch.float64
