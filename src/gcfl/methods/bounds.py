"""How far one client can move what is added up: norms of updates, compared and bounded.

With a bound c (`server.clip`, a number or the median of the round's norms), the weights of an
update become Δ_i min(1, c / ‖Δ_i‖). What else is added up has other units: the statistics of
normalisation layers, and tensors that a local rule sends (SCAFFOLD's control variates). Each of
these is bounded by the median of its own norms; the latter under robust server rules too, which
look at updates alone.

What is a million times as long as the round's median, and longer than the model, is no update at
all. It is left out under every rule: no average survives it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping

import numpy as np

from gcfl.base.data_types import FloatArray
from gcfl.methods.answers import Sent
from gcfl.methods.base import ServerRule
from gcfl.methods.replies import Replies
from gcfl.methods.views import ServerView

log = logging.getLogger("gcfl")
FAR = 10.0  # times the median: an update that long, and longer than the model, is worth a warning
ABSURD = 1e6  # times the median: no training does that
_FEWEST = 3  # clients, of whom most can be right


def outliers(view: ServerView, replies: Replies) -> dict[int, float]:
    """By client, how many times the round's median its update's norm is: ‖Δ_i‖ / median ‖Δ‖, where
    that is far and ‖Δ_i‖ > ‖w‖, the model's own norm. Clients that have little left to learn send
    updates near zero; beside them an honest one is long, and moves the model by little.
    """
    return _beyond(replies, view.setting.network.trained, FAR, least=_own(view))


def _own(view: ServerView) -> float:
    """The norm of the model's weights."""
    trained = view.setting.network.trained
    return math.hypot(*(float(view.model[name].norm()) for name in trained))


def _beyond(
    replies: Replies, names: Collection[str], times: float, part: str = "", least: float = 0.0
) -> dict[int, float]:
    """By client, its norm in medians of the round's, where it is more than so many, and more than
    `least`.
    """
    if len(replies) < _FEWEST or not names:
        return {}
    norms = replies.norms(names, part)
    median = float(np.median(norms))
    far = np.flatnonzero((norms > times * median) & (norms > least)) if median else ()
    return {int(replies.clients[place]): float(norms[place]) / median for place in far}


def absurd(
    view: ServerView, replies: Replies, payload: Mapping[str, Sent]
) -> tuple[Replies, dict[int, str]]:
    """(the answers that can be added up at all, by client why another cannot)."""
    groups: list[tuple[str, str, Collection[str]]] = [
        ("", "its update is", view.setting.network.trained)
    ]
    groups += [("", "its statistics are", _moving(view))]
    groups += [(part, f"the part {part} is", _vectors(sent)) for part, sent in payload.items()]
    reasons: dict[int, str] = {}
    own = _own(view)
    for part, what, names in groups:
        for client, times in _beyond(replies, names, ABSURD, part, least=own).items():
            told = f"{what} {times:.3g} times as long as the round's median"
            reasons.setdefault(client, told)
    if not reasons:
        return replies, {}
    return replies.among([client for client in replies if client not in reasons]), reasons


def _moving(view: ServerView) -> list[str]:
    """Statistics of normalisation layers that are no counts."""
    network = view.setting.network
    moving = [name for name in network.sent if name not in network.trained]
    return [name for name in moving if view.model[name].is_floating_point()]


def _vectors(sent: Sent) -> list[str]:
    return [name for name, like in sent.items() if like.shape]


def warn_of_long(
    view: ServerView, replies: Replies, warned: set[int], called: Callable[[int], str]
) -> None:
    """Name those whose updates are far longer than the others', once each."""
    longest = outliers(view, replies)
    for client in sorted(longest.keys() - warned):
        warned.add(client)
        log.warning(
            "round %d: the update of %s is %.3g times as long as the round's median, and longer "
            "than the model itself: a mistake, or a lie (server.clip = 'median' bounds it)",
            view.round,
            called(client),
            longest[client],
        )


def nobody_left(
    round: int, left_out: Mapping[int, str], warned: Collection[int], called: Callable[[int], str]
) -> str:
    """Why a round ends a run, and whose long updates in earlier rounds may be to blame."""
    client, reason = next(iter(left_out.items()))
    text = f"round {round}: no client gave a valid update ({called(client)}: {reason})"
    if warned:
        long = ", ".join(called(one) for one in sorted(warned)[:3])
        text += (
            f"; far longer than the others' were updates of {long}: see server.clip and the robust "
            "server rules"
        )
    return text


def bounded(
    view: ServerView, replies: Replies, rule: ServerRule, payload: Mapping[str, Sent]
) -> Replies:
    """The answers as the rule lets them in. payload: what each part sends."""
    if not len(replies) or (rule.bound is None and not rule.wary):
        return replies
    network = view.setting.network
    if rule.bound is not None:
        norms = replies.norms(network.trained)
        longest = float(np.median(norms)) if rule.bound == "median" else rule.bound
        replies = _shortened(replies, norms, longest, network.trained)
        replies = _at_median(replies, _moving(view))
    for part, sent in payload.items():
        replies = _at_median(replies, _vectors(sent), part)
    return replies


def _at_median(replies: Replies, names: Collection[str], part: str = "") -> Replies:
    if not names:
        return replies
    norms = replies.norms(names, part)
    return _shortened(replies, norms, float(np.median(norms)), names, part)


def _shortened(
    replies: Replies, norms: FloatArray, longest: float, names: Collection[str], part: str = ""
) -> Replies:
    """None longer than that."""
    long = norms > longest
    if not long.any():
        return replies
    factors = np.divide(longest, norms, out=np.ones_like(norms), where=long)
    return replies.scaled(factors, names, part)
