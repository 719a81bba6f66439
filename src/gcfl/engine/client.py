"""One client's round: select, train, answer. The same code runs in this process, in workers and on
Flower.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from gcfl.base.data_types import Broadcast, Groups, Shard, Tree, Update
from gcfl.data import ClientData
from gcfl.methods import ClientView, Method, Setting
from gcfl.methods.parts import Meter
from gcfl.methods.training import learning_rate, train


@dataclass(frozen=True)
class Reply:
    """What goes to the server, and what stays with the client once the server has accepted it."""

    update: Update
    remembers: Groups


@dataclass(frozen=True)
class ClientSide:
    """All that clients have: the run's setting, the client halves of the method, and their data. No
    truth, no D_S.
    """

    setting: Setting
    method: Method
    data: ClientData

    def work(self, client: int, broadcast: Broadcast, remembered: Groups) -> Reply:
        return answer(
            self.setting, self.method, client, self.data.shard(client), broadcast, remembered
        )


def answer(
    setting: Setting,
    method: Method,
    client: int,
    shard: Shard,
    broadcast: Broadcast,
    remembered: Groups,
) -> Reply:
    """Select if asked to, train on the coreset, return delta = local - global."""
    network = setting.network
    model, rule = _on(network.device, broadcast.model), method.local
    told, kept = (
        _on(network.device, group.get("local", {})) for group in (broadcast.payload, remembered)
    )
    view = ClientView(setting, broadcast.round, client, rule.start(model, kept), shard, Meter())
    clock = _Clock()
    selection = method.select.select(
        view, broadcast.payload.get("select"), remembered.get("select", {})
    )
    clock.lap("select")
    fixed = rule.begin(model, told, kept)
    lr = learning_rate(setting.train, broadcast.round, setting.rounds)
    trained = train(view, selection.coreset, rule, fixed, method.select.weighted, lr)
    tells, remembers = (
        _on(torch.device("cpu"), tree)
        for tree in rule.finish(trained.model, fixed, trained.steps, lr)
    )
    delta = {name: (trained.model[name] - model[name]).cpu() for name in network.sent}
    clock.lap("train")
    meter = view.meter
    metrics = {
        "loss": trained.loss,
        "forward": meter.forward,
        "backward": meter.backward,
        "steps": meter.steps,
        **clock.laps,
    }
    payload = {name: tree for name, tree in (("select", selection.tells), ("local", tells)) if tree}
    return Reply(
        Update(delta, payload, trained.examples, metrics),
        {"select": selection.remembers, "local": remembers},
    )


def _on(device: torch.device, tree: Tree) -> Tree:
    return {name: tensor.to(device) for name, tensor in tree.items()}


class _Clock:
    """CPU-seconds of this thread, which does all the work, and wall-clock seconds, lap by lap."""

    def __init__(self) -> None:
        self._last = (time.thread_time(), time.perf_counter())
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = (time.thread_time(), time.perf_counter())
        self.laps[f"{name}_cpu"] = now[0] - self._last[0]
        self.laps[f"{name}_wall"] = now[1] - self._last[1]
        self._last = now
