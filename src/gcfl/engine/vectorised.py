"""Many clients trained at once: every tensor of the model gets the clients as its first dimension, through torch.func.vmap.

The same selectors and the same rules as in the loop, over clients of any sizes: each client's batches are laid out in a
table, steps after steps, padded where a batch is short, and clients that have finished drop out of the stack. Results
agree with the loop to rounding (1e-5), not to the bit, so this is asked for with engine.vectorised and counts as another
run. Made for small models, where a client's arithmetic is less than the cost of calling for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from gcfl.engine.client import ClientSide
from gcfl.engine.together import Later, Together, View
from gcfl.engine.transport import ClientMemory
from gcfl.errors import ModelError, one_line
from gcfl.methods import Setting
from gcfl.methods.batched import Stack, train_stack
from gcfl.methods.parts import Meter
from gcfl.methods.replies import Stacked
from gcfl.methods.training import learning_rate
from gcfl.types import Broadcast, Coreset, Failure, Groups, IntArray, Tree

_STACK_NUMBERS = 1 << 25  # so many numbers of inputs and weights in one stack, about 128 MB
_REFUSED = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.RNNBase, nn.MultiheadAttention)


def check(setting: Setting) -> None:
    """Refuse layers whose result for one sample depends on the others, or on chance."""
    for name, part in setting.network.module.named_modules():
        if isinstance(part, _REFUSED):
            raise ModelError(
                f"engine.vectorised cannot train the layer {name!r} ({type(part).__name__}), which mixes samples or draws at "
                "random; leave it out, or run with engine.vectorised = false"
            )


@dataclass(frozen=True)
class _Chosen:
    """One client's part in the round: what it trains on, what it tells and remembers of that, and what choosing cost."""

    coreset: Coreset
    tells: Tree
    remembers: Tree
    forward: int


class Vectorised(ClientMemory):
    """All clients of a round, in stacks of similar sizes, in this process."""

    def __init__(self, side: ClientSide) -> None:
        super().__init__()
        check(side.setting)
        self._side = side

    def exchange(self, broadcasts: Mapping[int, Broadcast]) -> Stacked:
        clients = sorted(broadcasts)
        first = broadcasts[clients[0]]
        device = self._side.setting.network.device
        model = {name: tensor.to(device) for name, tensor in first.model.items()}
        clock = _Clock()
        chosen, failures = self._select(clients, broadcasts, model)
        select_cost = clock.lap(len(clients))
        trained = [self._train(stack, chosen, broadcasts, model, first.round) for stack in self._stacks(chosen)]
        train_cost = clock.lap(len(clients))
        return self._answer(chosen, failures, trained, model, select_cost, train_cost)

    def _select(
        self, clients: list[int], broadcasts: Mapping[int, Broadcast], model: Tree
    ) -> tuple[dict[int, _Chosen], dict[int, Failure]]:
        """Every client's choice."""
        method, data = self._side.method, self._side.data
        sizes = data.partition.sizes
        if method.select.whole:
            own = sizes[clients].tolist()
            alike = {size: _Chosen(Coreset(np.arange(size), np.ones(size)), {}, {}, 0) for size in set(own)}
            return {client: alike[size] for client, size in zip(clients, own, strict=True)}, {}
        due = [client for client in clients if "select" in broadcasts[client].payload]
        together, asked = Together(self._side, due, model), set(due)
        chosen: dict[int, _Chosen] = {}
        failures: dict[int, Failure] = {}
        for client in clients:
            broadcast = broadcasts[client]
            if client not in asked:
                kept = method.select.kept(self.of(client).get("select", {}), int(sizes[client]))
                if kept is not None:
                    chosen[client] = _Chosen(kept.coreset, kept.tells, kept.remembers, 0)
                    continue
            shared = together if client in asked else None
            view = View(self._side.setting, broadcast.round, client, model, Later(data, client), Meter(), shared)
            try:
                selection = method.select.select(view, broadcast.payload.get("select"), self.of(client).get("select", {}))
            except Exception as error:  # a client that fails must not take the round with it
                failures[client] = Failure(one_line(error))
                continue
            chosen[client] = _Chosen(selection.coreset, selection.tells, selection.remembers, view.meter.forward)
        return chosen, failures

    def _stacks(self, chosen: Mapping[int, _Chosen]) -> list[list[int]]:
        """Clients of similar sizes together, those with a memory of the local rule apart from those without."""
        weights = sum(tensor.numel() for tensor in self._side.setting.network.tree().values())
        sample = self._side.data.x[0].numel()
        known = np.array([bool(self._states and self.of(client).get("local")) for client in chosen])
        sizes = np.array([len(one.coreset.indices) for one in chosen.values()])
        clients = np.array(list(chosen))
        stacks: list[list[int]] = []
        for group in (np.flatnonzero(~known), np.flatnonzero(known)):
            rest = group[np.argsort(-sizes[group], kind="stable")]
            while len(rest):
                longest = int(sizes[rest[0]])
                count = max(1, _STACK_NUMBERS // (longest * sample + 4 * weights))
                # A stack is as long as its longest client: a new one where padding would be half of it.
                count = min(count, int((2 * sizes[rest] >= longest).sum()))
                stacks.append(clients[rest[:count]].tolist())
                rest = rest[count:]
        return stacks

    def _train(
        self, stack: list[int], chosen: Mapping[int, _Chosen], broadcasts: Mapping[int, Broadcast], model: Tree, round: int
    ) -> Stack:
        side = self._side
        setting, select, partition = side.setting, side.method.select, side.data.partition
        own = [chosen[client].coreset for client in stack]
        sizes = np.array([len(coreset.indices) for coreset in own])
        inside = np.concatenate([coreset.indices for coreset in own])
        chosen_rows = torch.from_numpy(partition.order[np.repeat(partition.offsets[stack], sizes) + inside])
        return train_stack(
            setting,
            side.method.local,
            round,
            np.array(stack),
            setting.network.prepare(side.data.x.index_select(0, chosen_rows)),
            side.data.y.index_select(0, chosen_rows).to(setting.network.device),
            sizes,
            [coreset.weights for coreset in own] if select.weighted else None,
            model,
            _shared([broadcasts[client].payload.get("local", {}) for client in stack]),
            _stacked([self.of(client).get("local", {}) for client in stack]),
            learning_rate(setting.train, round, setting.rounds),
        )

    def _answer(
        self,
        chosen: Mapping[int, _Chosen],
        failures: dict[int, Failure],
        trained: list[Stack],
        model: Tree,
        select_cost: tuple[float, float],
        train_cost: tuple[float, float],
    ) -> Stacked:
        """The stacks put together, sorted by client."""
        clients: IntArray = np.concatenate([stack.clients for stack in trained]) if trained else np.empty(0, dtype=np.int64)
        order = np.argsort(clients)
        places = torch.from_numpy(order)

        def column(values: list[torch.Tensor]) -> torch.Tensor:
            return (values[0] if len(values) == 1 else torch.cat(values))[places].cpu()

        sent = self._side.setting.network.sent if trained else ()
        delta = {name: column([stack.local[name] - model[name] for stack in trained]) for name in sent}
        tells = {name: column([stack.tells[name] for stack in trained]) for name in (trained[0].tells if trained else ())}
        clients = clients[order]
        self._remember(trained, chosen)
        select = _stacked([chosen[client].tells for client in clients.tolist()])
        steps = np.concatenate([stack.steps for stack in trained])[order] if trained else np.empty(0)
        forward = np.concatenate([stack.forward for stack in trained])[order] if trained else np.empty(0)
        seen = np.concatenate([stack.seen for stack in trained])[order] if trained else np.empty(0)
        even = np.ones(len(clients))
        metrics = {
            "loss": np.concatenate([stack.loss for stack in trained])[order] if trained else np.empty(0),
            "forward": forward + np.array([chosen[client].forward for client in clients.tolist()], dtype=np.float64),
            "backward": seen,
            "steps": steps,
            "select_cpu": even * select_cost[0],
            "select_wall": even * select_cost[1],
            "train_cpu": even * train_cost[0],
            "train_wall": even * train_cost[1],
        }
        payload: Groups = {name: tree for name, tree in (("select", select), ("local", tells)) if tree}
        examples = np.concatenate([stack.examples for stack in trained])[order] if trained else np.empty(0, dtype=np.int64)
        return Stacked(clients, delta, payload, examples, metrics, failures)

    def _remember(self, trained: list[Stack], chosen: Mapping[int, _Chosen]) -> None:
        """What each client would keep, once the server has accepted its answer."""
        for stack in trained:
            if not stack.remembers and self._side.method.select.whole:
                self._pending.update({client: {} for client in stack.clients.tolist()})
                continue
            for place, client in enumerate(stack.clients.tolist()):
                local = {name: tensor[place] for name, tensor in stack.remembers.items()}
                groups = {"select": chosen[client].remembers, "local": local}
                self._pending[client] = {name: tree for name, tree in groups.items() if tree}

    def close(self) -> None:
        pass


class _Clock:
    """CPU-seconds and wall-clock seconds of this thread, shared evenly by the clients."""

    def __init__(self) -> None:
        self._last = (time.thread_time(), time.perf_counter())

    def lap(self, clients: int) -> tuple[float, float]:
        now = (time.thread_time(), time.perf_counter())
        spent = (now[0] - self._last[0]) / clients, (now[1] - self._last[1]) / clients
        self._last = now
        return spent


def _shared(trees: list[Tree]) -> tuple[Tree, bool]:
    """What all were told, and whether each was told something of its own."""
    if all(tree is trees[0] or not tree for tree in trees):
        return trees[0], False
    return _stacked(trees), True


def _stacked(trees: list[Tree]) -> Tree:
    return {name: torch.stack([tree[name] for tree in trees]) for name in (trees[0] if trees else ())}
