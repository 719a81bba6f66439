"""Server-only: train on the server's clean set alone. The first thing that a user with such a set
would try.
"""

from __future__ import annotations

from typing import ClassVar

from gcfl.base.data_types import Shard, Tree
from gcfl.base.errors import ConfigError
from gcfl.methods.average import step
from gcfl.methods.own import on_own, this_round
from gcfl.methods.parts import ServerRule, ServerView
from gcfl.methods.replies import Replies


class ServerOnly(ServerRule):
    """One round = train.epochs passes over D_S; no client takes part."""

    name: ClassVar[str] = "server-only"
    summary: ClassVar[str] = "train on the server's clean set alone, no clients"
    uses_clients: ClassVar[bool] = False

    def check(self, validation: Shard, classes: tuple[str | int, ...]) -> None:
        if self.takes_part:
            raise ConfigError(
                "server.takes_part has no effect with server-only: nobody else takes part"
            )

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> tuple[Tree, Tree]:
        local = on_own(view, view.model, this_round(view)).model
        return state, step(
            view,
            {name: local[name] - view.model[name] for name in view.setting.network.sent},
            self.rate,
        )
