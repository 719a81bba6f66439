"""Many clients trained at once: every tensor of the model gets the clients as its first dimension,
through torch.func.vmap.

The same selectors and the same rules as in the loop, over clients of any sizes: each client's
batches are laid out in a table, steps after steps, padded where a batch is short, and clients that
have finished drop out of the stack. Results agree with the loop to rounding (1e-5), not to the bit,
so this is asked for with engine.vectorised and counts as another run. Made for small models, where
a client's arithmetic is less than the cost of calling for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from gcfl.base import rng
from gcfl.base.data_types import Broadcast, Coreset, Failure, Groups, IntArray, Tree
from gcfl.base.errors import ModelError, one_line
from gcfl.engine.client import ClientSide
from gcfl.engine.together import Later, Together, View
from gcfl.engine.transport import ClientMemory
from gcfl.methods import Setting
from gcfl.methods.batched import Stack, train_stack
from gcfl.methods.parts import Meter
from gcfl.methods.replies import Stacked
from gcfl.methods.training import learning_rate

_STACK_NUMBERS = 1 << 25  # so many numbers of inputs and weights in one stack, about 128 MB


def check(setting: Setting, x: torch.Tensor) -> None:
    """Refuse models whose result for one sample depends on the others of its batch or on chance, or
    that cannot be stacked.
    """
    network = setting.network
    batch = network.prepare(x[torch.arange(3) % len(x)]).clone()
    batch[1:] += torch.arange(1, 3, device=batch.device, dtype=batch.dtype).reshape(
        -1, *(1,) * (batch.ndim - 1)
    )
    tree = network.tree()
    before = {name: tensor.clone() for name, tensor in tree.items()}
    stack = {
        name: torch.stack([tensor, tensor])
        for name, tensor in tree.items()
        if name in network.trained
    }
    rest = {name: tensor for name, tensor in tree.items() if name not in stack}

    def logits(params: Tree, samples: torch.Tensor) -> torch.Tensor:
        return network({**params, **rest}, samples, training=True).logits

    try:
        with rng.isolated(0, "vectorised"):
            alone = [
                logits({name: tree[name] for name in stack}, batch[[0, other]])[0]
                for other in (1, 2)
            ]
            many = torch.vmap(logits)(stack, torch.stack([batch[[0, 1]], batch[[0, 2]]]))
    except Exception as error:  # whatever a module raises under vmap
        raise ModelError(
            f"engine.vectorised cannot train this model ({one_line(error)[:200]}); run it without"
        ) from error
    mixes = not torch.allclose(alone[0], alone[1]) or not torch.allclose(
        many[:, 0], torch.stack(alone), atol=1e-5
    )
    if mixes or any(not torch.equal(tensor, before[name]) for name, tensor in tree.items()):
        raise ModelError(
            "engine.vectorised cannot train this model: what it makes of a sample depends on the "
            "rest of the batch, on chance "
            "or on what it saw before (BatchNorm, Dropout, counters); run it without"
        )


@dataclass(frozen=True)
class _Chosen:
    """One client's part in the round: what it trains on, what it tells and remembers of that, and
    what choosing cost.
    """

    coreset: Coreset
    tells: Tree
    remembers: Tree
    forward: int


class Vectorised(ClientMemory):
    """All clients of a round, in stacks of similar sizes, in this process."""

    def __init__(self, side: ClientSide) -> None:
        super().__init__()
        check(side.setting, side.data.x)
        self._side = side

    def exchange(self, broadcasts: Mapping[int, Broadcast]) -> Stacked:
        clients = sorted(broadcasts)
        first = broadcasts[clients[0]]
        device = self._side.setting.network.device
        model = {name: tensor.to(device) for name, tensor in first.model.items()}
        clock = _Clock()
        chosen, failures = self._select(clients, broadcasts, model)
        select_cost = clock.lap(len(clients))
        trained = [
            self._train(stack, chosen, broadcasts, model, first.round)
            for stack in self._stacks(chosen, broadcasts)
        ]
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
            alike = {
                size: _Chosen(Coreset(np.arange(size), np.ones(size)), {}, {}, 0)
                for size in set(own)
            }
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
            # One pass serves all that start from the same model.
            start = method.local.start(model, self.of(client).get("local", {}))
            shared = together if client in asked and start is model else None
            view = View(
                self._side.setting,
                broadcast.round,
                client,
                start,
                Later(data, client),
                Meter(),
                shared,
            )
            try:
                selection = method.select.select(
                    view, broadcast.payload.get("select"), self.of(client).get("select", {})
                )
            except Exception as error:  # a client that fails must not take the round with it
                failures[client] = Failure(one_line(error))
                continue
            chosen[client] = _Chosen(
                selection.coreset, selection.tells, selection.remembers, view.meter.forward
            )
        return chosen, failures

    def _stacks(
        self, chosen: Mapping[int, _Chosen], broadcasts: Mapping[int, Broadcast]
    ) -> list[list[int]]:
        """Clients of similar sizes together, those with a memory of the local rule apart from those
        without.
        """
        weights = sum(tensor.numel() for tensor in self._side.setting.network.tree().values())
        sample, options = self._side.data.x[0].numel(), self._side.setting.train
        if not chosen:
            return []
        # Clients that remember something of the local rule, or are told something, cannot be
        # stacked with those that do not.
        known = np.array(
            [
                2 * bool(self.of(c).get("local")) + bool(broadcasts[c].payload.get("local"))
                for c in chosen
            ]
        )
        sizes = np.array([len(one.coreset.indices) for one in chosen.values()])
        clients = np.array(list(chosen))
        stacks: list[list[int]] = []
        for group in (np.flatnonzero(known == kind) for kind in range(4)):
            rest = group[np.argsort(-sizes[group], kind="stable")]
            while len(rest):
                longest = int(sizes[rest[0]])
                table = (
                    4
                    * (options.steps or options.epochs * -(-longest // options.batch))
                    * min(options.batch, longest)
                )
                count = max(1, _STACK_NUMBERS // (longest * sample + 4 * weights + table))
                # A stack is as long as its longest client: a new one where padding would be half of
                # it.
                count = min(count, int((2 * sizes[rest] >= longest).sum()))
                stacks.append(clients[rest[:count]].tolist())
                rest = rest[count:]
        return stacks

    def _train(
        self,
        stack: list[int],
        chosen: Mapping[int, _Chosen],
        broadcasts: Mapping[int, Broadcast],
        model: Tree,
        round: int,
    ) -> Stack:
        side = self._side
        setting, select, partition = side.setting, side.method.select, side.data.partition
        own = [chosen[client].coreset for client in stack]
        sizes = np.array([len(coreset.indices) for coreset in own])
        inside = np.concatenate([coreset.indices for coreset in own])
        chosen_rows = torch.from_numpy(
            partition.order[np.repeat(partition.offsets[stack], sizes) + inside]
        )
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
        clients: IntArray = (
            np.concatenate([stack.clients for stack in trained])
            if trained
            else np.empty(0, dtype=np.int64)
        )
        order = np.argsort(clients)
        places = torch.from_numpy(order)

        def column(values: list[torch.Tensor]) -> torch.Tensor:
            return (values[0] if len(values) == 1 else torch.cat(values))[places].cpu()

        sent = self._side.setting.network.sent if trained else ()
        delta = {
            name: column([stack.local[name] - model[name] for stack in trained]) for name in sent
        }
        tells = {
            name: column([stack.tells[name] for stack in trained])
            for name in (trained[0].tells if trained else ())
        }
        clients = clients[order]
        self._remember(trained, chosen)
        select = _stacked([chosen[client].tells for client in clients.tolist()])
        steps = (
            np.concatenate([stack.steps for stack in trained])[order] if trained else np.empty(0)
        )
        forward = (
            np.concatenate([stack.forward for stack in trained])[order] if trained else np.empty(0)
        )
        seen = np.concatenate([stack.seen for stack in trained])[order] if trained else np.empty(0)
        even = np.ones(len(clients))
        metrics = {
            "loss": np.concatenate([stack.loss for stack in trained])[order]
            if trained
            else np.empty(0),
            "forward": forward
            + np.array([chosen[client].forward for client in clients.tolist()], dtype=np.float64),
            "backward": seen,
            "steps": steps,
            "select_cpu": even * select_cost[0],
            "select_wall": even * select_cost[1],
            "train_cpu": even * train_cost[0],
            "train_wall": even * train_cost[1],
        }
        payload: Groups = {
            name: tree for name, tree in (("select", select), ("local", tells)) if tree
        }
        examples = (
            np.concatenate([stack.examples for stack in trained])[order]
            if trained
            else np.empty(0, dtype=np.int64)
        )
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
    if all(tree is trees[0] or not (tree or trees[0]) for tree in trees):
        return trees[0], False
    return _stacked(trees), True


def _stacked(trees: list[Tree]) -> Tree:
    return {
        name: torch.stack([tree[name] for tree in trees]) for name in (trees[0] if trees else ())
    }
