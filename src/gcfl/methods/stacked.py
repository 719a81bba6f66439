"""Answers of many clients trained at once, as one stack: rules need not know."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gcfl.base import codec
from gcfl.base.data_types import FloatArray, IntArray, Observed, Tree, Update
from gcfl.methods.replies import METRIC_BYTES, Problem, Replies, float_of, products


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
            name: torch.tensordot(weights.to(float_of(tensor)), tensor.to(float_of(tensor)), dims=1)
            for name, tensor in self._delta.items()
        }

    def rows(self, name: str) -> Tensor:
        return self._delta[name]

    def scaled(self, factors: FloatArray, names: Collection[str], part: str = "") -> Replies:
        tree = self._payload[part] if part else self._delta
        by_client = torch.from_numpy(factors)
        changed = dict(tree)
        for name in names:
            across = by_client.reshape(-1, *(1,) * (tree[name].ndim - 1))
            changed[name] = tree[name] * across.to(tree[name])
        return Stacked(
            self._clients,
            self._delta if part else changed,
            {**self._payload, part: changed} if part else self._payload,
            self._examples,
            self._metrics,
            self.failures,
            self.observed,
        )

    def products(self, direction: Tree) -> tuple[FloatArray, FloatArray]:
        return products(self._delta, direction)

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
        return {**sent, "metrics": METRIC_BYTES * (len(self._metrics) + 1) * len(self)}


def _at(tree: Tree, place: int | Tensor) -> Tree:
    return {name: tensor[place] for name, tensor in tree.items()}
