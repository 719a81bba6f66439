"""What the server does with its own clean set besides handing out gradients of it: train on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from gcfl.base.data_types import Coreset, Tree, Update
from gcfl.methods.parts import ClientView, LocalRule, ServerRule, ServerView
from gcfl.methods.plain import Plain
from gcfl.methods.training import Trained, learning_rate, train

# The server's places where a client's number is asked for; each purpose draws its own batch orders.
SERVER, WARM, TUNE = -1, -2, -3


def on_own(
    view: ServerView,
    model: Tree,
    lr: float,
    epochs: int | None = None,
    place: int = SERVER,
    rule: LocalRule | None = None,
) -> Trained:
    """Training on D_S from a model: as long as a client's, or so many epochs."""
    options = view.setting.train.model_copy(
        update={} if epochs is None else {"epochs": epochs, "steps": None}
    )
    n = len(view.validation)
    own = ClientView(
        replace(view.setting, train=options), view.round, place, model, view.validation, view.meter
    )
    rule = rule or Plain()
    return train(
        own,
        Coreset(np.arange(n), np.ones(n)),
        rule,
        rule.begin(model, {}, {}),
        weighted=False,
        lr=lr,
    )


def warmed(view: ServerView, rule: ServerRule) -> Tree:
    """The model before the first round, trained on D_S if the rule says so; at the first round's
    learning rate.
    """
    if not rule.warm_start or view.round > 0:
        return view.model
    return on_own(view, view.model, view.setting.train.lr, rule.warm_start, WARM).model


def tuned(view: ServerView, rule: ServerRule, model: Tree, when: Literal["each", "end"]) -> Tree:
    """The model after a round, or after the last, trained on D_S if the rule says so."""
    if rule.fine_tune != when:
        return model
    # At train.lr, a few steps undo the last rounds.
    usual = view.setting.train.lr / 10 if when == "end" else this_round(view)
    return on_own(view, model, rule.fine_tune_lr or usual, rule.fine_tune_epochs, TUNE).model


def own_update(view: ServerView, rule: LocalRule) -> Update:
    """The server's answer as one more client, by the clients' rule."""
    trained = on_own(view, view.model, this_round(view), rule=rule)
    delta = {
        name: (trained.model[name] - view.model[name]).cpu() for name in view.setting.network.sent
    }
    return Update(delta, {}, trained.examples, {})


def this_round(view: ServerView) -> float:
    return learning_rate(view.setting.train, view.round, view.setting.rounds)
