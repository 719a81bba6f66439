"""Server-only: train on the server's clean set alone. The first thing that a user with such a set would try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from gcfl.methods.average import step
from gcfl.methods.parts import ClientView, ServerRule, ServerView
from gcfl.methods.plain import Plain
from gcfl.methods.training import learning_rate, train
from gcfl.types import Coreset, Tree, Update

SERVER = -1  # the server's place where a client's number is asked for


class ServerOnly(ServerRule):
    """One round = train.epochs passes over D_S; no client takes part."""

    name: ClassVar[str] = "server-only"
    summary: ClassVar[str] = "train on the server's clean set alone, no clients"
    uses_clients: ClassVar[bool] = False

    def merge(self, state: Tree, view: ServerView, replies: Mapping[int, Update]) -> tuple[Tree, Tree]:
        setting = view.setting
        n = len(view.validation)
        everything = Coreset(np.arange(n), np.ones(n))
        own = ClientView(setting, view.round, SERVER, view.model, view.validation, view.meter)
        lr = learning_rate(setting.train, view.round, setting.rounds)
        local = train(own, everything, Plain(), {}, weighted=False, lr=lr).model
        delta = {name: local[name] - view.model[name] for name in setting.network.sent}
        return state, step(view, delta, self.rate)
