"""Never below the plain way: whether judging labels helps is measured on the server's clean set.

In the two rounds of a *comparison*, half of the round's clients are *plain*: they draw at random
among all their samples and train with T = I. In the second round the halves are swapped, so that
who holds what cancels. Both halves start from the same model θ, and the server compares

    gain = L(θ + mean Δ_plain) - L(θ + mean Δ_judged)

by the cross-entropy on D_S after the best temperature. D_S needs no part of its own for this: the
server may have trained θ on it, but no Δ. Earlier gains count half of the next one's. Where their
sum is below 0, all clients are plain until a later comparison says otherwise. Only updates of the
kind that is trusted by then enter the model, so a comparison costs one round's worth of updates
and nothing else.

The first comparison begins in round 1, the second G rounds later; while nothing changes each waits
twice as long as the one before, and G rounds again after a change.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from gcfl.base import rng
from gcfl.base.data_types import Tree
from gcfl.methods.averaging import step
from gcfl.methods.losses import tempered_loss
from gcfl.methods.replies import Replies
from gcfl.methods.views import ServerView

log = logging.getLogger("gcfl")
_FEWEST = 4  # clients in a round, below which halves say nothing
_FADES = 0.5
# first: of the two gains. gain: the sum. back: fallen back. next: the round of the next
# comparison. wait: from the last one to it.
_NAMES = ("guard.first", "guard.gain", "guard.back", "guard.next", "guard.wait")


def no_comparison() -> Tree:
    """The server's state before the first round."""
    nothing = torch.tensor(0.0, dtype=torch.float64)
    values = (nothing, nothing.clone(), torch.tensor(False), torch.tensor(1), torch.tensor(0))
    return dict(zip(_NAMES, values, strict=True))


def plain_clients(state: Tree, view: ServerView) -> tuple[int, ...]:
    """Who is plain in this round."""
    if (half := _half(state, view)) is not None:
        return half
    return view.clients if bool(state["guard.back"]) else ()


def _half(state: Tree, view: ServerView) -> tuple[int, ...] | None:
    """The plain half of the cohort, by an order that stays for the comparison; None in rounds that
    compare nothing.
    """
    first = int(state["guard.next"])
    if view.round not in (first, first + 1) or len(view.clients) < _FEWEST:
        return None
    seed = view.setting.seed
    ranked = sorted(view.clients, key=lambda one: (rng.key(seed, "guard", first, one), one))
    middle = len(ranked) // 2
    return tuple(sorted(ranked[middle:] if view.round > first else ranked[:middle]))


def distrusted(state: Tree, view: ServerView, replies: Replies) -> list[int]:
    """In a comparison: whose updates are not of the trusted kind, and do not enter the model."""
    plain = _half(state, view)
    if plain is None:
        return []
    other = [one for one in replies if (one in plain) != bool(state["guard.back"])]
    return other if len(other) < len(replies) else []


def compared(state: Tree, view: ServerView, replies: Replies, period: int) -> Tree:
    """The state after a round: what the two halves' updates did for the clean set."""
    before = {name: state[name] for name in _NAMES}
    first = int(state["guard.next"])
    if view.round not in (first, first + 1):
        return before
    gain = _gain(view, replies, _half(state, view))
    if view.round == first:
        return before | {"guard.first": gain}
    total = _FADES * state["guard.gain"] + state["guard.first"] + gain
    back = total < 0
    changed = bool(back) != bool(state["guard.back"])
    if changed:
        log.info(
            "round %d: on the clean set %s",
            view.round,
            "plain draws do better: clients judge no labels until a comparison says otherwise"
            if back
            else "judging labels does better again",
        )
    wait = period if changed else max(2 * int(state["guard.wait"]), period)
    values = (torch.zeros_like(gain), total, back, torch.tensor(first + wait), torch.tensor(wait))
    return dict(zip(_NAMES, values, strict=True))


def _gain(view: ServerView, replies: Replies, plain: tuple[int, ...] | None) -> Tensor:
    """0 where a half is missing."""
    halves = [
        replies.among([one for one in replies if (one in (plain or ())) == whether])
        for whether in (True, False)
    ]
    if not all(len(half) for half in halves):
        return torch.tensor(0.0, dtype=torch.float64)
    models = [step(view, half.mean(by_examples=False), 1.0) for half in halves]
    losses = [tempered_loss(view, model, view.validation) for model in models]
    return torch.tensor(losses[0] - losses[1], dtype=torch.float64)


def comparison(state: Tree, round: int) -> dict[str, float] | None:
    """For the record of a round in which a comparison ended: the sum of gains, and whether clients
    are plain from now on.
    """
    if round != int(state["guard.next"]) - int(state["guard.wait"]) + 1:
        return None
    return {"gain": float(state["guard.gain"]), "plain": float(state["guard.back"])}
