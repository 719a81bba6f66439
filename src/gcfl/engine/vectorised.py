"""Many clients trained at once, by torch.func.vmap: clients are every tensor's first dimension.

The same selectors and rules as in the loop, over clients of any sizes: batches are laid out in a
table, padded where one is short, and clients that have finished drop out. Results agree with the
loop to rounding (1e-5), not to the bit, so this is asked for with engine.vectorised and counts as
another run. For small models, whose arithmetic costs less than calling for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from gcfl.base.data_types import (
    Broadcast,
    Coreset,
    FloatArray,
    Groups,
    IntArray,
    Observed,
    Tree,
)
from gcfl.base.errors import one_line
from gcfl.coreset import unweighted
from gcfl.engine.choices import Chosen, SharedPass
from gcfl.engine.client import ClientSide, judge, remembered_labels
from gcfl.engine.measurement import Laps
from gcfl.engine.transport import ClientMemory
from gcfl.labels import log_columns
from gcfl.methods import ClientView, Estimate, Replies, Selection, Stacked
from gcfl.methods.batched import Job, Stack, check_stackable, train_stack
from gcfl.methods.training import learning_rate, remembered_rows

_STACK_NUMBERS = 1 << 25  # so many numbers of inputs and weights in one stack, about 128 MB


class Vectorised(ClientMemory):
    """All clients of a round, in stacks of similar sizes, in this process."""

    def __init__(self, side: ClientSide) -> None:
        super().__init__(side)
        check_stackable(side.setting, side.data.x)
        self._steady: dict[int, Chosen] = {}  # choices that stand until the server asks again

    def exchange(self, broadcasts: Mapping[int, Broadcast]) -> Replies:
        first = next(iter(broadcasts.values()))
        device = self._side.setting.network.device
        model = {name: tensor.to(device) for name, tensor in first.model.items()}
        laps = Laps()
        chosen, failures = self._select(sorted(broadcasts), broadcasts, model)
        seconds = {"select": laps.lap()}
        stacks = self._stacks(chosen, broadcasts)
        trained, done = [], len(failures)
        for members in stacks:
            trained.append(self._train(members, chosen, broadcasts, model))
            done += len(members)
            self.on_client(done, len(broadcasts))
        seconds["train"] = laps.lap()
        for stack in trained:
            self._propose(stack, chosen, first.round)
        if not trained:
            return Replies({}, failures)
        # Seconds are shared evenly by all that were asked.
        even = {
            f"{kind}_{clock}": spent / len(broadcasts)
            for kind, moment in seconds.items()
            for clock, spent in zip(("cpu", "wall"), moment, strict=True)
        }
        return self._answer(chosen, failures, trained, model, even)

    def _select(
        self, clients: list[int], broadcasts: Mapping[int, Broadcast], model: Tree
    ) -> tuple[dict[int, Chosen], dict[int, str]]:
        """Every client's choice, and why a client has none."""
        side = self._side
        rule, sizes = side.method.select, side.data.partition.sizes
        wholes = sizes if side.data.whole is None else side.data.whole
        if rule.whole and side.method.labels is None:
            unknown = Estimate(None, {}, {})
            alike = {
                size: Chosen(Selection(unweighted(np.arange(size)), {}, {}), 0, unknown)
                for size in set(sizes[clients].tolist())
            }
            return {client: alike[int(sizes[client])] for client in clients}, {}
        looks = ("select", "labels")  # what asks for a forward pass
        due = [c for c in clients if any(name in broadcasts[c].payload for name in looks)]
        asked, shared = set(due), SharedPass(side, due, model)
        chosen: dict[int, Chosen] = {}
        failures: dict[int, str] = {}
        for client in clients:
            memory = self.of(client)
            known = self._steady.get(client)
            if known is not None and client not in asked and known.is_of(memory):
                chosen[client] = known
                continue
            start = side.method.local.start(model, memory.get("local", {}))
            view = ClientView(
                side.setting,
                broadcasts[client].round,
                client,
                start,
                int(sizes[client]),
                int(wholes[client]),
                partial(side.data.shard, client),
                # One pass serves all that start from the same model.
                look=partial(shared.pool, client) if client in asked and start is model else None,
            )
            payload = broadcasts[client].payload
            try:
                asked_for = payload.get("labels"), memory.get("labels", {})
                view, labels = judge(side.method, view, *asked_for)
                selection = rule.select(view, payload.get("select"), memory.get("select", {}))
            except Exception as error:  # a client that fails must not take the round with it
                failures[client] = one_line(error)
                continue
            chosen[client] = Chosen(selection, view.meter.forward, labels)
            if selection.steady:
                later = replace(labels, right=None, rate=None)
                self._steady[client] = Chosen(replace(selection, fresh=False), 0, later)
        return chosen, failures

    def _stacks(
        self, chosen: Mapping[int, Chosen], broadcasts: Mapping[int, Broadcast]
    ) -> list[list[int]]:
        """Clients of similar sizes together, apart by whether they remember, or are sent, things
        of the local rule.
        """
        weights = sum(tensor.numel() for tensor in self._side.setting.network.tree().values())
        sample, options = self._side.data.x[0].numel(), self._side.setting.train
        clients = np.array(list(chosen), dtype=np.int64)
        lengths = np.array([one.selection.coreset.indices.size for one in chosen.values()])
        kinds = np.array(
            [
                2 * bool(self.of(client).get("local"))
                + bool(broadcasts[client].payload.get("local"))
                for client in chosen
            ]
        )
        stacks: list[list[int]] = []
        for kind in np.unique(kinds):
            alike = np.flatnonzero(kinds == kind)
            order = alike[np.argsort(-lengths[alike], kind="stable")]
            group, sizes = clients[order], lengths[order]
            while len(group):
                longest = int(sizes[0])
                batches = -(-longest // options.batch)
                steps = options.steps or options.passes(batches) * batches
                table = 4 * steps * min(options.batch, longest)
                count = max(1, _STACK_NUMBERS // (longest * sample + 4 * weights + table))
                # A stack is as long as its longest client: a new one where padding would be half
                # of it.
                count = min(count, int((2 * sizes >= longest).sum()))
                stacks.append(group[:count].tolist())
                group, sizes = group[count:], sizes[count:]
        return stacks

    def _train(
        self,
        stack: list[int],
        chosen: Mapping[int, Chosen],
        broadcasts: Mapping[int, Broadcast],
        model: Tree,
    ) -> Stack:
        setting, method, data = self._side.setting, self._side.method, self._side.data
        coresets = [chosen[client].selection.coreset for client in stack]
        sizes = np.array([len(coreset) for coreset in coresets])
        inside = np.concatenate([coreset.indices for coreset in coresets])
        offsets = np.repeat(data.partition.offsets[stack], sizes)
        rows = torch.from_numpy(data.partition.order[offsets + inside])
        round = broadcasts[stack[0]].round
        received, apart = _shared([broadcasts[one].payload.get("local", {}) for one in stack])
        job = Job(
            round=round,
            clients=np.array(stack),
            x=setting.network.prepare(data.x.index_select(0, rows)),
            y=data.y.index_select(0, rows).to(setting.network.device),
            sizes=sizes,
            weights=[one.weights for one in coresets] if method.select.weighted else None,
            model=model,
            received=received,
            apart=apart,
            memory=_stacked([self.of(client).get("local", {}) for client in stack]),
            lr=learning_rate(setting.train, round, setting.rounds),
            columns=self._columns([chosen[client].labels for client in stack]),
            kept=self._kept(stack, coresets),
        )
        return train_stack(setting, method.local, job)

    def _rows(self, client: int) -> torch.Tensor:
        """(n, C) what the local rule kept of each of a client's samples."""
        known = self.of(client).get("kept", {}).get("rows")
        size = int(self._side.data.partition.sizes[client])
        return remembered_rows(known, size, self._side.setting.network.classes)

    def _kept(self, stack: list[int], coresets: list[Coreset]) -> torch.Tensor | None:
        """The same of the samples that they train on, one client after the other."""
        if not self._side.method.local.keeps:
            return None
        pairs = zip(stack, coresets, strict=True)
        found = torch.cat([self._rows(client)[coreset.indices] for client, coreset in pairs])
        return found.to(self._side.setting.network.device)

    def _propose(self, stack: Stack, chosen: Mapping[int, Chosen], round: int) -> None:
        whole = self._side.method.select.whole and not self._side.method.labels
        if whole and not stack.memory and stack.kept is None:
            self.propose_nothing(stack.clients.tolist())
            return
        start = 0
        for place, client in enumerate(stack.clients.tolist()):
            local = {name: tensor[place] for name, tensor in stack.memory.items()}
            one = chosen[client]
            coreset = one.selection.coreset
            judged = remembered_labels(self._side.method, one.labels, coreset, round)
            memory = {"select": one.selection.memory, "local": local, "labels": judged}
            if stack.kept is not None:
                rows, indices = self._rows(client), one.selection.coreset.indices
                rows[indices] = stack.kept[start : start + len(indices)].cpu()
                memory["kept"] = {"rows": rows}
                start += len(indices)
            self.propose(client, memory)

    def _columns(self, labels: list[Estimate]) -> torch.Tensor | None:
        """(m, C, C) of each client's T; the identity's where a client knows nothing."""
        if self._side.setting.train.loss != "corrected":
            return None
        network = self._side.setting.network
        eye = torch.eye(network.classes)
        known = [eye if one.transition is None else one.transition for one in labels]
        return log_columns(torch.stack(known)).to(network.device)

    def _answer(
        self,
        chosen: Mapping[int, Chosen],
        failures: dict[int, str],
        trained: list[Stack],
        model: Tree,
        seconds: Mapping[str, float],
    ) -> Stacked:
        """The stacks put together, sorted by client. seconds: of each client."""
        clients: IntArray = np.concatenate([stack.clients for stack in trained])
        order = np.argsort(clients)
        places, clients = torch.from_numpy(order), clients[order]
        listed = clients.tolist()

        def column(values: list[torch.Tensor]) -> torch.Tensor:
            return (values[0] if len(values) == 1 else torch.cat(values))[places].cpu()

        def numbers(values: list[FloatArray]) -> FloatArray:
            return np.concatenate(values)[order]

        sent = self._side.setting.network.sent
        delta = {name: column([one.local[name] - model[name] for one in trained]) for name in sent}
        local = {name: column([one.sends[name] for one in trained]) for name in trained[0].sends}
        select = _stacked([chosen[client].selection.sends for client in listed])
        judged = {client: chosen[client].labels for client in listed}
        payload: Groups = {"select": select, "local": local}
        payload["labels"] = _stacked([one.sends for one in judged.values()])
        looked = np.array([chosen[client].forward for client in listed], dtype=np.float64)
        metrics = {
            "loss": numbers([stack.loss for stack in trained]),
            "forward": numbers([stack.forward for stack in trained]) + looked,
            "backward": numbers([stack.backward for stack in trained]),
            "steps": numbers([stack.steps for stack in trained]),
            **{name: np.full(len(listed), spent) for name, spent in seconds.items()},
        }
        whole, observed = self._side.method.select.whole, {}
        for client in listed if not whole or self._side.method.labels else ():
            one = chosen[client].selection
            coreset = None if whole else one.coreset
            observed[client] = Observed(coreset, one.fresh, judged[client].rate)
        return Stacked(
            clients,
            delta,
            {name: tree for name, tree in payload.items() if tree},
            np.concatenate([stack.examples for stack in trained])[order],
            metrics,
            failures,
            observed,
        )


def _shared(trees: list[Tree]) -> tuple[Tree, bool]:
    """What all were sent, and whether each was sent something of its own."""
    if all(tree is trees[0] or not (tree or trees[0]) for tree in trees):
        return trees[0], False
    return _stacked(trees), True


def _stacked(trees: list[Tree]) -> Tree:
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}
