"""What all coreset selectors share: a budget, a choice that is renewed every K rounds, and who is
due for it.

The server decides who is due, because it must add the target to their messages: a client whose last
selection that the server heard of is K or more rounds old, or that never answered with one. A
message with a `select` entry means: select now. A client without a coreset that is not asked to
select (it lost its state, or `schedule = "paper"` and the round is no multiple of K) trains on a
random coreset, never on all its data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch

from gcfl.base import rng
from gcfl.base.data_types import Coreset, Tree
from gcfl.base.options import Count, PositiveShare
from gcfl.coreset import points
from gcfl.methods.parts import ClientView, Selection, Selector, ServerView
from gcfl.methods.replies import Replies

NEVER = -1


class Periodic(Selector):
    """A selector that chooses b = max(1, round(budget · n_i)) samples every K rounds."""

    budget: PositiveShare = 0.1
    """share of a client's samples in its coreset"""
    every: Count = 10
    """K: rounds between two selections"""
    schedule: Literal["age", "paper"] = "age"
    """age: a client selects when its last selection is K rounds old; paper: only in rounds
    divisible by K
    """

    @abstractmethod
    def target(self, view: ServerView) -> Tree:
        """Server half: what a client needs in order to choose; empty where it needs nothing."""

    @abstractmethod
    def pick(self, view: ClientView, target: Tree, budget: int) -> Coreset:
        """Client half: `budget` positions in view.shard, and their weights."""

    def server_init(self, model: Tree) -> Tree:
        return {
            "clients": torch.empty(0, dtype=torch.int64),
            "rounds": torch.empty(0, dtype=torch.int64),
        }

    def announce(self, state: Tree, view: ServerView) -> Mapping[int, Tree]:
        due = self._due(state, view)
        if not due:
            return {}
        target = self.target(view)
        return dict.fromkeys(due, target)

    def _due(self, state: Tree, view: ServerView) -> list[int]:
        if self.schedule == "paper":
            return list(view.clients) if view.round % self.every == 0 else []
        known, rounds = state["clients"].numpy(), state["rounds"].numpy()
        cohort = np.array(view.clients, dtype=np.int64)
        places = np.minimum(np.searchsorted(known, cohort), max(0, len(known) - 1))
        last = (
            np.where(known[places] == cohort, rounds[places], NEVER)
            if len(known)
            else np.full(len(cohort), NEVER)
        )
        return [
            int(client) for client in cohort[(last == NEVER) | (view.round - last >= self.every)]
        ]

    def select(self, view: ClientView, told: Tree | None, remembered: Tree) -> Selection:
        budget = min(points(self.budget, view.shard.whole or len(view.shard)), len(view.shard))
        if told is not None:
            coreset, chosen_in = self.pick(view, told, budget), view.round
        elif (unchanged := self.kept(remembered, len(view.shard))) is not None:
            return unchanged
        else:
            coreset, chosen_in = at_random(view, budget, "initial"), NEVER
        chosen = torch.tensor(chosen_in)
        kept = {
            "indices": torch.from_numpy(coreset.indices),
            "weights": torch.from_numpy(coreset.weights),
            "round": chosen,
        }
        return Selection(coreset, {"round": chosen}, kept)

    def kept(self, remembered: Tree, held: int) -> Selection | None:
        if not remembered:
            return None
        indices = remembered["indices"].numpy()
        if indices.max() >= held:  # the client has lost samples since
            return None
        return Selection(
            Coreset(indices, remembered["weights"].numpy()),
            {"round": remembered["round"]},
            remembered,
        )

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> Tree:
        """Remember, for each client that answered, the round of the selection it told of."""
        heard, told = replies.clients, replies.column("select", "round").numpy()
        known, rounds = state["clients"].numpy(), state["rounds"].numpy()
        others = ~np.isin(known, heard)
        clients = np.concatenate([known[others], heard])
        values = np.concatenate([rounds[others], told])
        order = np.argsort(clients)
        return {
            "clients": torch.from_numpy(clients[order]),
            "rounds": torch.from_numpy(values[order]),
        }


class Unaided(Periodic, ABC):
    """A periodic selector that needs nothing from the server."""

    def target(self, view: ServerView) -> Tree:
        return {}


def at_random(view: ClientView, budget: int, *purpose: rng.Name) -> Coreset:
    """`budget` positions without replacement, drawn for this client and purpose, all with
    weight 1.
    """
    draw = rng.stream(view.setting.seed, "coreset", *purpose, view.client)
    indices = np.sort(draw.permutation(len(view.shard))[:budget])
    return Coreset(indices, np.ones(len(indices)))
