"""Selection in a federated run: who chooses when, by any selector of `gcfl.coreset`.

The server decides who is due, because it must add the target to their messages: a client whose last
selection that the server heard of is K or more rounds old, or that never answered with one. A
message with a `select` entry means: select now. A client without a coreset that is not asked to
select (it lost its state, or `schedule = "paper"` and the round is no multiple of K) trains on a
random coreset, never on all its data.

For selectors that match the server's clean set the message holds its gradient: label-wise (row c:
mean of (p_c - 1)·[h, 1] over the samples of class c) or whole (the mean gradient of the last
layer). C·(d + 1) numbers travel, the size of the last layer, and only to clients that are due.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import AfterValidator, create_model
from torch import Tensor

from gcfl.base import rng
from gcfl.base.data_types import Coreset, Shard, Tree
from gcfl.base.errors import DataError
from gcfl.base.options import Count, PositiveShare, within
from gcfl.coreset import Pool, Selector, at_random, label_wise_target, points, whole_target
from gcfl.methods.answers import Like, Sent
from gcfl.methods.base import Selection, SelectionRule
from gcfl.methods.replies import Replies
from gcfl.methods.views import NEVER, ClientView, ServerView

log = logging.getLogger("gcfl")
_MEMORY = "memory."  # before the names of what a selector remembers


@dataclass(frozen=True)
class Occasion:
    """Who chooses, when, and from what: `size` samples, a budget being a share of `whole`. right:
    each label's probability of being right, where it was judged. plain: whether this round draws
    among all samples, whatever was chosen.
    """

    seed: int
    round: int
    client: int | str
    size: int
    whole: int
    pool: Callable[[], Pool]
    right: Tensor | None = None
    plain: bool = False

    def draw(self, *purpose: rng.Name) -> np.random.Generator:
        """A generator of its own for this purpose, client and round."""
        return rng.stream(self.seed, *purpose, self.round, self.client)


class Periodic(SelectionRule, Selector):
    """A selector that chooses b = max(1, round(budget · n_i)) samples every K rounds."""

    asks: ClassVar[bool] = True
    budget: PositiveShare = 0.1
    """share of a client's samples in its coreset"""
    pool: Annotated[float, AfterValidator(within(1, math.inf))] = 1.0
    """candidates of a selection, in multiples of the budget, from which rounds draw"""
    redraw: bool = True
    """draw from the candidates in every round, where they are more than the budget; else once"""
    every: Count = 10
    """K: rounds between two selections"""
    schedule: Literal["age", "paper"] = "age"
    """age: select when the last selection is K rounds old; paper: in rounds divisible by K"""

    def check(self, validation: Shard, classes: tuple[str | int, ...]) -> None:
        if self.needs_target:
            _check_privacy(self, validation, classes)

    def server_init(self, model: Tree) -> Tree:
        empty = torch.empty(0, dtype=torch.int64)
        return {"clients": empty, "rounds": empty.clone()}

    def announce(self, state: Tree, view: ServerView) -> Mapping[int, Tree]:
        due = self._due(state, view)
        told = self.target(view) if due else None
        return {} if told is None else dict.fromkeys(due, told)

    def target(self, view: ServerView) -> Tree | None:
        """What a client needs in order to choose; empty where it needs nothing, None where no more
        of the clean set may leave.
        """
        if not self.needs_target:
            return {}
        if view.ledger is not None:
            limited = view.ledger.target(lambda: view.pool, self._is_whole, view.round, self.every)
            return None if limited is None else {"target": limited}
        pool = view.pool
        gradient = whole_target if self._is_whole else label_wise_target
        return {"target": gradient(pool.features, pool.probabilities, pool.labels, pool.bias)}

    @property
    def needs_head(self) -> bool:
        return self.needs == "features" or self.needs_target

    @property
    def judges(self) -> bool:
        return self.needs == "posterior"

    @property
    def _is_whole(self) -> bool:
        return getattr(self, "variant", "") == "whole"

    def _due(self, state: Tree, view: ServerView) -> list[int]:
        if self.schedule == "paper":
            return list(view.clients) if view.round % self.every == 0 else []
        known, rounds = state["clients"].numpy(), state["rounds"].numpy()
        cohort = np.array(view.clients, dtype=np.int64)
        last = np.full(len(cohort), NEVER)
        if len(known):
            places = np.minimum(np.searchsorted(known, cohort), len(known) - 1)
            last = np.where(known[places] == cohort, rounds[places], NEVER)
        due = (last == NEVER) | (view.round - last >= self.every)
        return [int(client) for client in cohort[due]]

    def select(self, view: ClientView, received: Tree | None, memory: Tree) -> Selection:
        who = view.setting.seed, view.round, view.client, view.size, view.whole
        occasion = Occasion(*who, lambda: view.pool, view.right, view.plain)
        return self.choose(occasion, received, memory)

    def choose(self, occasion: Occasion, received: Tree | None, memory: Tree) -> Selection:
        """The client's half, for any party: choose if asked to, else go on with what there is."""
        budget = min(points(self.budget, occasion.whole), occasion.size)
        if received is not None:
            pool = self._pool(occasion)
            before = under(memory, _MEMORY)
            wanted = min(round(self.pool * budget), occasion.size)
            found, after = self.pick(pool, received.get("target"), wanted, occasion.draw, before)
            memory = _state(found, occasion.round)
            memory |= {f"{_MEMORY}{name}": tensor for name, tensor in after.items()}
        elif not _usable(memory, occasion.size):
            draw = rng.stream(occasion.seed, "coreset", "initial", occasion.client)
            memory = _state(at_random(occasion.size, budget, draw), NEVER)
        if occasion.plain:
            anything = at_random(occasion.size, budget, occasion.draw("coreset", "plain"))
            return Selection(anything, {"round": memory["round"]}, memory, fresh=True)
        candidates = Coreset(memory["indices"].numpy(), memory["weights"].numpy())
        when = occasion if self.redraw else replace(occasion, round=int(memory["round"]))
        coreset = self.narrow(candidates, budget, when.draw)
        redrawn = self.redraw and coreset is not candidates
        fresh = redrawn or received is not None
        return Selection(coreset, {"round": memory["round"]}, memory, fresh, not redrawn)

    def _pool(self, occasion: Occasion) -> Pool:
        """No forward pass where none is needed."""
        judged = self.needs == "posterior" and occasion.right is not None
        if judged or self.needs == "nothing":
            return replace(Pool.unseen(occasion.size), right=occasion.right)
        return occasion.pool()

    def sends(self, view: ServerView) -> Sent:
        return {"round": round_until(view)}

    def merge(self, state: Tree, view: ServerView, replies: Replies) -> Tree:
        """Remember, for each client that answered, the round of the selection it told of; of one
        that was asked to select, this round, whatever it says: it has been told the target.
        """
        heard, selected = replies.clients, replies.column("select", "round").numpy()
        selected = np.where(np.isin(heard, self._due(state, view)), view.round, selected)
        known, rounds = state["clients"].numpy(), state["rounds"].numpy()
        others = ~np.isin(known, heard)
        clients = np.concatenate([known[others], heard])
        values = np.concatenate([rounds[others], selected])
        order = np.argsort(clients)
        return {
            "clients": torch.from_numpy(clients[order]),
            "rounds": torch.from_numpy(values[order]),
        }


def round_until(view: ServerView) -> Like:
    """A round that has been, or NEVER."""
    return Like((), torch.int64, NEVER, view.round)


def _state(coreset: Coreset, round: int) -> Tree:
    indices, weights = torch.from_numpy(coreset.indices), torch.from_numpy(coreset.weights)
    return {"indices": indices, "weights": weights, "round": torch.tensor(round)}


def _usable(memory: Tree, size: int) -> bool:
    """Whether there is a coreset, and the client has not lost samples since."""
    return bool(memory) and int(memory["indices"].numpy().max()) < size


def under(tree: Tree, prefix: str) -> Tree:
    """What stands below a prefix, by the rest of its name."""
    found = {name: tensor for name, tensor in tree.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): tensor for name, tensor in found.items()}


@cache
def periodic(selector: type[Selector]) -> type[Periodic]:
    """The part of a method that chooses by this selector every K rounds; its options are both's."""
    return create_model(
        selector.__name__,
        __base__=(Periodic, selector),  # type: ignore[arg-type]
        __module__=selector.__module__,
        __doc__=selector.__doc__,
    )


def _check_privacy(rule: Periodic, validation: Shard, classes: tuple[str | int, ...]) -> None:
    """Refuse a clean set that its gradient would reveal; warn where it tells much."""
    allowed = bool(getattr(rule, "allow_single", False))
    mend = "enlarge it (data.validation), or set allow_single = true (coreset.allow_single)"
    if rule._is_whole:
        if len(validation) == 1 and not allowed:
            raise DataError(
                "the server's clean set is a single sample, which its gradient would reveal; "
                f"{mend}"
            )
        if len(validation) < 5:
            log.warning(
                "the server's clean set has fewer than 5 samples: their gradient tells much about "
                "them"
            )
        return
    counts = np.bincount(validation.y.numpy(), minlength=len(classes))

    def named(mask: np.ndarray) -> str:
        return ", ".join(str(classes[label]) for label in np.flatnonzero(mask))

    if (counts == 1).any() and not allowed:
        raise DataError(
            f"the server's clean set has a single sample of class {named(counts == 1)}, and its "
            f"gradient would reveal that sample's features; {mend}"
        )
    if few := named((counts > 0) & (counts < 5)):
        log.warning(
            "the server's clean set has fewer than 5 samples of class %s: their gradient tells "
            "much about them",
            few,
        )
    if none := named(counts == 0):
        log.warning(
            "the server's clean set has no sample of class %s: clients choose at random there",
            none,
        )
