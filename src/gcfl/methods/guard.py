"""Never below the plain way: whether judging labels helps is measured on the server's clean set.

In the two rounds of a *comparison*, a third of the round's clients (at least two) are *plain*:
they draw at random among all their samples and train with T = I. As many others are their
counterpart; in the second round the two groups are swapped, so that who holds what cancels. Both
start from the same model θ, and the server compares

    gain = L(θ + mean Δ_plain) - L(θ + mean Δ_judged)

by the cross-entropy on D_S after the best temperature. D_S needs no part of its own for this: the
server may have trained θ on it, but no Δ. Earlier gains count half of the next one's. Where their
sum is below -0.1, all clients are plain until it is clearly above 0 again (0.2: where judging helps
it is 0.5 and more, where it makes no difference it wavers by 0.1), and it is the judged who are a
third. Only updates of the kind that is trusted by then enter the model, so a comparison costs a
third of two rounds' updates and nothing else.

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
_FEWEST = 4  # clients in a round, below which two groups say nothing
_PART = 3  # of the clients in a round are of the other kind in a comparison: one of so many
_FADES = 0.5
# Nats: the sum of gains below which clients fall back, and above which they judge again. A clean
# set that the model knows by heart tells nothing, and then the sum is a hair's breadth from 0.
_HARM, _CLEAR = -0.1, 0.2
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
    others = _groups(state, view)[0]
    if not bool(state["guard.back"]):
        return tuple(sorted(others))
    return tuple(one for one in view.clients if one not in others)


def _groups(state: Tree, view: ServerView) -> tuple[list[int], list[int]]:
    """Those of the kind that is not trusted, and their counterpart, by an order that stays for the
    comparison; nobody in rounds that compare nothing.
    """
    first = int(state["guard.next"])
    if view.round not in (first, first + 1) or len(view.clients) < _FEWEST:
        return [], []
    seed = view.setting.seed
    ranked = sorted(view.clients, key=lambda one: (rng.key(seed, "guard", first, one), one))
    size = max(2, len(ranked) // _PART)
    one, other = ranked[:size], ranked[size : 2 * size]
    return (other, one) if view.round > first else (one, other)


def distrusted(state: Tree, view: ServerView, replies: Replies) -> list[int]:
    """In a comparison: whose updates are not of the trusted kind, and do not enter the model."""
    others = [one for one in _groups(state, view)[0] if one in replies]
    return others if len(others) < len(replies) else []


def compared(state: Tree, view: ServerView, replies: Replies, period: int) -> Tree:
    """The state after a round: what the two groups' updates did for the clean set."""
    before = {name: state[name] for name in _NAMES}
    first = int(state["guard.next"])
    if view.round not in (first, first + 1):
        return before
    groups = _groups(state, view)
    judged, plain = groups if bool(state["guard.back"]) else reversed(groups)
    gain = _gain(view, replies, plain, judged)
    if view.round == first:
        return before | {"guard.first": gain}
    total = _FADES * state["guard.gain"] + state["guard.first"] + gain
    back = total < (_CLEAR if bool(state["guard.back"]) else _HARM)
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


def _gain(view: ServerView, replies: Replies, plain: list[int], judged: list[int]) -> Tensor:
    """0 where a group is missing."""
    groups = [replies.among([one for one in who if one in replies]) for who in (plain, judged)]
    if not all(len(group) for group in groups):
        return torch.tensor(0.0, dtype=torch.float64)
    models = [step(view, group.mean(by_examples=False), 1.0) for group in groups]
    losses = [tempered_loss(view, model, view.validation) for model in models]
    return torch.tensor(losses[0] - losses[1], dtype=torch.float64)


def comparison(state: Tree, round: int) -> dict[str, float] | None:
    """For the record of a round in which a comparison ended: the sum of gains, and whether clients
    are plain from now on.
    """
    if round != int(state["guard.next"]) - int(state["guard.wait"]) + 1:
        return None
    return {"gain": float(state["guard.gain"]), "plain": float(state["guard.back"])}
