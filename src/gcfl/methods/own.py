"""What the server does with its own clean set besides handing out gradients of it: train on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gcfl.methods.parts import ClientView, ServerRule, ServerView
from gcfl.methods.plain import Plain
from gcfl.methods.training import Trained, learning_rate, train
from gcfl.types import Coreset, Tree, Update

# The server's places where a client's number is asked for; each purpose draws its own batch orders.
SERVER, WARM, TUNE = -1, -2, -3


def on_own(view: ServerView, model: Tree, epochs: int, lr: float, place: int = SERVER) -> Trained:
    """Plain training on D_S from a model."""
    options = view.setting.train.model_copy(update={"epochs": epochs, "steps": None})
    n = len(view.validation)
    own = ClientView(replace(view.setting, train=options), view.round, place, model, view.validation, view.meter)
    return train(own, Coreset(np.arange(n), np.ones(n)), Plain(), {}, weighted=False, lr=lr)


def warmed(view: ServerView, rule: ServerRule) -> Tree:
    """The model before the first round, trained on D_S if the rule says so; at the first round's learning rate."""
    if not rule.warm_start or view.round > 0:
        return view.model
    return on_own(view, view.model, rule.warm_start, view.setting.train.lr, WARM).model


def tuned(view: ServerView, rule: ServerRule, model: Tree) -> Tree:
    """The model after a round, trained on D_S if the rule says so."""
    last = view.round == view.setting.rounds - 1
    if rule.fine_tune == "never" or (rule.fine_tune == "end" and not last):
        return model
    usual = view.setting.train.lr if rule.fine_tune == "end" else this_round(view)
    return on_own(view, model, rule.fine_tune_epochs, rule.fine_tune_lr or usual, TUNE).model


def own_update(view: ServerView) -> Update:
    """The server's answer as one more client."""
    trained = on_own(view, view.model, view.setting.train.epochs, this_round(view))
    delta = {name: (trained.model[name] - view.model[name]).cpu() for name in view.setting.network.sent}
    return Update(delta, {}, trained.examples, {})


def this_round(view: ServerView) -> float:
    return learning_rate(view.setting.train, view.round, view.setting.rounds)
