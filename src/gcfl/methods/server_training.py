"""What the server does with its own clean set besides handing out gradients of it: train on it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from gcfl.base.data_types import Groups, Tree, Update
from gcfl.base.errors import ConfigError
from gcfl.coreset import unweighted
from gcfl.methods.averaging import step
from gcfl.methods.base import LocalRule, Method, Plain, ServerRule
from gcfl.methods.noisy_descent import noisy_descent
from gcfl.methods.options import CleanOptions
from gcfl.methods.replies import Replies
from gcfl.methods.training import Trained, learning_rate, plain_steps, train
from gcfl.methods.views import ClientView, ServerView

# The server's places where a client's number is asked for; each purpose draws its own batch orders.
SERVER, WARM, TUNE = -1, -2, -3
MINE = "mine"  # the server's state: what it remembers as one more client

_STAGES = 25  # of a warm start whose rate falls


class ServerOnly(ServerRule):
    """Train on the server's clean set alone: the first thing that a user with such a set would try.

    One round is train.epochs passes over D_S; no client takes part.
    """

    name: ClassVar[str] = "server-only"
    summary: ClassVar[str] = "train on the server's clean set alone, no clients"
    uses_clients: ClassVar[bool] = False
    trains: ClassVar[bool] = True

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> tuple[Tree, Tree]:
        local = train_on_clean(view, view.model, this_round(view)).model
        delta = {name: local[name] - view.model[name] for name in view.setting.network.sent}
        return state, step(view, delta, self.rate)


def train_on_clean(
    view: ServerView,
    model: Tree,
    lr: float,
    epochs: int | None = None,
    place: int = SERVER,
    rule: LocalRule | None = None,
    fixed: Tree | None = None,
) -> Trained:
    """Training on D_S from a model: as long as a client's, or so many epochs.

    Where what leaves D_S is limited, an epoch is one step of DP-SGD.
    """
    if view.ledger is not None:
        steps = epochs or view.setting.train.steps or view.setting.train.epochs
        return noisy_descent(view, view.ledger, model, lr, steps)
    changes = {} if epochs is None else {"epochs": epochs, "steps": None}
    setting = replace(view.setting, train=view.setting.train.model_copy(update=changes))
    as_client = ClientView.of(setting, view.round, place, model, view.validation)
    everything = unweighted(np.arange(len(view.validation)))
    trained = train(as_client, everything, rule or Plain(), fixed or {}, weighted=False, lr=lr)
    view.meter.add(as_client.meter)
    return trained


def warm_started(view: ServerView, clean: CleanOptions) -> Tree:
    """The model before the first round, trained on D_S if so set."""
    if not isinstance(clean.warm_start, int) or not clean.warm_start or view.round > 0:
        return view.model
    lr = clean.lr if isinstance(clean.lr, float) else view.setting.train.lr
    if clean.warm_schedule == "cosine":
        return annealed(view, lr, clean.warm_start, WARM)
    return train_on_clean(view, view.model, lr, clean.warm_start, WARM).model


def annealed(view: ServerView, lr: float, epochs: int, place: int) -> Tree:
    """Training on D_S in S stages, at η_s = η (1 + cos(π s / S)) / 2: a model at rest, where one
    at a constant rate still swings. A stage is an epoch, or several of many short ones.
    """
    model, stages = view.model, min(epochs, _STAGES)
    for stage in range(stages):
        now = lr * (1 + math.cos(math.pi * stage / stages)) / 2
        length = epochs * (stage + 1) // stages - epochs * stage // stages
        model = train_on_clean(replace(view, round=stage), model, now, length, place).model
    return model


def fine_tuned(
    view: ServerView, clean: CleanOptions, model: Tree, when: Literal["each", "end"]
) -> Tree:
    """The model after a round, or after the last, trained on D_S if so set."""
    if clean.fine_tune != when:
        return model
    # At train.lr, a few steps at the end would undo the last rounds.
    usual = view.setting.train.lr / 10 if when == "end" else this_round(view)
    lr = clean.fine_tune_lr or usual
    return train_on_clean(view, model, lr, clean.fine_tune_epochs, TUNE).model


def joined(
    view: ServerView, rule: LocalRule, replies: Replies, state: Groups, clean: CleanOptions
) -> tuple[Replies, Groups]:
    """The answers with the server's own, and its state with what it now remembers as a client."""
    rule = Plain() if rule.doubts else rule
    update, memory = server_update(view, rule, state["local"], state.get(MINE, {}), clean)
    return replies.plus(SERVER, update), {**state, MINE: memory} if memory else state


def server_update(
    view: ServerView, rule: LocalRule, state: Tree, memory: Tree, clean: CleanOptions
) -> tuple[Update, Tree]:
    """The server's answer as one more client, by the clients' rule, and what it then remembers.

    state: of the rule's server half, which announces to this client as to all others.
    """
    network, lr = view.setting.network, this_round(view)
    if isinstance(clean.lr, float):
        lr *= clean.lr / view.setting.train.lr
    announced = rule.announce(state, replace(view, clients=(SERVER,))).get(SERVER, {})
    model, received, memory = (
        {name: tensor.to(network.device) for name, tensor in tree.items()}
        for tree in (view.model, announced, memory)
    )
    fixed = rule.begin(model, received, memory)
    trained = train_on_clean(view, rule.start(model, memory), lr, rule=rule, fixed=fixed)
    steps = plain_steps(trained.steps, view.setting.train.momentum)
    sends, after = (
        {name: tensor.cpu() for name, tensor in tree.items()}
        for tree in rule.finish(trained.model, fixed, steps, lr)
    )
    delta = {name: (trained.model[name] - model[name]).cpu() for name in network.sent}
    return Update(delta, {"local": sends} if sends else {}, trained.examples, {}), after


def this_round(view: ServerView) -> float:
    return learning_rate(view.setting.train, view.round, view.setting.rounds)


def check(method: Method, clean: CleanOptions) -> None:
    """Refuse settings of [clean] that a method has no use for, or that contradict it."""
    shared = ("fine_tune", "takes_part", "hold_out", "contribution")
    idle = [name for name in shared if name in clean.changed()]
    if not method.server.shares and idle:
        raise ConfigError(
            f"clean.{idle[0]} has no effect with {method.name}: the clients' models never meet"
        )
    if not method.server.shares and bool(getattr(method.labels, "guard", False)):
        raise ConfigError(
            f"labels.guard has no effect with {method.name}: the clients' models never meet"
        )
    if not method.server.uses_clients and clean.takes_part:
        raise ConfigError(
            f"clean.takes_part has no effect with {method.name}: nobody else takes part"
        )
    if not method.server.uses_clients and clean.contribution:
        raise ConfigError(f"clean.contribution has no effect with {method.name}: it has no clients")
    if not clean.hold_out and (clean.keep == "best" or clean.patience is not None):
        wish = "clean.keep = 'best'" if clean.keep == "best" else "clean.patience"
        raise ConfigError(
            f"{wish} needs clean.hold_out: a share of the server's clean set to judge by"
        )
