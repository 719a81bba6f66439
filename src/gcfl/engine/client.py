"""One client's round: select, train, answer; in this process, in workers and on Flower."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gcfl.base.data_types import Broadcast, Coreset, Groups, Observed, Shard, Tree, Update
from gcfl.data import ClientData
from gcfl.engine.measurement import Laps
from gcfl.labels import log_columns
from gcfl.methods import ClientView, Estimate, Method, Setting
from gcfl.methods.privacy import STATE as PRIVACY
from gcfl.methods.training import learning_rate, plain_steps, train


@dataclass(frozen=True)
class Reply:
    """What goes to the server, what stays with the client once the server has accepted it, and what
    an onlooker of a simulation may see (None: it trained on everything).
    """

    update: Update
    memory: Groups
    observed: Observed | None = None


@dataclass(frozen=True)
class ClientSide:
    """All that clients have: setting, client halves, data. No truth, no D_S."""

    setting: Setting
    method: Method
    data: ClientData

    def work(self, client: int, broadcast: Broadcast, memory: Groups) -> Reply:
        shard = self.data.shard(client)
        return answer(self.setting, self.method, client, shard, broadcast, memory)


def answer(
    setting: Setting,
    method: Method,
    client: int,
    shard: Shard,
    broadcast: Broadcast,
    memory: Groups,
) -> Reply:
    """Relabel and select if asked to, train on the coreset, return delta = local - global."""
    network, rule = setting.network, method.local
    model = _on(network.device, broadcast.model)
    received = _on(network.device, broadcast.payload.get("local", {}))
    remembered = _on(network.device, memory.get("local", {}))
    start = rule.start(model, remembered)
    view = ClientView.of(setting, broadcast.round, client, start, shard)
    laps = Laps()
    counting, remembered = rule.relabel(view, received, remembered)
    view = view if counting is None else view.relabelled(counting)
    view, labels = judge(method, view, broadcast.payload.get("labels"), memory.get("labels", {}))
    selection = method.select.select(
        view, broadcast.payload.get("select"), memory.get("select", {})
    )
    select_cpu, select_wall = laps.lap()
    fixed = rule.begin(model, received, remembered)
    lr = learning_rate(setting.train, broadcast.round, setting.rounds)
    columns = columns_of(labels, network.device)
    weighted = method.select.weighted
    kept = memory.get("kept", {}).get("rows")
    trained = train(view, selection.coreset, rule, fixed, weighted, lr, columns, kept)
    steps = plain_steps(trained.steps, setting.train.momentum)
    finished = rule.finish(trained.model, fixed, steps, lr)
    reflected = rule.reflect(replace(view, model=trained.model), remembered)
    sends, after = (
        _on(torch.device("cpu"), {**tree, **more})
        for tree, more in zip(finished, reflected, strict=True)
    )
    delta = {name: (trained.model[name] - model[name]).cpu() for name in network.sent}
    train_cpu, train_wall = laps.lap()
    metrics = {
        "loss": trained.loss,
        "forward": view.meter.forward,
        "backward": view.meter.backward,
        "steps": view.meter.steps,
        "select_cpu": select_cpu,
        "select_wall": select_wall,
        "train_cpu": train_cpu,
        "train_wall": train_wall,
    }
    sent = {"select": selection.sends, "local": sends, "labels": labels.sends}
    payload = {name: tree for name, tree in sent.items() if tree}
    observed = None
    if not method.select.whole or labels.rate is not None:
        coreset = None if method.select.whole else selection.coreset
        observed = Observed(coreset, selection.fresh, labels.rate)
    judged = remembered_labels(method, labels, selection.coreset, broadcast.round)
    remembers = {"select": selection.memory, "local": after, "labels": judged}
    if trained.kept is not None:
        remembers["kept"] = {"rows": trained.kept.cpu()}
    update = Update(delta, payload, trained.examples, metrics)
    if setting.local_noise is not None:
        known = memory.get(PRIVACY, {})
        delta, secret = setting.local_noise.applied(delta, known, client, broadcast.round)
        remembers[PRIVACY] = secret
        # What else it would tell is not covered: not its loss, nor how much it holds.
        update = Update(delta, payload, 1, dict.fromkeys(metrics, 0.0))
    return Reply(update, remembers, observed)


def judge(
    method: Method, view: ClientView, received: Tree | None, memory: Tree
) -> tuple[ClientView, Estimate]:
    """What the client thinks of its labels, where asked for, and the view that knows it."""
    if method.labels is None:
        return view, Estimate(None, {}, {})
    found = method.labels.estimate(view, received, memory)
    if found.right is not None:
        view = view.judged(found.right)
    return (replace(view, plain=True) if found.plain else view), found


def remembered_labels(method: Method, labels: Estimate, coreset: Coreset, round: int) -> Tree:
    """What the client remembers of its labels, after a round that trained on the coreset."""
    if method.labels is None:
        return labels.memory
    return method.labels.trained(labels.memory, coreset.indices, round)


def columns_of(labels: Estimate, device: torch.device) -> Tensor | None:
    """Of T, as the corrected loss wants it."""
    return None if labels.transition is None else log_columns(labels.transition).to(device)


def _on(device: torch.device, tree: Tree) -> Tree:
    return {name: tensor.to(device) for name, tensor in tree.items()}
